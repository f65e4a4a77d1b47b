"""MCP messages without I/O: framing, JSON, JSON-RPC, and the requests and results of both protocol eras.

Imports nothing else of Toolyard. Start with ``jsonrpc``, then ``client`` and ``server`` for the two
roles, and ``framing``, which splits bytes into messages.
"""
