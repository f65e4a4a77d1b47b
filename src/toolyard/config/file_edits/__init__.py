"""Change entries in configuration files: Toolyard's entry in that of another client, or servers in our own.

Everything else in the file stays unchanged, including comments and layout. An edit that cannot guarantee this
is refused, and nothing is written. Start with ``entry_edits.py``.
"""
