"""Repositories, one module for each kind of record.

Storage that has several implementations (sign-ins, listings, pins, results, approvals) is declared as a
protocol by the package that needs it, which documents the methods. Repositories run statements through
``sql.executor`` and import no other part of the store except the change feed and the locks. Start with
``registry`` for a typical one, and ``chats`` for the most complex one.
"""
