"""Import servers from the configuration files of other clients.

Each format has a module that translates an entry into one of our ``mcpServers``. Keys without an equivalent
become notes and do not stop the import. Start with ``merge.py`` and ``formats.py``.
"""
