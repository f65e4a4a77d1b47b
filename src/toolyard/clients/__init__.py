"""Connections to servers, and many of them: lazy, shared, recovered, closed for certain."""

from toolyard.clients.callbacks import Callbacks
from toolyard.clients.connection import Connection
from toolyard.clients.handshake import EraMemory, Eras
from toolyard.clients.manager import ClientManager
from toolyard.clients.pagination import Listing

__all__ = ["Callbacks", "ClientManager", "Connection", "EraMemory", "Eras", "Listing"]
