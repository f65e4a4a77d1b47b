"""ASGI middleware: request guard, authentication before bodies are read, and body limits.

Imports ``web.access`` and the problem details, but no routes. Start with ``request_guard.py``, which every
request passes first.
"""
