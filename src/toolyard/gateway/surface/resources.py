"""Resources: list, read and subscribe, under unambiguous URIs.

A resource keeps its URI if only one server has it; otherwise it gets its server's prefix,
``toolyard://{server}/{uri}``. Under the prefix every resource of a server can be read, listed or not. A URI
is resolved by exact match first, then by known prefixes, then by the servers' templates.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolyard.errors import RpcError
from toolyard.gateway.caller_view import CallerView
from toolyard.gateway.error_responses import RpcErrorResponse, method_not_found, resource_not_found
from toolyard.gateway.incoming_request import ClientRequest
from toolyard.gateway.input_required.rounds import InputRequiredRunner
from toolyard.gateway.surface.list_repair import paginate_items
from toolyard.gateway.surface.result_limits import read_stored_result
from toolyard.protocol.constants import INVALID_PARAMS, RESOURCE_NOT_FOUND
from toolyard.types.server import Server

__all__ = ["ResourceHandlers", "ResourceMap"]


_TEMPLATE_VARIABLE = re.compile(r"\{[^{}]*\}")
_MAX_URI_CHARACTERS = 8192
_MAX_TEMPLATE_CHARACTERS = 2_000
"""Templates that are longer match no URI. To split one of megabytes would block all threads."""
_TOOLYARD_SCHEME = "toolyard://"


@dataclass(frozen=True, slots=True)
class ResourceMap:
    """Resolves exposed URIs: exact, by prefix and by template."""

    by_uri: Mapping[str, tuple[str, str]]
    prefixes: Mapping[str, str]
    """Prefixes by server."""
    templates: Sequence[tuple[str, Sequence[str], str, str]]
    """Server, the literal pieces between the variables, its own template, and the exposed one."""
    exposed_resources: Sequence[Mapping[str, Any]]
    exposed_templates: Sequence[Mapping[str, Any]]

    @classmethod
    def from_listings(
        cls,
        resources: Sequence[tuple[Server, Sequence[Mapping[str, Any]]]],
        templates: Sequence[tuple[Server, Sequence[Mapping[str, Any]]]],
    ) -> ResourceMap:
        """Build the map for the resources of many servers."""
        servers = {server.id: server for server, _ in (*resources, *templates)}
        prefixes = _build_prefixes(servers.values())
        resource_uris = list(_expose_uris(resources, "uri", prefixes))
        template_uris = list(_expose_uris(templates, "uriTemplate", prefixes))
        return cls(
            {name: (server_id, uri) for server_id, uri, name, _ in resource_uris},
            prefixes,
            [(server_id, _split_template(uri), uri, name) for server_id, uri, name, _ in template_uris],
            [shown for *_, shown in resource_uris],
            [shown for *_, shown in template_uris],
        )

    def find(self, uri: str) -> tuple[str, str] | None:
        """Return the server and its own URI, or None if no server or several could have it."""
        if (found := self.by_uri.get(uri)) is not None:
            return found
        for server_id, prefix in self.prefixes.items():
            if uri.startswith(prefix):
                return server_id, uri.removeprefix(prefix)
        if len(uri) > _MAX_URI_CHARACTERS:
            return None
        owners = {server_id for server_id, pieces, _, _ in self.templates if _matches_template(pieces, uri)}
        return (owners.pop(), uri) if len(owners) == 1 else None

    def find_template(self, uri: str) -> tuple[str, str] | None:
        """Return the server and its own template for an exposed template."""
        for server_id, _, own, name in self.templates:
            if name == uri:
                return server_id, own
        return None


def _expose_uris(
    listings: Sequence[tuple[Server, Sequence[Mapping[str, Any]]]], key: str, prefixes: Mapping[str, str]
) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Yield the server of each item with a URI at ``key``, that URI, the exposed one, and the item with it.

    A URI stays unprefixed if no other server has it, and it does not look like one of ours.
    """
    counts = Counter(uri for _, listed in listings for uri in {_get_text(each, key) for each in listed})
    for server, listed in listings:
        for each in listed:
            if uri := _get_text(each, key):
                is_plain = counts[uri] == 1 and not uri.startswith(_TOOLYARD_SCHEME)
                name = uri if is_plain else prefixes[server.id] + uri
                yield server.id, uri, name, each if name == uri else {**each, key: name}


def _split_template(template: str) -> Sequence[str]:
    """Return the literal pieces between the variables."""
    is_short = len(template) <= _MAX_TEMPLATE_CHARACTERS
    return _TEMPLATE_VARIABLE.split(template) if is_short else [template]


def _build_prefixes(servers: Iterable[Server]) -> dict[str, str]:
    # Ids, user names and slugs contain no characters that need quoting but '@' and '/'. An instance is
    # labelled by its slug; two equal labels are replaced by the whole ids.
    labels = {server.id: server.id if server.instance is None else server.instance.slug for server in servers}
    many = Counter(labels.values())
    return {
        server_id: f"{_TOOLYARD_SCHEME}{label if many[label] == 1 else server_id}/"
        for server_id, label in labels.items()
    }


def _matches_template(pieces: Sequence[str], uri: str) -> bool:
    """Return whether a URI matches a template: its literal pieces in order, with any text between them.

    The pieces are searched one after the other, because a regular expression would backtrack over all
    possible positions.
    """
    first, *middle = pieces
    if not middle:
        return uri == first
    last = middle.pop()
    place, end = len(first), len(uri) - len(last)
    if place > end or not uri.startswith(first) or not uri.endswith(last):
        return False
    for piece in middle:
        if (found := uri.find(piece, place, end)) < 0:
            return False
        place = found + len(piece)
    return True


def _get_text(item: Mapping[str, Any], key: str) -> str | None:
    value = item.get(key)
    return value if isinstance(value, str) and value else None


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
            items = (await self._fetch_resource_map()).exposed_resources
        else:
            items = await self._list_from_only_server("resources/list")
        return paginate_items("resources", items, request.params)

    async def list_templates(self, request: ClientRequest) -> dict[str, Any]:
        """Handle ``resources/templates/list``."""
        if self._view.only_server_id is None:
            items = (await self._fetch_resource_map()).exposed_templates
        else:
            items = await self._list_from_only_server("resources/templates/list")
        return paginate_items("resourceTemplates", items, request.params)

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
        found = await _find_resource(await self._fetch_resource_map(), uri)
        if found is None and self._view.has_pending_listings:
            found = await _find_resource(await self._fetch_resource_map(wait_for_all=True), uri)
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

    async def _list_from_only_server(self, method: str) -> list[dict[str, Any]]:
        return [each for _, listed in await self._list_from_servers(method) for each in listed]

    async def _servers_with_resources(self, *, wait_for_all: bool = False) -> list[Server]:
        """Return the servers with resources. At the address of one server there may be none, since stored
        results are resources too. Raises RpcErrorResponse."""
        try:
            return await self._view.servers_with_capability("resources", wait_for_all=wait_for_all)
        except RpcErrorResponse:
            if "resources" not in await self._view.capabilities():
                raise
            return []


async def _find_resource(resource_map: ResourceMap, uri: str) -> tuple[str, str] | None:
    # Servers may list thousands of templates that match many URIs.
    return resource_map.by_uri.get(uri) or await asyncio.to_thread(resource_map.find, uri)


def _is_same_listing(one: _ServerListings, other: _ServerListings) -> bool:
    """Return whether these are the identical list objects of the same servers."""
    return len(one) == len(other) and all(
        a[0] is b[0] and a[1] is b[1] for a, b in zip(one, other, strict=True)
    )
