"""Sources of configuration: discovery, JSON with positions, variables, layers and their merge."""
