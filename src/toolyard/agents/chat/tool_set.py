"""The tools that a chat has, and how one is called: every one of them through the one call path."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from toolyard.agents.chat.approval_grants import Wanted
from toolyard.catalog.hashes import definition_hash
from toolyard.catalog.tool_listing import Roster
from toolyard.clients.call_path import CallPath
from toolyard.clients.manager import ClientManager
from toolyard.clients.session import OnProgress
from toolyard.clients.tool_directory import Rosters
from toolyard.errors import ServerError, SignInNeeded, ToolRefused, ToolyardError
from toolyard.meta import META_TOOLS, RESULT_READ, MetaTools
from toolyard.meta.arguments import BadArgument, Given
from toolyard.meta.tool_definitions import OWNER
from toolyard.types.agent import Agent
from toolyard.types.call import Caller
from toolyard.types.decision import Decision, Surface, Verdict
from toolyard.types.result import Result
from toolyard.types.server import NATIVE
from toolyard.types.status import State
from toolyard.types.tool import Definition, JsonObject

__all__ = ["Called", "Described", "Kit", "Toolbox", "Trouble"]

log = logging.getLogger("toolyard.chat")

_THROUGH = "tools_call"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A server whose tools a chat lacks, because it could not be asked."""

    server: str
    cause: str
    hint: str | None


