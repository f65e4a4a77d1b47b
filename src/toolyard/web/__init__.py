"""The web application: HTML pages, the JSON API and the gateway, on top of the core.

May import every other package except ``cli``. Start with ``app.py``, the only module that holds all services,
and ``service_dependencies.py``, which has the services that handlers can declare as parameters.
"""
