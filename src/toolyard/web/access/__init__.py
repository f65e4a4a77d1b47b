"""Who makes a request: dependencies of routes, cookies, host names, request context."""
