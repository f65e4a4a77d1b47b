"""Toolyard: one place to connect, scope, authorise and watch every MCP server that your agents use."""

__version__ = "0.1.0"
