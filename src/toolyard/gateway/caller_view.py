"""What there is to offer: which servers a caller reaches, what they can do, who we say that we are."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from toolyard.catalog.tool_listing import ToolListing
from toolyard.errors import ServerError, ToolyardError
from toolyard.gateway.error_responses import method_not_found
from toolyard.gateway.gateway import SERVER_INFO, Gateway
from toolyard.gateway.surface.list_repair import repair_server_info
from toolyard.policy.agent_patterns import ToolPatterns, compile_patterns
from toolyard.types.call import Caller
from toolyard.types.catalog import Catalogue
from toolyard.types.clock import is_future
from toolyard.types.server import Server, Trust
from toolyard.types.tool import Definition

__all__ = ["CallerView"]

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
"""Seconds until a server that could not be listed is tried again."""
_MAX_INSTRUCTIONS_CHARACTERS = 4000
"""Characters of one server's instructions, where there are those of many."""


class CallerView:
    """For one caller; of all servers, or of ``only`` one."""

    def __init__(self, gateway: Gateway, caller: Caller, only_server_id: str | None) -> None:
        self.gateway = gateway
        self.parts = gateway.parts
        self.caller = caller
        self.principal = caller.principal
        self.only_server_id = only_server_id
        self._last_listed_at = -_LIST_RETRY_SECONDS
        """When servers were last asked what they have, on the monotonic clock."""
        self._tool_patterns = _collect_tool_patterns(caller)
        self._servers_with_named_tools: tuple[Mapping[str, Definition], Mapping[str, bool]] = ({}, {})

    async def fetch_tool_listing(self, *, wait_for_all: bool = False) -> ToolListing:
        """What there is now; of many servers, what is kept, and what comes soon. For one server, raises the
        ServerError that keeps it from being listed. ``patient`` waits for all of them."""
        principal, only = self.principal, self.only_server_id
        roster = self.parts.tool_directory.known_listing(principal)
        wanted = [
            server
            for server in self.parts.manager.visible_servers(principal).values()
            if server.enabled and only in (None, server.id)
        ]
        old = [server for server in wanted if not self._is_fresh(server, roster)]
        if old:
            rosters = self.parts.tool_directory
            ask = rosters.refresh if wait_for_all or only is not None else rosters.refresh_within_deadline
            roster = await ask(principal, only=[server.id for server in old])
            self._last_listed_at = time.monotonic()
        if only is not None and only not in roster.catalogues and only in roster.failures:
            raise roster.failures[only]
        return roster

    def missing_servers(self, method: str) -> dict[str, str]:
        """The servers whose part of a list is not there, each with the reason, for the one who got it."""
        roster = self.parts.tool_directory.known_listing(self.principal)
        late = self.gateway.listing_cache.waiting(self.principal.id, method)
        missing: dict[str, str] = {}
        for server in self.servers():
            if (failure := roster.failures.get(server.id)) is not None:
                self.parts.call_path.redact_error(failure)
            if server.id not in roster.catalogues:
                missing[server.id] = "has not answered yet" if failure is None else failure.cause
            elif server.id in late:
                missing[server.id] = "has not answered yet"
        return missing

    @property
    def has_pending_listings(self) -> bool:
        """Whether any server is being asked for this caller what it has."""
        id = self.principal.id
        return self.parts.tool_directory.deferred.has_pending(id) or bool(
            self.gateway.listing_cache.waiting(id)
        )

    def _is_fresh(self, server: Server, roster: ToolListing) -> bool:
        """Whether what is known of a server need not be asked for again. One that says that its list is old
        at once, as the default of a library does, is asked as often as configured; one that cannot be
        listed, not by everyone who comes."""
        catalogue = roster.catalogues.get(server.id)
        if catalogue is None:
            return (
                server.id in roster.failures and time.monotonic() - self._last_listed_at < _LIST_RETRY_SECONDS
            )
        ttl = catalogue.listing.ttl
        life = server.cache_ttl if not ttl else min(ttl, server.cache_ttl)
        now, fetched = time.time(), catalogue.fetched_at
        changed = self.gateway.changed.get(server.id, 0.0)
        # Times in the future were noted before the clock was set back, and say nothing about the order.
        return 0 <= now - fetched < life and (changed < fetched or is_future(changed, now))

    def servers(self) -> list[Server]:
        """Those that this caller reaches, in the order of their ids."""
        there = self.parts.manager.visible_servers(self.principal)
        return [
            there[server_id]
            for server_id in sorted(there)
            if there[server_id].enabled and self.can_see_server(server_id)
        ]

    def can_see_server(self, server_id: str) -> bool:
        """Whether this caller sees anything of a server. Where an agent or a token names tools, that is so
        only if one of the server's is among them: its prompts and resources are nobody's else."""
        if self.only_server_id not in (None, server_id) or not self.parts.call_path.can_reach(
            server_id, self.caller
        ):
            return False
        return not self._tool_patterns or self._has_named_tools(server_id)

    def _has_named_tools(self, server_id: str) -> bool:
        """Of a server that has no tools, whether one would be that is named like its tools."""
        tools = self.parts.tool_directory.known_listing(self.principal).tools
        if self._servers_with_named_tools[0] is not tools:
            named: dict[str, bool] = {}
            for name, each in tools.items():
                named[each.server_id] = named.get(each.server_id, False) or self._allows_tool(name)
            self._servers_with_named_tools = tools, named
        found = self._servers_with_named_tools[1].get(server_id)
        return (
            self._allows_tool(f"{self.parts.tool_directory.name_prefix(server_id)}any")
            if found is None
            else found
        )

    def _allows_tool(self, name: str) -> bool:
        return all(each.allows(name) for each in self._tool_patterns)

    async def connect_only_server(self) -> None:
        """Where there is one server, connect it now, so that it is heard. Of many, those are heard that are
        in use: to start all of them is nobody's wish."""
        if self.only_server_id is not None:
            with contextlib.suppress(ServerError):
                await self.parts.manager.ensure_connected(self.only_server_id, principal=self.principal)

    async def servers_with_capability(self, capability: str, *, wait_for_all: bool = False) -> list[Server]:
        """Those of them that have a capability. For one server, raises Refusal where it has it not.
        ``patient`` waits for all that could."""
        roster = await self.fetch_tool_listing(wait_for_all=wait_for_all)
        servers = [
            server
            for server in self.servers()
            if (catalogue := roster.catalogues.get(server.id)) is not None
            and capability in catalogue.listing.capabilities
        ]
        if not servers and self.only_server_id is not None:
            raise method_not_found(capability)
        return servers

    async def query_servers(
        self, servers: Sequence[Server], query: Callable[[Server], Awaitable[T]]
    ) -> list[tuple[Server, T]]:
        """What each of them answers. One that fails is left out; the only one raises its ServerError."""

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

    # What we say about ourselves.

    def _find_catalogue(self) -> Catalogue | None:
        return self.parts.tool_directory.known_listing(self.principal).catalogues.get(
            self.only_server_id or ""
        )

    @property
    def server_info(self) -> Mapping[str, Any]:
        """Who we are: the server itself, where there is one, as far as it is known."""
        catalogue = None if self.only_server_id is None else self._find_catalogue()
        info = None if catalogue is None else repair_server_info(catalogue.listing.server_info or {})
        return info or SERVER_INFO

    async def capabilities(self) -> Mapping[str, Any]:
        """What we can do. For one server what it can, of what we carry; while it cannot be asked, all that we
        carry: whoever uses it hears why it fails."""
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
        """What the servers say about how to use them; nothing of untrusted ones, and nothing that was not
        accepted."""
        found = self.parts.tool_directory.known_listing(self.principal).catalogues
        said = [
            (server.label or server.id, text)
            for server in self.servers()
            if server.trust is Trust.TRUSTED
            and (catalogue := found.get(server.id)) is not None
            and (text := self.parts.locks.instructions(catalogue.contents))
        ]
        if self.only_server_id is not None:
            return said[0][1] if said else None
        return "\n\n".join(f"# {name}\n{text[:_MAX_INSTRUCTIONS_CHARACTERS]}" for name, text in said) or None


def _collect_tool_patterns(caller: Caller) -> list[ToolPatterns]:
    """By which tools are named for a caller."""
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
        told = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        carried[key] = {flag: True for flag in _CAPABILITY_FLAGS.get(key, ()) if told.get(flag) is True}
    if "tools" in carried:
        # What is too long of their results is read as a resource, of ours.
        carried.setdefault("resources", {})
    return carried
