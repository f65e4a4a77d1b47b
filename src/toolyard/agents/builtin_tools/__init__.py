"""Built-in ("native") tools: read files of the workspace and pages of the web, and change nothing.

``server_factory`` builds them as an in-process MCP server; ``dispatch`` maps calls to the tools. May import
``catalog``, ``config``, ``meta_tools``, ``net``, ``protocol``, ``results``, ``transports``, ``types`` and
``workers``.
Everything that a model supplies (paths, patterns, addresses) is untrusted here.
"""
