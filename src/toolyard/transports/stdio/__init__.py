"""The stdio transport: child processes, their supervisor, and the watchdog that outlives this process.

Start with ``transport.StdioTransport``; ``supervisor`` explains how all processes of a server are found and
ended.
"""
