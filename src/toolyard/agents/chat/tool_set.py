"""Tools of a chat. Every call goes through the common call path, with the chat's caller."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Protocol, cast

from toolyard.catalog.hashes import definition_hash
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients.call_path import CallPath
from toolyard.clients.manager import ConnectionManager
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.concurrency.tasks import iterate_in_steps
from toolyard.errors import ServerError, SignInNeeded, ToolRefused, ToolyardError
from toolyard.meta_tools import META_TOOLS, RESULT_READ_TOOL, MetaTools
from toolyard.meta_tools.arguments import InvalidToolArgument, ToolArguments
from toolyard.meta_tools.tool_definitions import META_SERVER_ID
from toolyard.policy.rules import DEFINITION_RULE_TITLE
from toolyard.types.account import User
from toolyard.types.agent import Agent
from toolyard.types.approval import Approval
from toolyard.types.audit import server_of_tool
from toolyard.types.call import Caller, Decision, DecisionStep, RuleOutcome, Surface, ToolCall, Verdict
from toolyard.types.chat import CallRequest, Chat
from toolyard.types.server import NATIVE_SERVER_ID, Server, State
from toolyard.types.tool import Definition, JsonObject, Result

__all__ = [
    "CallOutcome",
    "OfferedTools",
    "ToolSet",
    "ToolSetSource",
    "ToolView",
    "UnavailableServer",
]

log = logging.getLogger("toolyard.chat")

_CALL_META_TOOL_NAME = "tools_call"


@dataclass(frozen=True, slots=True)
class UnavailableServer:
    """A server whose tools are missing in a chat, because listing them failed."""

    server: str
    cause: str
    hint: str | None


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Tools of one server that are missing in a chat, because their definitions changed."""

    server: str
    count: int
    hint: str


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """Tools offered to a model in one turn."""

    tools: Mapping[str, Definition]
    """By exposed name, sorted by name."""
    meta_tools_reason: str = ""
    """Reason for including the meta tools; empty without them."""
    unavailable_servers: tuple[UnavailableServer, ...] = ()
    quarantines: tuple[Quarantine, ...] = ()


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """Outcome of a call. ``reconnect`` is the id of the instance that needs a new sign-in."""

    result: Result
    ok: bool
    reconnect_instance_id: str | None = None


