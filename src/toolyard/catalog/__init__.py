"""Catalogue of the servers' tools: listings, their validation, the cache and its storage, and exposed names.

Imports ``types`` and ``errors``, and ``lock`` also the file helpers of ``config``. The cache opens no
connections: its owner passes a fetcher. Start reading at ``cache.CatalogueCache``, then ``exposed_names``.
``search``, ``schemas`` and ``lock`` do not depend on each other.
"""
