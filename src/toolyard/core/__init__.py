"""Composition root: builds the services of a process from configuration and settings.

It may import every package except the interfaces (``gateway``, ``web``, ``cli``, the library's ``yard``),
which import it. Start with ``composition.build_core``, which every interface uses, and
``services.Services``, which adds the services of a process with a database.
"""
