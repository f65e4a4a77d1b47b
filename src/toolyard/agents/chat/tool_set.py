"""The tools that a chat has, and how one is called: every one of them through the one call path."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from toolyard.agents.chat.approval_grants import UnapprovedCall
from toolyard.catalog.hashes import definition_hash
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients.call_path import CallPath
from toolyard.clients.manager import ConnectionManager
from toolyard.clients.session import OnProgress
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.errors import ServerError, SignInNeeded, ToolRefused, ToolyardError
from toolyard.meta import META_TOOLS, RESULT_READ_TOOL, MetaTools
from toolyard.meta.arguments import InvalidToolArgument, ToolArguments
from toolyard.meta.tool_definitions import META_SERVER_ID
from toolyard.types.agent import Agent
from toolyard.types.call import Caller
from toolyard.types.decision import Decision, Surface, Verdict
from toolyard.types.result import Result
from toolyard.types.server import NATIVE_SERVER_ID
from toolyard.types.status import State
from toolyard.types.tool import Definition, JsonObject

__all__ = ["CallOutcome", "OfferedTools", "ToolDescription", "ToolSet", "UnavailableServer"]

log = logging.getLogger("toolyard.chat")

_CALL_META_TOOL_NAME = "tools_call"


@dataclass(frozen=True, slots=True)
class UnavailableServer:
    """A server whose tools a chat lacks, because it could not be asked."""

    server: str
    cause: str
    hint: str | None


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """What a model is shown in one turn. ``because`` says why there are meta tools, where there are."""

    tools: Mapping[str, Definition]
    """By exposed name, in the order of the names."""
    because: str = ""
    unavailable_servers: tuple[UnavailableServer, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool that is called, for people. Of one that there is not, only its name is known."""

    tool: str | None = None
    server: str = ""
    native: bool = False
    title: str | None = None
    server_id: str | None = None
    """The server that would be called, also where it is reached through the meta tools."""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What a call came to. ``reconnect`` is the instance that must be signed in to again."""

    result: Result
    ok: bool
    reconnect: str | None = None


class ToolSet:
    """The tools of one chat, as its owner and its agent have them now."""

    def __init__(
        self,
        manager: ConnectionManager,
        tool_directory: ToolDirectory,
        call_path: CallPath,
        meta_tools: MetaTools,
        caller: Caller,
        *,
        before_call: Callable[[], None] | None = None,
    ) -> None:
        """``entering`` is told before each call, in the task that makes it."""
        self.caller = caller
        self._manager = manager
        self._tool_directory = tool_directory
        self._call_path = call_path
        self._meta_tools = meta_tools
        self._meta_caller = replace(caller, surface=Surface.MODEL_META)
        self._before_call = before_call

    @property
    def agent(self) -> Agent | None:
        return self.caller.agent

    def for_operator(self) -> ToolSet:
        """The same tools, for the person who calls one without a model."""
        caller = replace(self.caller, surface=Surface.OPERATOR)
        return ToolSet(
            self._manager,
            self._tool_directory,
            self._call_path,
            self._meta_tools,
            caller,
            before_call=self._before_call,
        )

    # Seeing.

    async def fetch_listing(self) -> ToolListing:
        """Every tool that is known, after whoever has to be asked was asked."""
        return await self._tool_directory.again(self.caller.principal, chat=self.caller.chat)

    async def fetch_offered_tools(self) -> OfferedTools:
        """What to show a model, listed anew. A server that cannot be asked is left out, and named."""
        roster = await self.fetch_listing()
        offer = self._meta_tools.offer(roster, self.caller)
        meta = dict(offer.meta)
        if not meta and await self._meta_tools.has_stored_results(self.caller):
            meta = {RESULT_READ_TOOL.name: RESULT_READ_TOOL}
        tools = {**offer.direct, **meta}
        troubles = tuple(self._find_unavailable_servers(roster))
        return OfferedTools({name: tools[name] for name in sorted(tools)}, offer.because, troubles)

    async def locate(self, name: str) -> None:
        """Learn of one tool, asking no more servers than that takes. Whether it worked, the call tells."""
        with contextlib.suppress(ServerError):
            await self._tool_directory.locate_tool(name, self.caller.principal, self.caller.chat)

    def _find_unavailable_servers(self, listing: ToolListing) -> Iterator[UnavailableServer]:
        for server_id, failure in sorted(listing.failures.items()):
            # What was listed before is still shown, and calling it tells why.
            lacking = server_id not in listing.catalogues or isinstance(failure, SignInNeeded)
            if lacking and self._call_path.can_reach(server_id, self.caller):
                self._call_path.redact_error(failure)
                yield UnavailableServer(self.label(server_id), failure.cause, failure.hint)

    def label(self, server_id: str) -> str:
        """What people call a server."""
        if server_id in (NATIVE_SERVER_ID, META_SERVER_ID):
            return "Toolyard"
        server = self._manager.find(server_id, self.caller.principal)
        return server_id if server is None else server.label or server_id

    def describe(self, name: str, arguments: JsonObject | str) -> ToolDescription:
        """What is known of a tool that a model named. Asks nobody."""
        if name in META_TOOLS:
            tool, inner = META_TOOLS[name], self._parse_meta_call(name, arguments)
            definition = None if inner is None else self._find_definition(inner[0], self._meta_caller)
            server_id = None if definition is None else definition.server_id
            return ToolDescription(tool.id, self.label(META_SERVER_ID), native=True, server_id=server_id)
        definition = self._find_definition(name, self.caller)
        if definition is None:
            return ToolDescription()
        return ToolDescription(
            definition.id,
            self.label(definition.server_id),
            definition.server_id == NATIVE_SERVER_ID,
            definition.title or _get_annotation_title(definition),
            definition.server_id,
        )

    def _find_definition(self, name: str, caller: Caller) -> Definition | None:
        """A tool that this caller gets to see."""
        return self._call_path.shown(self._tool_directory.known_listing(caller.principal), caller).get(name)

    def _parse_meta_call(self, name: str, arguments: JsonObject | str) -> tuple[str, JsonObject] | None:
        """The call that is made through the meta tools; None where none is, or none that can be read."""
        if name != _CALL_META_TOOL_NAME or isinstance(arguments, str):
            return None
        try:
            given = ToolArguments(META_TOOLS[name], arguments)
            return given.text("name"), given.get_object("arguments")
        except InvalidToolArgument:
            return None

    # Asking.

    def explain(self, name: str) -> Decision:
        """Whether the chat has a tool that is known, and why. Raises ToolRefused where none is."""
        return self._call_path.explain(name, self.caller)

    def wanted(self, name: str, arguments: JsonObject) -> UnapprovedCall | None:
        """The approval that a call needs, whether it is made directly or through the meta tools; None where
        it needs none, or will be refused anyway."""
        caller, inner = self.caller, self._parse_meta_call(name, arguments)
        if inner is not None:
            (name, arguments), caller = inner, self._meta_caller
        definition = self._find_definition(name, caller)
        if definition is None:
            return None
        try:
            decision = self._call_path.explain(name, caller)
        except ToolRefused:
            return None
        if decision.verdict is not Verdict.ASK or decision.decisive is None:
            return None
        hash = definition_hash(definition)
        return UnapprovedCall(definition.id, name, hash, arguments, decision.decisive.reason)

    # Calling.

    async def call(self, name: str, arguments: JsonObject, on_progress: OnProgress) -> CallOutcome:
        """Call a tool. Whatever goes wrong is a result that a model can be given."""
        if self._before_call is not None:
            self._before_call()
        try:
            if name in META_TOOLS and self.caller.surface is not Surface.OPERATOR:
                return await self._call_meta_tool(name, arguments, on_progress)
            result = await self._call_path.call(name, arguments, self.caller, on_progress=on_progress)
            return CallOutcome(result, not result.is_error)
        except ToolyardError as error:
            return CallOutcome(
                self._call_path.build_error_result(error, self.caller),
                False,
                self._find_reconnect_instance(error),
            )
        except Exception:
            # The boundary of the promise: the turn goes on, and the log says what we did wrong.
            log.exception("the call of '%s'", name[:64])
            result = Result(None, "the call failed inside Toolyard; its log says why", is_error=True)
            return CallOutcome(result, False)

    async def _call_meta_tool(self, name: str, arguments: JsonObject, on_progress: OnProgress) -> CallOutcome:
        result = await self._meta_tools.result(name, arguments, self.caller, on_progress=on_progress)
        body: object = result.structured
        ok = isinstance(body, dict) and cast("JsonObject", body).get("ok") is True
        server_id = None if ok else self.describe(name, arguments).server_id
        waits = server_id is not None and self._needs_sign_in(server_id)
        return CallOutcome(
            result, ok, self._get_instance_id(server_id) if server_id is not None and waits else None
        )

    def _find_reconnect_instance(self, error: ToolyardError) -> str | None:
        if not isinstance(error, ServerError):
            return None
        # One that was refused a moment ago may answer without being asked again.
        waits = isinstance(error, SignInNeeded) or self._needs_sign_in(error.server)
        return self._get_instance_id(error.server) if waits else None

    def _needs_sign_in(self, server_id: str) -> bool:
        return self._manager.state(server_id, self.caller.principal) is State.NEEDS_AUTH

    def _get_instance_id(self, server_id: str) -> str | None:
        server = self._manager.find(server_id, self.caller.principal)
        return None if server is None or server.instance is None else server.instance.id or None


def _get_annotation_title(definition: Definition) -> str | None:
    title = definition.annotations.get("title")
    return title if isinstance(title, str) and title else None
