"""The gateway: every server that a caller may use, behind one MCP endpoint, in both protocol eras.

``endpoint`` answers the requests of one caller; start reading there. ``surface/`` holds the offered tools,
prompts, resources and names, ``input_required/`` calls that need input or approval in the middle,
``http/`` and ``stdio/`` the two transports. ``subscriptions`` forwards notifications. The package imports
everything but ``web`` and ``cli``.
"""
