"""Connections to servers, and many of them: lazy, shared, recovered, closed for certain."""

from toolyard.clients.callbacks import Callbacks
from toolyard.clients.connection import Connection
from toolyard.clients.handshake import EraCache, EraStore
from toolyard.clients.manager import ConnectionManager
from toolyard.clients.pagination import PagedList

__all__ = ["Callbacks", "Connection", "ConnectionManager", "EraCache", "EraStore", "PagedList"]
