"""The web application: HTML pages, the JSON API and the gateway, on top of the core.

May import every other package except ``cli``. Start with ``app.py``, which puts the routes together, and
``service_dependencies.py``, which has the services that handlers can declare as parameters.
"""
