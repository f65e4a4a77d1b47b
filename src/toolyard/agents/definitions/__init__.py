"""Agent definitions: AGENTS.md, its sections, front matter and tool patterns, and a watch on the file."""