class ToolSet:
    """The tools of one chat, as its owner and its agent can use them at this moment."""

    def __init__(
        self,
        manager: ConnectionManager,
        tool_directory: ToolDirectory,
        call_path: CallPath,
        meta_tools: MetaTools,
        caller: Caller,
        *,
        attribute_to_owner: Callable[[], None] = lambda: None,
        reports_sign_ins: bool = True,
    ) -> None:
        """``attribute_to_owner`` runs before each call, in the task that makes it.

        ``reports_sign_ins`` includes servers that need a sign-in in the unavailable ones; an interface that
        shows them elsewhere sets it to False.
        """
        self.caller = caller
        self._manager = manager
        self._tool_directory = tool_directory
        self._call_path = call_path
        self._meta_tools = meta_tools
        self.attribute_to_owner = attribute_to_owner
        """Attributes the further work of the running task to the chat's owner, for the audit log."""
        self._reports_sign_ins = reports_sign_ins

    @property
    def agent(self) -> Agent | None:
        return self.caller.agent

    def for_operator(self, *, ignores_choice: bool = False) -> ToolSet:
        """Return the same tools for calls by the user, without a model; with ``ignores_choice`` also those
        that are not selected for the chat."""
        caller = self.caller.on_surface(Surface.OPERATOR)
        if ignores_choice and caller.choice is not None:
            caller = replace(caller, choice=None)
        if caller is self.caller:
            return self
        tool_set = copy(self)
        tool_set.caller = caller
        return tool_set

    # Listing.

    async def fetch_listing(self) -> ToolListing:
        """Return every known tool, after refreshing the listings that need it."""
        return await self._tool_directory.refresh_with_short_retries(
            self.caller.principal, chat=self.caller.chat
        )

    async def fetch_offered_tools(self) -> OfferedTools:
        """Return the tools to offer a model, from fresh listings; failed servers are omitted and named."""
        listing = await self.fetch_listing()
        exposed = self._meta_tools.select_exposed_tools(listing, self.caller)
        meta = dict(exposed.meta)
        if not meta and await self._meta_tools.has_stored_results(self.caller):
            meta = {RESULT_READ_TOOL.name: RESULT_READ_TOOL}
        tools = {**exposed.direct, **meta}
        unavailable_servers = tuple(self._find_unavailable_servers(listing))
        quarantines = tuple(
            Quarantine(self.server_label(server_id), count, hint)
            for server_id, count, hint in self._call_path.count_quarantined(listing, self.caller)
        )
        return OfferedTools(
            {name: tools[name] for name in sorted(tools)},
            exposed.meta_reason,
            unavailable_servers,
            quarantines,
        )

    async def locate(self, name: str) -> ToolListing:
        """Load the listing that contains one tool, contacting as few servers as possible. Return every known
        tool.

        Failures are ignored here; the call itself reports them.
        """
        with contextlib.suppress(ServerError):
            await self._tool_directory.locate_tool(name, self.caller.principal, self.caller.chat)
        return self._tool_directory.known_listing(self.caller.principal)

    def _find_unavailable_servers(self, listing: ToolListing) -> Iterator[UnavailableServer]:
        for server_id, failure in sorted(listing.failures.items()):
            # Tools of an earlier listing are still offered; a call of one reports the failure.
            needs_sign_in = isinstance(failure, SignInNeeded)
            is_reported = self._reports_sign_ins if needs_sign_in else server_id not in listing.catalogues
            if is_reported and self._call_path.can_reach(server_id, self.caller):
                self._call_path.redact_error(failure)
                yield UnavailableServer(self.server_label(server_id), failure.cause, failure.hint)

    def find_server(self, server_id: str) -> Server | None:
        """Return the definition of a server, or None if the chat's owner has none with this id."""
        return self._manager.find(server_id, self.caller.principal)

    def server_label(self, server_id: str) -> str:
        """Return a server's display name."""
        if server_id in (NATIVE_SERVER_ID, META_SERVER_ID):
            return "Toolyard"
        server = self._manager.find(server_id, self.caller.principal)
        return server_id if server is None else server.label or server_id

    def build_call_request(
        self,
        name: str,
        arguments: JsonObject | str,
        call_id: str | None = None,
        tool: ToolView | None = None,
    ) -> CallRequest:
        """Return the request for a call, with what is known about the tool without contacting a server.

        A call by the user gets a new id. ``tool`` is the tool, if it has just been found visible.
        """
        id = f"call_{secrets.token_hex(8)}" if call_id is None else call_id
        if name in META_TOOLS:
            label = self.server_label(META_SERVER_ID)
            return CallRequest(id, name, META_TOOLS[name].id, label, native=True, arguments=arguments)
        if tool is not None:
            definition, server_label = tool.definition, tool.server_label
        elif (found := self._call_path.find_visible_tool(name, self.caller)) is not None:
            definition, server_label = found[0], self.server_label(found[0].server_id)
        else:
            return CallRequest(id, name, arguments=arguments)
        annotated_title = definition.annotations.get("title")
        return CallRequest(
            id,
            name,
            definition.id,
            server_label,
            definition.server_id == NATIVE_SERVER_ID,
            definition.title or (annotated_title if isinstance(annotated_title, str) else None) or None,
            arguments,
        )

    def find_called_server(self, call: CallRequest) -> str | None:
        """Return the id of the server that a call goes to, directly or through the meta tools; None if it is
        not known."""
        if call.tool is not None and call.name not in META_TOOLS:
            return server_of_tool(call.tool)
        return self._find_inner_server(call.name, call.arguments)

    def _find_inner_server(self, name: str, arguments: JsonObject | str) -> str | None:
        inner_call = self._parse_meta_call(name, arguments)
        found = (
            None
            if inner_call is None
            else self._call_path.find_visible_tool(inner_call[0], self.caller.on_surface(Surface.MODEL_META))
        )
        return None if found is None else found[0].server_id

    def _parse_meta_call(self, name: str, arguments: JsonObject | str) -> tuple[str, JsonObject] | None:
        """Return name and arguments of the call made through the meta tools; None if there is none or it is
        invalid.
        """
        if name != _CALL_META_TOOL_NAME or isinstance(arguments, str):
            return None
        try:
            tool_arguments = ToolArguments(META_TOOLS[name], arguments)
            return tool_arguments.require_text("name"), tool_arguments.get_object("arguments")
        except InvalidToolArgument:
            return None

    # Views. The tool set must belong to a chat without a selection of tools.

    async def list_views(self) -> list[ToolView]:
        """Return all tools sorted by name."""
        listing = await self.fetch_listing()
        listed = (self._view_tool(name, each) for name, each in listing.tools.items())
        views = [each async for each in iterate_in_steps(listed) if each is not None]
        views += self._view_quarantined_tools(listing)
        return sorted(views, key=lambda each: (each.name, each.id))

    async def find_view(self, name: str) -> ToolView | None:
        """Return the tool with a name, contacting as few servers as possible; None if there is none."""
        listing = await self.locate(name)
        if name in listing.tools:
            return self._view_tool(name, listing.tools[name])
        return next((each for each in self._view_quarantined_tools(listing) if each.name == name), None)

    def _view_tool(self, name: str, definition: Definition) -> ToolView | None:
        server_label = self.server_label(definition.server_id)
        if (found := self._call_path.find_visible_tool(name, self.caller)) is not None:
            return ToolView(name, definition, server_label, asks=found[1] is Verdict.ASK)
        try:
            return ToolView(name, definition, server_label, self.explain(name).decisive)
        except ToolRefused:
            return None

    def _view_quarantined_tools(self, listing: ToolListing) -> Iterator[ToolView]:
        """Yield rejected definitions, under their ids because they have no exposed name."""
        for rejected in listing.quarantined():
            if rejected.name is not None:
                definition = Definition(rejected.server_id, rejected.name)
                hiding = DecisionStep(DEFINITION_RULE_TITLE, RuleOutcome.REFUSE, rejected.reason)
                yield ToolView(definition.id, definition, self.server_label(definition.server_id), hiding)

    # Decisions.

    def explain(self, name: str) -> Decision:
        """Return the decision about a known tool. Raises ToolRefused for an unknown one."""
        return self._call_path.explain(name, self.caller)

    def find_required_approval(self, call: CallRequest, now: float) -> Approval | None:
        """Return the approval that a call needs, directly or through the meta tools, to be asked for.

        None if it needs none, or will be refused anyway.
        """
        assert not isinstance(call.arguments, str)
        name, arguments, caller = call.name, call.arguments, self.caller
        if (inner_call := self._parse_meta_call(name, arguments)) is not None:
            (name, arguments), caller = inner_call, caller.on_surface(Surface.MODEL_META)
        found = self._call_path.find_visible_tool(name, caller)
        if found is None or found[1] is not Verdict.ASK:
            return None
        definition, decisive = found[0], self._call_path.explain(name, caller).decisive
        reason = "" if decisive is None else decisive.reason
        return Approval(
            id=secrets.token_hex(12),
            owner=caller.principal.id,
            tool=definition.id,
            name=name,
            definition_hash=definition_hash(definition),
            arguments=arguments,
            reason=reason,
            asked_at=now,
            chat_id=caller.chat,
            call_id=call.id,
        )

    # Calling.

    async def call(self, call: ToolCall) -> CallOutcome:
        """Call a tool. Failures are returned as results that can be sent to a model, not raised."""
        self.attribute_to_owner()
        try:
            if call.name in META_TOOLS and self.caller.surface is not Surface.OPERATOR:
                return await self._call_meta_tool(call)
            result = await self._call_path.call(call, self.caller)
            return CallOutcome(result, not result.is_error)
        except ToolyardError as error:
            return CallOutcome(
                self._call_path.build_error_result(error, self.caller),
                False,
                self._find_reconnect_instance(error),
            )
        except Exception:
            # Boundary: this method promises not to raise. The turn continues, and the log has the details.
            log.exception("the call to '%s' failed", call.name[:64])
            result = Result(None, "the call failed inside Toolyard; see Toolyard's log", is_error=True)
            return CallOutcome(result, False)

    async def _call_meta_tool(self, call: ToolCall) -> CallOutcome:
        result = await self._meta_tools.call_for_result(call, self.caller)
        body: object = result.structured
        ok = isinstance(body, dict) and cast("JsonObject", body).get("ok") is True
        server_id = None if ok else self._find_inner_server(call.name, call.arguments)
        needs_sign_in = server_id is not None and self._needs_sign_in(server_id)
        return CallOutcome(
            result, ok, self._get_instance_id(server_id) if server_id is not None and needs_sign_in else None
        )

    def _find_reconnect_instance(self, error: ToolyardError) -> str | None:
        if not isinstance(error, ServerError):
            return None
        # After a refused sign-in, the server may fail with another error without being contacted again.
        needs_sign_in = isinstance(error, SignInNeeded) or self._needs_sign_in(error.server)
        return self._get_instance_id(error.server) if needs_sign_in else None

    def _needs_sign_in(self, server_id: str) -> bool:
        return self._manager.state(server_id, self.caller.principal) is State.NEEDS_AUTH

    def _get_instance_id(self, server_id: str) -> str | None:
        server = self.find_server(server_id)
        return None if server is None or server.instance is None else server.instance.id or None


