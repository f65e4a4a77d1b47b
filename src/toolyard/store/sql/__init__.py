"""SQL layer of the store: connections, executor, tables, encryption and migrations.

Imports SQLAlchemy and the database drivers, and no repository. Start with ``open``, which prepares a
database, and ``executor``, which runs every statement.
"""
