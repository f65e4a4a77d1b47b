"""Pages about one tool, and forms made from its JSON Schema."""
