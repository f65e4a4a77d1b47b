"""Add Toolyard's entry to the configuration file of another client, or remove it.

Everything else in the file stays unchanged, including comments and layout. An edit that cannot guarantee this
is refused, and nothing is written. Start with ``client_files.py``.
"""
