"""Pages for admins: people and the audit log. The registry has its own package."""
