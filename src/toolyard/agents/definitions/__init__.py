"""Agent definitions in AGENTS.md.

``agents_md`` parses the file with the help of ``sections``, ``front_matter`` and ``tool_patterns``; ``watch``
reloads it on changes, and ``pattern_check`` compares tool patterns with the existing tools. May import
``config``, ``policy``, ``errors`` and ``types``.
"""
