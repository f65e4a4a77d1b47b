"""Authentication of requests: route dependencies, cookies and the request context.

Imports no routes and no services at run time. Start with ``authentication.py``.
"""
