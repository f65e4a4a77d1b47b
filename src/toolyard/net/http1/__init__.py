"""HTTP/1.1 over connections made by aiohttp: connection, response, pool and gzip bodies.

Used for requests to MCP servers, because aiohttp's own client takes a quarter to a third of the CPU time of a
proxied call (docs/decisions/0023). Sign-in and web_fetch use aiohttp's session.
Start with ``pool.OriginPool``.
"""
