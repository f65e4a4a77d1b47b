"""Locks between tasks, processes and replicas.

``refresh_locks`` combines an asyncio lock with a lock between processes: ``file_locks`` for SQLite, advisory
locks for PostgreSQL. Both kinds end with the process that holds them.
"""
