"""Who is calling: modes, roles, sessions, API tokens."""
