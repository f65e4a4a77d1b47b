"""The database itself: executor, dialects, tables, encryption, migrations."""
