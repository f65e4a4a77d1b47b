"""Pages about servers from the registry and from configuration files."""
