"""Locks between tasks, processes and replicas.

``refresh_locks`` combines an asyncio lock with a lock between processes: ``file_locks`` for SQLite and
``advisory`` for PostgreSQL. Both kinds end with the process that holds them.
"""
