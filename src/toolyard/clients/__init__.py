"""MCP client side: sessions, connections with recovery, and the call path that applies policy.

May import ``protocol``, ``transports``, ``net``, ``types``, ``policy``, ``catalog`` and ``results``, but no
interface (``cli``, ``web``, ``gateway``). Start with ``call_path.CallPath`` for the path of a tool call,
then ``manager.ConnectionManager``, ``connection.Connection`` and ``session.McpSession``, in this order.
"""

from toolyard.clients.callbacks import Callbacks
from toolyard.clients.connection import Connection
from toolyard.clients.handshake import EraCache, EraStore
from toolyard.clients.manager import ConnectionManager
from toolyard.clients.pagination import PagedList

__all__ = ["Callbacks", "Connection", "ConnectionManager", "EraCache", "EraStore", "PagedList"]
