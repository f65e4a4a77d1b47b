"""Chat pages: turns, tool console, live updates and actions.

``fragments`` renders snapshots of turns, and ``page_updates`` and ``stream`` send the changed fragments to
open pages. Start with ``pages``."""
