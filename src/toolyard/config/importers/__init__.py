"""Import servers from the configuration files of other clients.

``formats.py`` recognises the format of a file and translates each entry into one of our ``mcpServers``. Keys
without an equivalent become notes and do not stop the import. Start with ``merge.py`` and ``formats.py``.
"""
