"""Chat pages: turns, tool console, live updates and actions.

``view_builder`` folds a chat's events into ``turn_view`` data, ``fragments`` renders them, and
``page_updates`` and ``stream`` send the changed fragments to open pages. Start with ``pages``."""