@dataclass(frozen=True, slots=True)
class Kit:
    """What a model is shown in one turn. ``because`` says why there are meta tools, where there are."""

    tools: Mapping[str, Definition]
    """By exposed name, in the order of the names."""
    because: str = ""
    troubles: tuple[Trouble, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A tool that is called, for people. Of one that there is not, only its name is known."""

    tool: str | None = None
    server: str = ""
    native: bool = False
    title: str | None = None
    server_id: str | None = None
    """The server that would be called, also where it is reached through the meta tools."""


@dataclass(frozen=True, slots=True)
class Called:
    """What a call came to. ``reconnect`` is the instance that must be signed in to again."""

    result: Result
    ok: bool
    reconnect: str | None = None


class Toolbox:
    """The tools of one chat, as its owner and its agent have them now."""

    def __init__(
        self,
        manager: ClientManager,
        rosters: Rosters,
        calls: CallPath,
        meta: MetaTools,
        caller: Caller,
        *,
        entering: Callable[[], None] | None = None,
    ) -> None:
        """``entering`` is told before each call, in the task that makes it."""
        self.caller = caller
        self._manager = manager
        self._rosters = rosters
        self._calls = calls
        self._meta = meta
        self._through = replace(caller, surface=Surface.MODEL_META)
        self._entering = entering

    @property
    def agent(self) -> Agent | None:
        return self.caller.agent

    def as_person(self) -> Toolbox:
        """The same tools, for the person who calls one without a model."""
        caller = replace(self.caller, surface=Surface.OPERATOR)
        return Toolbox(self._manager, self._rosters, self._calls, self._meta, caller, entering=self._entering)

    # Seeing.

    async def roster(self) -> Roster:
        """Every tool that is known, after whoever has to be asked was asked."""
        return await self._rosters.again(self.caller.principal, chat=self.caller.chat)

    async def kit(self) -> Kit:
        """What to show a model, listed anew. A server that cannot be asked is left out, and named."""
        roster = await self.roster()
        offer = self._meta.offer(roster, self.caller)
        meta = dict(offer.meta)
        if not meta and await self._meta.has_results(self.caller):
            meta = {RESULT_READ.name: RESULT_READ}
        tools = {**offer.direct, **meta}
        troubles = tuple(self._troubles(roster))
        return Kit({name: tools[name] for name in sorted(tools)}, offer.because, troubles)

    async def locate(self, name: str) -> None:
        """Learn of one tool, asking no more servers than that takes. Whether it worked, the call tells."""
        with contextlib.suppress(ServerError):
            await self._rosters.locate(name, self.caller.principal, self.caller.chat)

    def _troubles(self, roster: Roster) -> Iterator[Trouble]:
        for server_id, failure in sorted(roster.failures.items()):
            # What was listed before is still shown, and calling it tells why.
            lacking = server_id not in roster.catalogues or isinstance(failure, SignInNeeded)
            if lacking and self._calls.reaches(server_id, self.caller):
                self._calls.hush(failure)
                yield Trouble(self.label(server_id), failure.cause, failure.hint)

    def label(self, server_id: str) -> str:
        """What people call a server."""
        if server_id in (NATIVE, OWNER):
            return "Toolyard"
        server = self._manager.find(server_id, self.caller.principal)
        return server_id if server is None else server.label or server_id

    def describe(self, name: str, arguments: JsonObject | str) -> Described:
        """What is known of a tool that a model named. Asks nobody."""
        if name in META_TOOLS:
            tool, inner = META_TOOLS[name], self._inner(name, arguments)
            definition = None if inner is None else self._definition(inner[0], self._through)
            server_id = None if definition is None else definition.server_id
            return Described(tool.id, self.label(OWNER), native=True, server_id=server_id)
        definition = self._definition(name, self.caller)
        if definition is None:
            return Described()
        return Described(
            definition.id,
            self.label(definition.server_id),
            definition.server_id == NATIVE,
            definition.title or _title(definition),
            definition.server_id,
        )

    def _definition(self, name: str, caller: Caller) -> Definition | None:
        """A tool that this caller gets to see."""
        return self._calls.shown(self._rosters.known(caller.principal), caller).get(name)

    def _inner(self, name: str, arguments: JsonObject | str) -> tuple[str, JsonObject] | None:
        """The call that is made through the meta tools; None where none is, or none that can be read."""
        if name != _THROUGH or isinstance(arguments, str):
            return None
        try:
            given = Given(META_TOOLS[name], arguments)
            return given.text("name"), given.object("arguments")
        except BadArgument:
            return None

    # Asking.

    def explain(self, name: str) -> Decision:
        """Whether the chat has a tool that is known, and why. Raises ToolRefused where none is."""
        return self._calls.explain(name, self.caller)

    def wanted(self, name: str, arguments: JsonObject) -> Wanted | None:
        """The approval that a call needs, whether it is made directly or through the meta tools; None where
        it needs none, or will be refused anyway."""
        caller, inner = self.caller, self._inner(name, arguments)
        if inner is not None:
            (name, arguments), caller = inner, self._through
        definition = self._definition(name, caller)
        if definition is None:
            return None
        try:
            decision = self._calls.explain(name, caller)
        except ToolRefused:
            return None
        if decision.verdict is not Verdict.ASK or decision.decisive is None:
            return None
        hash = definition_hash(definition)
        return Wanted(definition.id, name, hash, arguments, decision.decisive.reason)

    # Calling.

    async def call(self, name: str, arguments: JsonObject, on_progress: OnProgress) -> Called:
        """Call a tool. Whatever goes wrong is a result that a model can be given."""
        if self._entering is not None:
            self._entering()
        try:
            if name in META_TOOLS and self.caller.surface is not Surface.OPERATOR:
                return await self._call_meta(name, arguments, on_progress)
            result = await self._calls.call(name, arguments, self.caller, on_progress=on_progress)
            return Called(result, not result.is_error)
        except ToolyardError as error:
            return Called(self._calls.failed(error, self.caller), False, self._reconnect(error))
        except Exception:
            # The boundary of the promise: the turn goes on, and the log says what we did wrong.
            log.exception("the call of '%s'", name[:64])
            result = Result(None, "the call failed inside Toolyard; its log says why", is_error=True)
            return Called(result, False)

    async def _call_meta(self, name: str, arguments: JsonObject, on_progress: OnProgress) -> Called:
        result = await self._meta.result(name, arguments, self.caller, on_progress=on_progress)
        body: object = result.structured
        ok = isinstance(body, dict) and cast("JsonObject", body).get("ok") is True
        server_id = None if ok else self.describe(name, arguments).server_id
        waits = server_id is not None and self._waits_for_sign_in(server_id)
        return Called(result, ok, self._instance(server_id) if server_id is not None and waits else None)

    def _reconnect(self, error: ToolyardError) -> str | None:
        if not isinstance(error, ServerError):
            return None
        # One that was refused a moment ago may answer without being asked again.
        waits = isinstance(error, SignInNeeded) or self._waits_for_sign_in(error.server)
        return self._instance(error.server) if waits else None

    def _waits_for_sign_in(self, server_id: str) -> bool:
        return self._manager.state(server_id, self.caller.principal) is State.NEEDS_AUTH

    def _instance(self, server_id: str) -> str | None:
        server = self._manager.find(server_id, self.caller.principal)
        return None if server is None or server.instance is None else server.instance.id or None


def _title(definition: Definition) -> str | None:
    title = definition.annotations.get("title")
    return title if isinstance(title, str) and title else None
