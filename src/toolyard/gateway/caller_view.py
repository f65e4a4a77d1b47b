"""What there is to offer: which servers a caller reaches, what they can do, who we say that we are."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from toolyard.catalog.tool_listing import Roster
from toolyard.errors import ServerError, ToolyardError
from toolyard.gateway.error_responses import no_method
from toolyard.gateway.gateway import OURSELVES, Gateway
from toolyard.gateway.surface.list_repair import implementation
from toolyard.policy.agent_patterns import Patterns, patterns
from toolyard.types.call import Caller
from toolyard.types.catalog import Catalogue
from toolyard.types.clock import is_future
from toolyard.types.server import Server, Trust
from toolyard.types.tool import Definition

__all__ = ["Offering"]

T = TypeVar("T")

_EVERYTHING: Mapping[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}
_FLAGS = {"tools": ("listChanged",), "prompts": ("listChanged",), "resources": ("subscribe", "listChanged")}
_AGAIN = 10.0
"""Seconds until a server that could not be listed is tried again."""
_INSTRUCTIONS = 4000
"""Characters of one server's instructions, where there are those of many."""


class Offering:
    """For one caller; of all servers, or of ``only`` one."""

    def __init__(self, gateway: Gateway, caller: Caller, only: str | None) -> None:
        self.gateway = gateway
        self.parts = gateway.parts
        self.caller = caller
        self.principal = caller.principal
        self.only = only
        self._asked = -_AGAIN
        """When servers were last asked what they have, on the monotonic clock."""
        self._patterns = _patterns(caller)
        self._named: tuple[Mapping[str, Definition], Mapping[str, bool]] = ({}, {})

    async def roster(self, *, patient: bool = False) -> Roster:
        """What there is now; of many servers, what is kept, and what comes soon. For one server, raises the
        ServerError that keeps it from being listed. ``patient`` waits for all of them."""
        principal, only = self.principal, self.only
        roster = self.parts.rosters.known(principal)
        wanted = [
            server
            for server in self.parts.manager.visible(principal).values()
            if server.enabled and only in (None, server.id)
        ]
        old = [server for server in wanted if not self._is_fresh(server, roster)]
        if old:
            rosters = self.parts.rosters
            ask = rosters.current if patient or only is not None else rosters.soon
            roster = await ask(principal, only=[server.id for server in old])
            self._asked = time.monotonic()
        if only is not None and only not in roster.catalogues and only in roster.failures:
            raise roster.failures[only]
        return roster

    def missing(self, method: str) -> dict[str, str]:
        """The servers whose part of a list is not there, each with the reason, for the one who got it."""
        roster = self.parts.rosters.known(self.principal)
        late = self.gateway.shelves.waiting(self.principal.id, method)
        missing: dict[str, str] = {}
        for server in self.servers():
            if (failure := roster.failures.get(server.id)) is not None:
                self.parts.calls.hush(failure)
            if server.id not in roster.catalogues:
                missing[server.id] = "has not answered yet" if failure is None else failure.cause
            elif server.id in late:
                missing[server.id] = "has not answered yet"
        return missing

    @property
    def is_waiting(self) -> bool:
        """Whether any server is being asked for this caller what it has."""
        id = self.principal.id
        return self.parts.rosters.late.any(id) or bool(self.gateway.shelves.waiting(id))

    def _is_fresh(self, server: Server, roster: Roster) -> bool:
        """Whether what is known of a server need not be asked for again. One that says that its list is old
        at once, as the default of a library does, is asked as often as configured; one that cannot be
        listed, not by everyone who comes."""
        catalogue = roster.catalogues.get(server.id)
        if catalogue is None:
            return server.id in roster.failures and time.monotonic() - self._asked < _AGAIN
        ttl = catalogue.listing.ttl
        life = server.cache_ttl if not ttl else min(ttl, server.cache_ttl)
        now, fetched = time.time(), catalogue.fetched_at
        changed = self.gateway.changed.get(server.id, 0.0)
        # Times in the future were noted before the clock was set back, and say nothing about the order.
        return 0 <= now - fetched < life and (changed < fetched or is_future(changed, now))

    def servers(self) -> list[Server]:
        """Those that this caller reaches, in the order of their ids."""
        there = self.parts.manager.visible(self.principal)
        return [
            there[server_id]
            for server_id in sorted(there)
            if there[server_id].enabled and self.concerns(server_id)
        ]

    def concerns(self, server_id: str) -> bool:
        """Whether this caller sees anything of a server. Where an agent or a token names tools, that is so
        only if one of the server's is among them: its prompts and resources are nobody's else."""
        if self.only not in (None, server_id) or not self.parts.calls.reaches(server_id, self.caller):
            return False
        return not self._patterns or self._is_named(server_id)

    def _is_named(self, server_id: str) -> bool:
        """Of a server that has no tools, whether one would be that is named like its tools."""
        tools = self.parts.rosters.known(self.principal).tools
        if self._named[0] is not tools:
            named: dict[str, bool] = {}
            for name, each in tools.items():
                named[each.server_id] = named.get(each.server_id, False) or self._allows(name)
            self._named = tools, named
        found = self._named[1].get(server_id)
        return self._allows(f"{self.parts.rosters.prefix(server_id)}any") if found is None else found

    def _allows(self, name: str) -> bool:
        return all(each.allows(name) for each in self._patterns)

    async def connect(self) -> None:
        """Where there is one server, connect it now, so that it is heard. Of many, those are heard that are
        in use: to start all of them is nobody's wish."""
        if self.only is not None:
            with contextlib.suppress(ServerError):
                await self.parts.manager.facts(self.only, principal=self.principal)

    async def servers_with(self, capability: str, *, patient: bool = False) -> list[Server]:
        """Those of them that have a capability. For one server, raises Refusal where it has it not.
        ``patient`` waits for all that could."""
        roster = await self.roster(patient=patient)
        servers = [
            server
            for server in self.servers()
            if (catalogue := roster.catalogues.get(server.id)) is not None
            and capability in catalogue.listing.capabilities
        ]
        if not servers and self.only is not None:
            raise no_method(capability)
        return servers

    async def each(
        self, servers: Sequence[Server], ask: Callable[[Server], Awaitable[T]]
    ) -> list[tuple[Server, T]]:
        """What each of them answers. One that fails is left out; the only one raises its ServerError."""

        async def one(server: Server) -> T | ServerError:
            try:
                return await ask(server)
            except ServerError as error:
                if self.only is not None:
                    raise
                return error

        answers = await asyncio.gather(*map(one, servers))
        return [
            (server, answer)
            for server, answer in zip(servers, answers, strict=True)
            if not isinstance(answer, ServerError)
        ]

    # What we say about ourselves.

    def _catalogue(self) -> Catalogue | None:
        return self.parts.rosters.known(self.principal).catalogues.get(self.only or "")

    @property
    def info(self) -> Mapping[str, Any]:
        """Who we are: the server itself, where there is one, as far as it is known."""
        catalogue = None if self.only is None else self._catalogue()
        info = None if catalogue is None else implementation(catalogue.listing.server_info or {})
        return info or OURSELVES

    async def capabilities(self) -> Mapping[str, Any]:
        """What we can do. For one server what it can, of what we carry; while it cannot be asked, all that we
        carry: whoever uses it hears why it fails."""
        if self.only is None:
            return _EVERYTHING
        try:
            await self.roster()
        except ToolyardError:
            return _EVERYTHING
        catalogue = self._catalogue()
        return _EVERYTHING if catalogue is None else _carried(catalogue.listing.capabilities)

    def instructions(self) -> str | None:
        """What the servers say about how to use them; nothing of untrusted ones, and nothing that was not
        accepted."""
        found = self.parts.rosters.known(self.principal).catalogues
        said = [
            (server.label or server.id, text)
            for server in self.servers()
            if server.trust is Trust.TRUSTED
            and (catalogue := found.get(server.id)) is not None
            and (text := self.parts.locks.instructions(catalogue.contents))
        ]
        if self.only is not None:
            return said[0][1] if said else None
        return "\n\n".join(f"# {name}\n{text[:_INSTRUCTIONS]}" for name, text in said) or None


def _patterns(caller: Caller) -> list[Patterns]:
    """By which tools are named for a caller."""
    lists = (
        None if caller.agent is None else caller.agent.tools,
        None if caller.scope is None else caller.scope.tools,
    )
    return [patterns(each) for each in lists if each is not None]


def _carried(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    carried: dict[str, Any] = {}
    for key in _EVERYTHING:
        if (given := capabilities.get(key)) is None:
            continue
        told = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        carried[key] = {flag: True for flag in _FLAGS.get(key, ()) if told.get(flag) is True}
    if "tools" in carried:
        # What is too long of their results is read as a resource, of ours.
        carried.setdefault("resources", {})
    return carried
