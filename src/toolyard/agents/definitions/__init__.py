"""Agent definitions in AGENTS.md.

``agents_md`` parses the file with the help of ``sections``, ``front_matter`` and ``tools_list``, which
also compares tool patterns with the existing tools; ``watch`` reloads the file on changes. May import
``config``, ``policy``, ``errors`` and ``types``.
"""
