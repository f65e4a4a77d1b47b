"""Servers in the web app: status, previews and icons, adding them, signing in, and changes of their tools.

Shared by the API and the pages. Start with ``status.py``.
"""
