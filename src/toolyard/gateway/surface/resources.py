"""Resources: listed, read and watched, under URIs that each mean one server's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

from toolyard.errors import RpcError
from toolyard.gateway.caller_view import Offering
from toolyard.gateway.client_request import Request
from toolyard.gateway.error_responses import Refusal, no_method, no_resource
from toolyard.gateway.input_required.rounds import Rounds
from toolyard.gateway.surface.paging import page
from toolyard.gateway.surface.resource_uris import Places
from toolyard.gateway.surface.result_links import read_kept
from toolyard.protocol.constants import INVALID_PARAMS
from toolyard.types.server import Server

__all__ = ["Resources"]

_Listed: TypeAlias = Sequence[tuple[Server, Sequence[dict[str, Any]]]]
_NONE: Sequence[dict[str, Any]] = ()
_NOT_FOUND = -32002
"""What the legacy era says of a resource that there is not; the modern era has no such code."""


class Resources:
    """The resources of one front."""

    def __init__(self, offering: Offering, rounds: Rounds) -> None:
        self._offering = offering
        self._rounds = rounds
        self._known: tuple[_Listed, _Listed, Places] | None = None

    async def list(self, request: Request) -> dict[str, Any]:
        """``resources/list``, each server's in its own order."""
        if self._offering.only is None:
            return page("resources", (await self._places()).listed, request.params)
        found = await self._listed("resources/list")
        return page("resources", [each for _, listed in found for each in listed], request.params)

    async def list_templates(self, request: Request) -> dict[str, Any]:
        """``resources/templates/list``."""
        if self._offering.only is None:
            return page("resourceTemplates", (await self._places()).listed_templates, request.params)
        found = await self._listed("resources/templates/list")
        return page("resourceTemplates", [each for _, listed in found for each in listed], request.params)

    async def read(self, request: Request) -> dict[str, Any]:
        """``resources/read``. What comes back keeps the server's own URIs."""
        uri = request.params.get("uri")
        if (kept := await read_kept(uri, self._offering)) is not None:
            return kept
        server_id, own = await self.place(uri)
        try:
            return await self._rounds.run(
                request, lambda send: send(server_id, "resources/read", {"uri": own}, repeatable=True)
            )
        except RpcError as error:
            if request.modern and error.code == _NOT_FOUND:
                raise no_resource(str(uri)) from None
            raise

    async def complete(self, request: Request, ref: dict[str, Any]) -> dict[str, Any]:
        """``completion/complete`` for a variable of a template."""
        uri = ref.get("uri")
        if not isinstance(uri, str):
            raise Refusal(INVALID_PARAMS, "the URI of ref is no string")
        if self._offering.only is not None:
            found = (self._offering.only, uri)
        else:
            found = (await self._places()).find_template(uri)
        server_id, own = found or await self.place(uri)
        params = {key: value for key, value in request.params.items() if key in ("argument", "context")}
        params["ref"] = {**ref, "uri": own}
        return await self._rounds.run(
            request, lambda send: send(server_id, "completion/complete", params, repeatable=True)
        )

    async def subscribe(self, request: Request) -> dict[str, Any]:
        """``resources/subscribe``, of the legacy era. Raises Refusal where there is no session to tell."""
        if request.session is None or request.session.watch is None:
            raise no_method(request.method)
        server_id, own = await self.place(request.params.get("uri"))
        hub = self._offering.gateway.hub
        await hub.subscribe(request.session.watch, server_id, own, request.params["uri"])
        return {}

    async def unsubscribe(self, request: Request) -> dict[str, Any]:
        """``resources/unsubscribe``."""
        if request.session is None or request.session.watch is None:
            raise no_method(request.method)
        server_id, own = await self.place(request.params.get("uri"))
        await self._offering.gateway.hub.unsubscribe(request.session.watch, server_id, own)
        return {}

    async def place(self, uri: object) -> tuple[str, str]:
        """The server of a resource, and the server's own URI. Raises Refusal."""
        if not isinstance(uri, str) or not uri:
            raise Refusal(INVALID_PARAMS, "uri is no string")
        if self._offering.only is not None:
            if not await self._servers():
                raise no_resource(uri)
            return self._offering.only, uri
        found = (await self._places()).find(uri)
        if found is None and self._offering.is_waiting:
            found = (await self._places(patient=True)).find(uri)
        if found is None and len(servers := await self._servers()) == 1:
            # Where one server alone has any, it may have some that it does not list.
            found = servers[0].id, uri
        if found is None:
            raise no_resource(uri)
        return found

    async def _places(self, *, patient: bool = False) -> Places:
        """Where they are; made anew only where a server lists anything else."""
        methods = ("resources/list", "resources/templates/list")
        there, ways = await asyncio.gather(*(self._listed(each, patient=patient) for each in methods))
        known = self._known
        if known is None or not (_is_same(known[0], there) and _is_same(known[1], ways)):
            known = self._known = there, ways, Places.of(there, ways)
        return known[2]

    async def _listed(self, method: str, *, patient: bool = False) -> _Listed:
        offering = self._offering
        shelves, waits = offering.gateway.shelves, patient or offering.only is not None

        async def ask(server: Server) -> Sequence[dict[str, Any]]:
            try:
                return (await shelves.get(server, method, offering.principal, patient=waits)).items
            except RpcError:
                # Many servers have resources and no templates, and say so with an error.
                if method == "resources/templates/list":
                    return _NONE
                raise

        return await offering.each(await self._servers(patient=patient), ask)

    async def _servers(self, *, patient: bool = False) -> list[Server]:
        """Those that have resources. One server may have none, and its address has ours all the same. Raises
        Refusal."""
        try:
            return await self._offering.servers_with("resources", patient=patient)
        except Refusal:
            if "resources" not in await self._offering.capabilities():
                raise
            return []


def _is_same(one: _Listed, other: _Listed) -> bool:
    """Whether these are the very same lists of the same servers."""
    return len(one) == len(other) and all(
        a[0] is b[0] and a[1] is b[1] for a, b in zip(one, other, strict=True)
    )
