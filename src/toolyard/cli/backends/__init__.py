"""The Toolyards that commands can work on: one in this process, the one in the background, or a remote one.

``backend`` declares the interface and its requests and reports, so that a command is written once. ``local``,
``background`` and ``remote`` implement it, and ``selection`` chooses.
"""
