"""HTTP/1.1 on plain connections: request and response, connection pool, gzip bodies."""
