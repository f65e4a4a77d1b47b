"""What all fronts of one process share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import Any

from toolyard import __version__
from toolyard.clients.deferred_listings import Key
from toolyard.core.composition import Parts
from toolyard.gateway.client_subscriptions import Hub
from toolyard.gateway.input_required.approvals import Approvals
from toolyard.gateway.input_required.remote_calls import Handing, Mail
from toolyard.gateway.input_required.request_state import Sealer
from toolyard.gateway.input_required.suspended_call import ParkedCalls
from toolyard.gateway.surface.list_repair import tool
from toolyard.gateway.surface.listing_cache import Shelves
from toolyard.gateway.upstream import Upstream
from toolyard.protocol.codec import Written, written
from toolyard.types.principal import Principal
from toolyard.types.tool import Definition

__all__ = ["OURSELVES", "Gateway"]

OURSELVES: Mapping[str, Any] = {"name": "toolyard", "title": "Toolyard", "version": __version__}
"""Who we say that we are, where we speak for more than one server."""

_WRITTEN = 50_000
"""Tools that are kept as they are sent."""


class Gateway:
    """Made once for a process, before anything is connected; ``close`` comes before the parts close."""

    def __init__(
        self,
        parts: Parts,
        sealer: Sealer | None = None,
        approvals: Approvals | None = None,
        mail: Mail | None = None,
    ) -> None:
        """``approvals`` is what the parts' call path asks, where clients can be asked themselves. ``mail``
        goes to other processes, where there may be some."""
        self.parts = parts
        self.approvals = approvals
        self.sealer = sealer or Sealer()
        self.upstream = Upstream(parts.manager)
        self.parked = ParkedCalls()
        self.handing = Handing(self.parked, mail, parts.calls.hush)
        self.shelves = Shelves(parts.manager, self._tell)
        self.changed: dict[str, float] = {}
        """When servers last said that their tools changed, in seconds since the epoch."""
        # Emptied before anybody is told, so that whoever asks at once gets the new list.
        self._unheard = parts.manager.hear(self._heard)
        self._untold = parts.rosters.late.hear(self._came)
        self.hub = Hub(parts.manager)
        self.closing = asyncio.Event()
        self._written: dict[tuple[str, str, bool], tuple[Definition, Written]] = {}

    def written(self, name: str, definition: Definition, *, modern: bool) -> Written:
        """A tool as its server published it, but for the name and what clients of this era could not read;
        written once for all who list it."""
        key = (definition.server_id, name, modern)
        known = self._written.get(key)
        if known is None or known[0] is not definition:
            raw = tool(definition.raw, modern=modern)
            known = (definition, written(raw if raw.get("name") == name else {**raw, "name": name}))
            if len(self._written) >= _WRITTEN:
                self._written.clear()
            self._written[key] = known
        return known[1]

    def servers_changed(self, principal: Principal | None, server_ids: Collection[str]) -> None:
        """Other definitions of these servers count, for one principal or for everyone: whoever watches is
        told, and nothing is kept of those that are gone."""
        gone = {id for id in server_ids if id not in self.parts.manager.servers}
        if gone:
            self._forget(gone)
        self.hub.servers_changed(principal, server_ids)

    def _forget(self, server_ids: Collection[str]) -> None:
        for server_id in server_ids:
            self.changed.pop(server_id, None)
        for key in [key for key in self._written if key[0] in server_ids]:
            del self._written[key]
        self.shelves.forget(server_ids)
        self.upstream.forget(server_ids)

    def _heard(self, server_id: str, principal_id: str, method: str, params: Mapping[str, Any]) -> None:
        self.shelves.heard(server_id, principal_id, method, params)
        if method == "notifications/tools/list_changed" and server_id in self.parts.manager.servers:
            self.changed[server_id] = time.time()

    def _tell(self, server_id: str, principal_id: str, method: str, params: Mapping[str, Any]) -> None:
        self.hub.heard(server_id, principal_id, method, params)

    def _came(self, key: Key) -> None:
        """A server was listed, after somebody had a list without it."""
        principal_id, server_id, _ = key
        self.hub.servers_changed(Principal(principal_id), (server_id,))

    async def close(self) -> None:
        """End what waits for clients, and the streams that they listen to."""
        self.closing.set()
        await self.parked.close()
        await self.handing.close()
        self._untold()
        await self.hub.close()
        self._unheard()
