"""Repositories, one module for each kind of record.

They implement storage protocols that other packages declare; a method's contract is documented in its
protocol. They run statements through ``sql.executor`` and import no other part of the store except the change
feed and the locks. Start with ``registry`` for a typical one, and ``chats`` for the most complex one.
"""
