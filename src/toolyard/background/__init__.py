"""The Toolyard that all local clients share: a background process, and the shim through which they reach it.

``toolyard stdio`` runs ``shim``, which copies between a client and a connection that ``link`` makes. ``link``
connects over a Unix socket, and starts the background process if none runs (``runtime_dir``). ``server``
accepts clients in the background process, ``attached_client_handler`` serves one, ``shared_cores`` has the
cores that they share, and ``web_app`` the pages. ``attach_protocol`` is the format of the messages on the
socket. ``foreground_server`` serves the clients from ``toolyard serve`` instead, while that runs.

``shim``, ``link``, ``attach_protocol`` and ``runtime_dir`` start with every client, so they import only
modules that an interpreter has loaded already or that are written in C. This package may be imported by
``cli``.
"""
