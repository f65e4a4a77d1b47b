"""MCP as messages, without I/O: plain data in, plain data out, for both eras and both directions."""
