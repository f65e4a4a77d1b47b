"""The HTTP server process: listening socket, run loop, background work, health checks, metrics and logs.

Only ``background_work.py``, ``invalidation.py`` and ``health.py`` depend on the application; the rest serves
any ASGI app. Start with ``run.py``.
"""
