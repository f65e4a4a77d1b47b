"""Commands for the database of a server: its tables, its secret key, and the move to PostgreSQL."""
