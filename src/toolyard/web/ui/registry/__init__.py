"""Pages about servers, of the registry and of the configuration files."""
