"""What clients see: tools, prompts and resources with their names, pages, limits and repairs."""