@dataclass(frozen=True, slots=True)
class ToolView:
    """One tool for display.

    The tools selected for the chat are not considered: the picker edits that selection.
    """

    name: str
    definition: Definition
    server_label: str
    hiding: DecisionStep | None = None
    """Step of the rule that hides the tool; None if it is shown."""
    asks: bool = False
    """Each call needs an approval."""

    @property
    def shown(self) -> bool:
        return self.hiding is None

    @property
    def why(self) -> str:
        """Reason given by the rule that hides the tool; empty if it is shown."""
        return "" if self.hiding is None else self.hiding.reason

    @property
    def rule(self) -> str:
        """Name of the rule that hides the tool; empty if it is shown."""
        return "" if self.hiding is None else self.hiding.rule

    @property
    def id(self) -> str:
        return self.definition.id

    @property
    def server(self) -> str:
        return self.definition.server_id

    @property
    def native(self) -> bool:
        """True for a built-in tool."""
        return self.definition.server_id == NATIVE_SERVER_ID

    @property
    def title(self) -> str | None:
        return self.definition.title

    @property
    def description(self) -> str:
        return self.definition.description

    @property
    def input_schema(self) -> JsonObject:
        return self.definition.input_schema


class ToolSetSource(Protocol):
    """Resolves the owner, the agent and the tools of a chat. Each kind of process has an implementation."""

    async def load_tool_set(
        self, owner: str, chat: Chat | None, agent: Agent | None = None, user: User | None = None
    ) -> ToolSet:
        """Return the current tools of a chat, or without one those of a chat's owner.

        ``user`` is the owner, if the interface has just authenticated them. ``agent`` is used in place of the
        chat's agent, which may have been changed or deleted since. Raises ChatRefused if its owner was
        deleted or disabled, or its agent no longer exists.
        """
        ...

    async def release_chat(self, chat_id: str) -> None:
        """Close the connections dedicated to a chat."""
        ...
