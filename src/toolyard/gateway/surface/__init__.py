"""The surface offered to clients: tools, prompts and resources with names, pages, limits and repairs."""
