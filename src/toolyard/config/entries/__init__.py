"""Parse and validate entries of a configuration file: servers, bundles, transports and OAuth.

Start with ``servers.py``; all parsers read JSON objects through ``checked_object.CheckedObject``.
"""
