"""A caller's view of the servers: the reachable ones, their capabilities, and our own server info.

The callers behind an address or a command are built here, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from toolyard.catalog.tool_listing import ToolListing
from toolyard.errors import ServerError, ToolyardError
from toolyard.gateway.error_responses import method_not_found
from toolyard.gateway.gateway import SERVER_INFO, Gateway
from toolyard.gateway.surface.list_repair import repair_server_info
from toolyard.policy import select_bundles
from toolyard.policy.agent_patterns import ToolPatterns, compile_patterns
from toolyard.types.account import LOCAL_PRINCIPAL, Principal, Right, TokenScope
from toolyard.types.agent import Agent
from toolyard.types.call import Caller, Surface
from toolyard.types.json_values import object_or_empty
from toolyard.types.server import Bundle, Server, Trust
from toolyard.types.timestamps import is_future
from toolyard.types.tool import Catalogue, Definition

__all__ = ["CallerView", "gateway_caller", "is_current", "limit_scope_to_server"]


T = TypeVar("T")

_ALL_CAPABILITIES: Mapping[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}
_CAPABILITY_FLAGS = {
    "tools": ("listChanged",),
    "prompts": ("listChanged",),
    "resources": ("subscribe", "listChanged"),
}
_LIST_RETRY_SECONDS = 10.0
"""Delay before a server that could not be listed is tried again."""
_MAX_INSTRUCTIONS_CHARACTERS = 4000
"""Maximum length of one server's instructions, where those of several servers are combined."""


