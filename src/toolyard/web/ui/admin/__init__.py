"""Pages for admins: people, models and the audit log. The registry has its own package."""
