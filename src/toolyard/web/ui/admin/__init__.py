"""Pages for admins: people and the audit log."""