class CallerView:
    """The view of one caller: of all servers, or only of the server ``only``."""

    def __init__(self, gateway: Gateway, caller: Caller, only_server_id: str | None) -> None:
        self.gateway = gateway
        self.caller = caller
        self.principal = caller.principal
        self.only_server_id = only_server_id
        self._last_listed_at = -_LIST_RETRY_SECONDS
        """Time of the last listing, on the monotonic clock."""
        self._tool_patterns = _collect_tool_patterns(caller)
        self._servers_with_allowed_tools: tuple[Mapping[str, Definition], Mapping[str, bool]] = ({}, {})

    async def fetch_tool_listing(self, *, wait_for_all: bool = False) -> ToolListing:
        """Return the current tools; for many servers, cached ones and those that arrive before the deadline.

        With ``wait_for_all`` every server is awaited. For a single server, raises the ServerError that
        prevents listing it.
        """
        principal, only = self.principal, self.only_server_id
        listing = self.gateway.tool_directory.known_listing(principal)
        wanted = [
            server
            for server in self.gateway.manager.visible_servers(principal).values()
            if server.enabled and only in (None, server.id)
        ]
        old = [server for server in wanted if not self._is_fresh(server, listing)]
        if old:
            tool_directory = self.gateway.tool_directory
            waits = wait_for_all or only is not None
            ask = tool_directory.refresh if waits else tool_directory.refresh_within_deadline
            listing = await ask(principal, only=[server.id for server in old])
            if only is None:
                # A client that lists once, and does not listen for changes, would never see a tool.
                await tool_directory.deferred.wait_for_first(
                    principal.id,
                    lambda: any(
                        server.id in tool_directory.known_listing(principal).catalogues for server in wanted
                    ),
                )
                listing = await tool_directory.named_listing(principal)
            self._last_listed_at = time.monotonic()
        if only is not None and only not in listing.catalogues and only in listing.failures:
            raise listing.failures[only]
        return listing

    def missing_servers(self, method: str) -> dict[str, str]:
        """Return the servers whose part of a list is missing, each with the reason."""
        listing = self.gateway.tool_directory.known_listing(self.principal)
        late = self.gateway.listing_cache.pending_server_ids(self.principal.id, method)
        servers, missing = self.gateway.manager.visible_servers(self.principal), dict[str, str]()
        # Each page of a list asks, and nearly all servers are listed: only the others are looked at.
        for server_id in sorted((servers.keys() - listing.catalogues.keys()) | (servers.keys() & late)):
            if servers[server_id].enabled and self.can_see_server(server_id):
                failure = None if server_id in listing.catalogues else listing.failures.get(server_id)
                if failure is not None:
                    self.gateway.call_path.redact_error(failure)
                missing[server_id] = "has not answered yet" if failure is None else failure.cause
        return missing

    @property
    def has_pending_listings(self) -> bool:
        """Return whether a listing for this caller is still in progress."""
        id = self.principal.id
        return self.gateway.tool_directory.deferred.has_pending(id) or bool(
            self.gateway.listing_cache.pending_server_ids(id)
        )

    def _is_fresh(self, server: Server, listing: ToolListing) -> bool:
        """Return whether a server's listing can be used without fetching it again.

        A server that declares its list stale at once, as a library's default does, is fetched at the
        configured interval. One that cannot be listed is not tried again for every caller.
        """
        catalogue = listing.catalogues.get(server.id)
        if catalogue is None:
            return (
                server.id in listing.failures
                and time.monotonic() - self._last_listed_at < _LIST_RETRY_SECONDS
            )
        ttl = catalogue.listing.ttl
        max_age_seconds = server.cache_ttl if not ttl else min(ttl, server.cache_ttl)
        changed_at = self.gateway.tools_changed_at.get(server.id, 0.0)
        return is_current(catalogue.fetched_at, max_age_seconds, changed_at, time.time())

    def reachable_servers(self) -> list[Server]:
        """Return the servers that this caller reaches, in the order of their ids."""
        there = self.gateway.manager.visible_servers(self.principal)
        return [
            there[server_id]
            for server_id in sorted(there)
            if there[server_id].enabled and self.can_see_server(server_id)
        ]

    def can_see_server(self, server_id: str) -> bool:
        """Return whether this caller sees anything of a server.

        Where an agent or a token names tools, one of them must belong to the server: otherwise its prompts
        and resources stay hidden too.
        """
        if self.only_server_id not in (None, server_id) or not self.gateway.call_path.can_reach(
            server_id, self.caller
        ):
            return False
        return not self._tool_patterns or self._allows_any_tool(server_id)

    def _allows_any_tool(self, server_id: str) -> bool:
        """Return whether the tool patterns allow any known tool of a server, or could, if none is known."""
        tools = self.gateway.tool_directory.known_listing(self.principal).tools
        if self._servers_with_allowed_tools[0] is not tools:
            allowed: dict[str, bool] = {}
            for name, each in tools.items():
                allowed[each.server_id] = allowed.get(each.server_id, False) or self._allows_tool(name)
            self._servers_with_allowed_tools = tools, allowed
        found = self._servers_with_allowed_tools[1].get(server_id)
        return (
            self._allows_tool(f"{self.gateway.tool_directory.name_prefix(server_id)}any")
            if found is None
            else found
        )

    def _allows_tool(self, name: str) -> bool:
        return all(each.allows(name) for each in self._tool_patterns)

    async def connect_only_server(self) -> None:
        """Connect the server at once if the view has only one, so that its notifications arrive.

        Of several servers only those in use are connected: starting all of them would be a surprise.
        """
        if self.only_server_id is not None:
            with contextlib.suppress(ServerError):
                await self.gateway.manager.ensure_connected(self.only_server_id, principal=self.principal)

    async def servers_with_capability(self, capability: str, *, wait_for_all: bool = False) -> list[Server]:
        """Return the servers with a capability, waiting for all with ``wait_for_all``.

        For a single server, raises RpcErrorResponse if it lacks the capability.
        """
        listing = await self.fetch_tool_listing(wait_for_all=wait_for_all)
        servers = [
            server
            for server in self.reachable_servers()
            if (catalogue := listing.catalogues.get(server.id)) is not None
            and capability in catalogue.listing.capabilities
        ]
        if not servers and self.only_server_id is not None:
            raise method_not_found(capability)
        return servers

    async def query_servers(
        self, servers: Sequence[Server], query: Callable[[Server], Awaitable[T]]
    ) -> list[tuple[Server, T]]:
        """Query several servers and return their answers. Failing servers are left out; a single one raises
        its ServerError."""

        async def query_one(server: Server) -> T | ServerError:
            try:
                return await query(server)
            except ServerError as error:
                if self.only_server_id is not None:
                    raise
                return error

        answers = await asyncio.gather(*map(query_one, servers))
        return [
            (server, answer)
            for server, answer in zip(servers, answers, strict=True)
            if not isinstance(answer, ServerError)
        ]

    # Our own server info.

    def _find_catalogue(self) -> Catalogue | None:
        return self.gateway.tool_directory.known_listing(self.principal).catalogues.get(
            self.only_server_id or ""
        )

    @property
    def server_info(self) -> Mapping[str, Any]:
        """Return our server info: that of the server itself if the view has only one and it is known."""
        catalogue = None if self.only_server_id is None else self._find_catalogue()
        info = None if catalogue is None else repair_server_info(catalogue.listing.server_info or {})
        return info or SERVER_INFO

    async def capabilities(self) -> Mapping[str, Any]:
        """Return our capabilities.

        For a single server, those of its capabilities that we forward; while it cannot be reached, all that
        we forward, so that requests report the reason of the failure.
        """
        if self.only_server_id is None:
            return _ALL_CAPABILITIES
        try:
            await self.fetch_tool_listing()
        except ToolyardError:
            return _ALL_CAPABILITIES
        catalogue = self._find_catalogue()
        return (
            _ALL_CAPABILITIES
            if catalogue is None
            else _supported_capabilities(catalogue.listing.capabilities)
        )

    def instructions(self) -> str | None:
        """Return the instructions of trusted servers, as far as the lock has accepted them."""
        found = self.gateway.tool_directory.known_listing(self.principal).catalogues
        said = [
            (server.label or server.id, text)
            for server in self.reachable_servers()
            if server.trust is Trust.TRUSTED
            and (catalogue := found.get(server.id)) is not None
            and (text := self.gateway.locks.instructions(catalogue.contents))
        ]
        if self.only_server_id is not None:
            return said[0][1] if said else None
        return "\n\n".join(f"# {name}\n{text[:_MAX_INSTRUCTIONS_CHARACTERS]}" for name, text in said) or None


