"""The only client of a gateway over standard streams: servers are told exactly what it can do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from toolyard.clients import Callbacks
from toolyard.clients.callbacks import CapabilityNotOffered
from toolyard.gateway.client_request import LegacySession, forwardable_capabilities
from toolyard.types.account import Principal

__all__ = ["SoleClient"]


class SoleClient:
    """Client that all calls belong to, and that answers all questions of servers."""

    key = "client"

    def __init__(self) -> None:
        self.session: LegacySession | None = None
        self._capabilities: dict[str, Any] = {}
        """Declared to servers that are connected from now on."""

    def declare(self, capabilities: Mapping[str, Any]) -> bool:
        """Set the capabilities of the client. Return True if servers may have been told others before."""
        new = forwardable_capabilities(capabilities)
        if new == self._capabilities:
            return False
        self._capabilities.clear()
        self._capabilities.update(new)
        return True

    def callbacks_for(self, principal: Principal, chat: str | None) -> Callbacks:
        """Return the callbacks of all connections."""
        return Callbacks(
            elicitation=partial(self._ask, "elicitation/create"),
            sampling=partial(self._ask, "sampling/createMessage"),
            roots=partial(self._ask, "roots/list"),
            # The same object, so that a connect declares the capabilities of that time.
            offers=self._capabilities,
        )

    async def _ask(self, method: str, server_id: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a request that belongs to no call, such as one for roots after the handshake."""
        if self.session is not None and self.session.client.ask is not None:
            return await self.session.client.ask(server_id, method, params)
        raise CapabilityNotOffered(method)
