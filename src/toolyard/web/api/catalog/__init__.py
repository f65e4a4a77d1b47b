"""Routes for well-known servers, and for servers that people propose."""
