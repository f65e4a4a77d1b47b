"""Resources: list, read and subscribe, under unambiguous URIs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

from toolyard.errors import RpcError
from toolyard.gateway.caller_view import CallerView
from toolyard.gateway.client_request import ClientRequest
from toolyard.gateway.error_responses import RpcErrorResponse, method_not_found, resource_not_found
from toolyard.gateway.input_required.rounds import InputRequiredRunner
from toolyard.gateway.surface.paging import paginate_items
from toolyard.gateway.surface.resource_uris import ResourceMap
from toolyard.gateway.surface.result_links import read_stored_result
from toolyard.protocol.constants import INVALID_PARAMS, RESOURCE_NOT_FOUND
from toolyard.types.server import Server

__all__ = ["ResourceHandlers"]

_ServerListings: TypeAlias = Sequence[tuple[Server, Sequence[dict[str, Any]]]]
_NO_TEMPLATES: Sequence[dict[str, Any]] = ()


class ResourceHandlers:
    """Resource requests of one endpoint."""

    def __init__(self, view: CallerView, runner: InputRequiredRunner) -> None:
        self._view = view
        self._runner = runner
        self._resource_map_memo: tuple[_ServerListings, _ServerListings, ResourceMap] | None = None

    async def list(self, request: ClientRequest) -> dict[str, Any]:
        """Handle ``resources/list``; the resources of each server keep their order."""
        if self._view.only_server_id is None:
            return paginate_items(
                "resources", (await self._fetch_resource_map()).exposed_resources, request.params
            )
        found = await self._list_from_servers("resources/list")
        return paginate_items("resources", [each for _, listed in found for each in listed], request.params)

    async def list_templates(self, request: ClientRequest) -> dict[str, Any]:
        """Handle ``resources/templates/list``."""
        if self._view.only_server_id is None:
            return paginate_items(
                "resourceTemplates", (await self._fetch_resource_map()).exposed_templates, request.params
            )
        found = await self._list_from_servers("resources/templates/list")
        return paginate_items(
            "resourceTemplates", [each for _, listed in found for each in listed], request.params
        )

    async def read(self, request: ClientRequest) -> dict[str, Any]:
        """Handle ``resources/read``. The result keeps the server's own URIs."""
        uri = request.params.get("uri")
        if (kept := await read_stored_result(uri, self._view)) is not None:
            return kept
        server_id, own = await self.locate(uri)
        try:
            return await self._runner.forward(request, server_id, "resources/read", {"uri": own})
        except RpcError as error:
            if RESOURCE_NOT_FOUND == error.code != request.era.resource_not_found_code:
                raise resource_not_found(str(uri)) from None
            raise

    async def complete(self, request: ClientRequest, ref: dict[str, Any]) -> dict[str, Any]:
        """Handle ``completion/complete`` for a variable of a template."""
        uri = ref.get("uri")
        if not isinstance(uri, str):
            raise RpcErrorResponse(INVALID_PARAMS, "the uri of ref must be a string")
        if self._view.only_server_id is not None:
            found = (self._view.only_server_id, uri)
        else:
            found = (await self._fetch_resource_map()).find_template(uri)
        server_id, own = found or await self.locate(uri)
        params = {key: value for key, value in request.params.items() if key in ("argument", "context")}
        params["ref"] = {**ref, "uri": own}
        return await self._runner.forward(request, server_id, "completion/complete", params)

    async def subscribe(self, request: ClientRequest) -> dict[str, Any]:
        """Handle ``resources/subscribe``. Raises RpcErrorResponse without a session."""
        if request.session is None or request.session.subscription is None:
            raise method_not_found(request.method)
        server_id, own = await self.locate(request.params.get("uri"))
        hub = self._view.gateway.client_subscriptions
        await hub.subscribe(request.session.subscription, server_id, own, request.params["uri"])
        return {}

    async def unsubscribe(self, request: ClientRequest) -> dict[str, Any]:
        """Handle ``resources/unsubscribe``."""
        if request.session is None or request.session.subscription is None:
            raise method_not_found(request.method)
        server_id, own = await self.locate(request.params.get("uri"))
        await self._view.gateway.client_subscriptions.unsubscribe(
            request.session.subscription, server_id, own
        )
        return {}

    async def locate(self, uri: object) -> tuple[str, str]:
        """Return the server of a resource, and the server's own URI. Raises RpcErrorResponse."""
        if not isinstance(uri, str) or not uri:
            raise RpcErrorResponse(INVALID_PARAMS, "uri must be a string")
        if self._view.only_server_id is not None:
            if not await self._servers_with_resources():
                raise resource_not_found(uri)
            return self._view.only_server_id, uri
        found = (await self._fetch_resource_map()).find(uri)
        if found is None and self._view.has_pending_listings:
            found = (await self._fetch_resource_map(wait_for_all=True)).find(uri)
        if found is None and len(servers := await self._servers_with_resources()) == 1:
            # If only one server has resources, it may have some that it does not list.
            found = servers[0].id, uri
        if found is None:
            raise resource_not_found(uri)
        return found

    async def _fetch_resource_map(self, *, wait_for_all: bool = False) -> ResourceMap:
        """Return the map of resources, rebuilt only if a server's list has changed."""
        methods = ("resources/list", "resources/templates/list")
        there, ways = await asyncio.gather(
            *(self._list_from_servers(each, wait_for_all=wait_for_all) for each in methods)
        )
        known = self._resource_map_memo
        if known is None or not (_is_same_listing(known[0], there) and _is_same_listing(known[1], ways)):
            # In a thread, because servers may list tens of thousands of resources.
            built = await asyncio.to_thread(ResourceMap.from_listings, there, ways)
            known = self._resource_map_memo = there, ways, built
        return known[2]

    async def _list_from_servers(self, method: str, *, wait_for_all: bool = False) -> _ServerListings:
        offering = self._view
        shelves, waits = offering.gateway.listing_cache, wait_for_all or offering.only_server_id is not None

        async def list_items(server: Server) -> Sequence[dict[str, Any]]:
            try:
                return (await shelves.get(server, method, offering.principal, wait=waits)).items
            except RpcError:
                # Many servers have resources but no templates, and answer with an error.
                if method == "resources/templates/list":
                    return _NO_TEMPLATES
                raise

        return await offering.query_servers(
            await self._servers_with_resources(wait_for_all=wait_for_all), list_items
        )

    async def _servers_with_resources(self, *, wait_for_all: bool = False) -> list[Server]:
        """Return the servers with resources. At the address of one server there may be none, since stored
        results are resources too. Raises RpcErrorResponse."""
        try:
            return await self._view.servers_with_capability("resources", wait_for_all=wait_for_all)
        except RpcErrorResponse:
            if "resources" not in await self._view.capabilities():
                raise
            return []


def _is_same_listing(one: _ServerListings, other: _ServerListings) -> bool:
    """Return whether these are the identical list objects of the same servers."""
    return len(one) == len(other) and all(
        a[0] is b[0] and a[1] is b[1] for a, b in zip(one, other, strict=True)
    )
