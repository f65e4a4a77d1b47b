"""Composition root: builds the services of a process from configuration and settings.

It may import every package except the interfaces (``gateway``, ``web``, ``cli``, ``library``),
which import it. Start with ``composition.build_core``, which every interface uses. ``chat_services`` adds
what an interface with chats and a database needs; ``services.Services`` is that of the web app, and
``chat_services.LocalChats`` that of a terminal.
"""
