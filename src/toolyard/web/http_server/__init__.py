"""The HTTP server process: start-up, listening socket, run loop, health checks, metrics and logs.

Only ``startup.py`` and ``health.py`` depend on the application; the rest serves any ASGI app. Start with
``startup.py``.
"""