def is_current(fetched_at: float, max_age_seconds: float, changed_at: float, now: float) -> bool:
    """Return whether a listing is recent and was fetched after the last change that the server announced."""
    # A time in the future was recorded before the clock was set back, and says nothing about the order.
    return 0 <= now - fetched_at < max_age_seconds and (changed_at < fetched_at or is_future(changed_at, now))


def _collect_tool_patterns(caller: Caller) -> list[ToolPatterns]:
    """Return the patterns that limit a caller's tools."""
    lists = (
        None if caller.agent is None else caller.agent.tools,
        None if caller.scope is None else caller.scope.tools,
    )
    return [compile_patterns(each) for each in lists if each is not None]


def _supported_capabilities(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    carried: dict[str, Any] = {}
    for key in _ALL_CAPABILITIES:
        if (given := capabilities.get(key)) is None:
            continue
        declared = object_or_empty(given)
        carried[key] = {flag: True for flag in _CAPABILITY_FLAGS.get(key, ()) if declared.get(flag) is True}
    if "tools" in carried:
        # Long results are read as resources, so we offer resources even if no server does.
        carried.setdefault("resources", {})
    return carried


def gateway_caller(
    known_bundles: Mapping[str, Bundle],
    *,
    principal: Principal = LOCAL_PRINCIPAL,
    scope: TokenScope | None = None,
    agent: Agent | None = None,
    bundles: Iterable[str] = (),
) -> Caller:
    """Build a caller of the gateway, which always counts as a model. Raises ConfigError for an unknown
    bundle."""
    selected = (*(() if agent is None else agent.bundles), *bundles)
    return Caller(
        principal, Surface.MODEL_DIRECT, agent, select_bundles(selected, known_bundles), scope=scope
    )


def limit_scope_to_server(scope: TokenScope | None, server: Server) -> TokenScope:
    """Limit a scope to one server, without adding anything to it."""
    name = server.id if server.instance is None else server.instance.slug
    if scope is None:
        return TokenScope(frozenset(Right), servers=(name,))
    return replace(scope, servers=(name,))
