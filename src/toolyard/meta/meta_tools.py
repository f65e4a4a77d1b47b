"""The five meta tools, answered: whatever a model sends, ``{ok: true, …}`` or ``{ok: false, error}``."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal, TypeAlias

from toolyard.catalog.search import summarize_description
from toolyard.catalog.token_estimate import estimate_definition_tokens
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients.call_path import CallPath, CallRoute
from toolyard.clients.session import OnProgress
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.errors import ApprovalNeeded, CallTimeout, ServerError, ToolyardError
from toolyard.meta.arguments import InvalidToolArgument, ToolArguments
from toolyard.meta.caller_search import CallerSearch
from toolyard.meta.compact_schema import make_compact_schema
from toolyard.meta.tool_definitions import MAX_DESCRIBED_TOOLS, MAX_LISTED_TOOLS, META_TOOLS
from toolyard.policy import build_refusal
from toolyard.results import ResultLimits, fence_untrusted_text
from toolyard.results.partial_read import ResultExcerpt, ResultReadError, read_lines, read_path, read_range
from toolyard.results.result_store import ResultStore, StoredResult, make_handle
from toolyard.types.call import Caller
from toolyard.types.decision import Surface
from toolyard.types.result import Media, Result, TextBlock
from toolyard.types.server import Trust
from toolyard.types.tool import Definition, JsonObject

__all__ = [
    "TOOLS_CALL_NAME",
    "MetaToolLimits",
    "MetaToolReply",
    "MetaTools",
    "ToolMode",
    "ToolOffer",
    "UnlistedServers",
    "missing_result_message",
    "with_direct_mode",
]


_MAX_NAMED_SERVERS = 5
_MAX_CAUSE_CHARS = 80


class UnlistedServers:
    """Says who is missing in what a caller is told, and why, so that a model knows to ask again."""

    def __init__(self, tool_directory: ToolDirectory, call_path: CallPath) -> None:
        self._tool_directory = tool_directory
        self._call_path = call_path

    def why(self, server_id: str, caller: Caller) -> str | None:
        """Why the tools of a server are not known; None where they are, or it is not there for the caller."""
        return self._find_reasons(caller, server_id).get(server_id)

    def line(self, caller: Caller) -> str | None:
        """All of them, the first few by their names; None where nobody is missing."""
        reasons = self._find_reasons(caller)
        if not reasons:
            return None
        named = [f"{server_id} ({reasons[server_id]})" for server_id in sorted(reasons)[:_MAX_NAMED_SERVERS]]
        if len(reasons) > _MAX_NAMED_SERVERS:
            named.append(f"{len(reasons) - _MAX_NAMED_SERVERS:,} more")
        return f"{', '.join(named)}; asking again may find their tools"

    def _find_reasons(self, caller: Caller, only: str | None = None) -> dict[str, str]:
        return {
            server_id: self._describe_reason(server_id, failure, caller)
            for server_id, failure in self._tool_directory.missing_servers(caller.principal).items()
            if only in (None, server_id) and self._call_path.can_reach(server_id, caller)
        }

    def _describe_reason(self, server_id: str, failure: ServerError | None, caller: Caller) -> str:
        if failure is None:
            return "has not answered yet"
        if self._call_path.trust(server_id, caller) is not Trust.TRUSTED:
            # The reason may be in the server's own words.
            return "cannot be listed"
        self._call_path.redact_error(failure)
        cause = " ".join(failure.cause.split())
        return cause if len(cause) <= _MAX_CAUSE_CHARS else f"{cause[: _MAX_CAUSE_CHARS - 1]}…"


ToolMode: TypeAlias = Literal["direct", "meta"]

TOOLS_CALL_NAME = "tools_call"
"""The meta tool that calls another."""
_log = logging.getLogger("toolyard.meta.surface")
_DEFAULT_SEARCH_LIMIT = 10
_DEFAULT_LIST_LIMIT = 64
_DEFAULT_READ_CHARS = 16_000
_SUMMARY_COLUMNS = 48
_MAX_CACHED_CALLERS = 256
_UNTRUSTED_SUMMARY = "(of an untrusted server: tools_describe shows its words)"
_TIMEOUT_HINT = "ask for less at once; whoever runs Toolyard may raise the setting meta_call_timeout"


@dataclass(frozen=True, slots=True)
class MetaToolLimits:
    """How much one answer may hold, in characters, and how long one call may take, in seconds.

    ``threshold`` is in tokens of definitions: above it an agent without a mode gets the meta tools; 0: never.
    """

    schema: int = 64_000
    result: int = 64_000
    description: int = 400
    seconds: float = 30.0
    threshold_tokens: int = 20_000


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """What a model is shown. ``because`` says why there are meta tools, where there are."""

    direct: Mapping[str, Definition]
    meta: Mapping[str, Definition] = field(default_factory=dict[str, Definition])
    because: str = ""


@dataclass(frozen=True, slots=True)
class MetaToolReply:
    """An answer, and the media of the result, which travel beside it."""

    body: dict[str, Any]
    media: tuple[Media, ...] = field(default=())


def with_direct_mode(caller: Caller) -> Caller:
    """The same caller, who asked for the tools themselves, whatever mode the agent has."""
    if caller.agent is None or caller.agent.mode != "meta":
        return caller
    return replace(caller, agent=replace(caller.agent, mode="direct"))


class MetaTools:
    """Meta mode, for every caller. What a caller reaches through it is decided by the same chain."""

    def __init__(
        self,
        tool_directory: ToolDirectory,
        call_path: CallPath,
        caller_search: CallerSearch,
        limits: MetaToolLimits = MetaToolLimits(),  # noqa: B008 - frozen
    ) -> None:
        self._tool_directory = tool_directory
        self._call_path = call_path
        self._caller_search = caller_search
        self._limits = limits
        self._unlisted_servers = UnlistedServers(tool_directory, call_path)
        self._meta_callers: OrderedDict[Caller, Caller] = OrderedDict()
        self._token_costs: OrderedDict[Caller, tuple[Mapping[str, Definition], int]] = OrderedDict()
        self._handlers: Mapping[
            str, Callable[[ToolArguments, Caller, OnProgress | None], Awaitable[MetaToolReply]]
        ] = {
            "result_read": self._read_result,
            TOOLS_CALL_NAME: self._call_tool,
            "tools_describe": self._describe_tools,
            "tools_list": self._list_tools,
            "tools_search": self._search_tools,
        }

    @property
    def seconds(self) -> float:
        """What one call may take, where its server's own limits are not shorter."""
        return self._limits.seconds

    def forget_principal(self, principal_id: str) -> None:
        """Forget what was prepared for a principal."""
        self._caller_search.forget_principal(principal_id)
        for caller in [each for each in self._meta_callers if each.principal.id == principal_id]:
            del self._meta_callers[caller]
        for caller in [each for each in self._token_costs if each.principal.id == principal_id]:
            del self._token_costs[caller]

    def search(self, listing: ToolListing, query: str, caller: Caller, limit: int) -> dict[str, Definition]:
        """The best tools for a query among those that this caller can reach, best first. Asks nobody."""
        if caller.surface is Surface.MODEL_DIRECT:
            caller = self._as_meta_caller(caller)
        hits = self._caller_search.search(listing, query, caller, limit)
        return {hit.name: listing.tools[hit.name] for hit in hits}

    def offer(self, listing: ToolListing, caller: Caller, mode: ToolMode | None = None) -> ToolOffer:
        """What to show this caller's model: direct tools, meta tools, or both, and why.

        ``mode`` decides where it is given. Otherwise the agent's does, and where it has none the cost. The
        meta tools come along where something can be reached through them only.
        """
        if mode == "direct":
            return ToolOffer(self._call_path.shown(listing, with_direct_mode(caller)))
        shown = self._call_path.shown(listing, caller)
        agent = caller.agent
        if mode == "meta":
            return ToolOffer({}, META_TOOLS, "meta mode was asked for")
        if agent is not None and agent.mode == "meta":
            return ToolOffer({}, META_TOOLS, f"agent '{agent.id}' has the mode meta")
        if caller.surface is not Surface.MODEL_DIRECT:
            return ToolOffer(shown)
        if agent is not None and agent.mode is None:
            cost, most = self._estimate_tokens(caller, shown), self._limits.threshold_tokens
            if 0 < most < cost:
                said = f"its tools would cost about {cost:,} tokens, more than {most:,}"
                return ToolOffer({}, META_TOOLS, said)
        if self._call_path.shown(listing, self._as_meta_caller(caller)).keys() - shown.keys():
            return ToolOffer(shown, META_TOOLS, "some tools can be reached through the meta tools only")
        return ToolOffer(shown)

    def _estimate_tokens(self, caller: Caller, shown: Mapping[str, Definition]) -> int:
        before = self._token_costs.get(caller)
        if before is None or before[0] is not shown:
            before = self._token_costs[caller] = (shown, sum(map(estimate_definition_tokens, shown.values())))
        self._token_costs.move_to_end(caller)
        while len(self._token_costs) > _MAX_CACHED_CALLERS:
            self._token_costs.popitem(last=False)
        return before[1]

    async def answer(self, name: str, arguments: object, caller: Caller) -> dict[str, Any]:
        """What a meta tool says. Never raises, whatever the name and the arguments are."""
        return (await self.call(name, arguments, caller)).body

    async def call(
        self,
        name: str,
        arguments: object,
        caller: Caller,
        *,
        on_progress: OnProgress | None = None,
        raise_approval_needed: bool = False,
        route: CallRoute | None = None,
    ) -> MetaToolReply:
        """As ``answer``, with the media of a call's result. ``asks``: raises ApprovalNeeded, for whoever can
        ask somebody. ``via`` takes a call to its server."""
        answer = (
            self._handlers.get(name)
            if route is None or name != TOOLS_CALL_NAME
            else partial(self._call_tool, via=route)
        )
        if answer is None:
            return _error_reply(f"there is no meta tool '{name[:64]}'", f"there are: {', '.join(META_TOOLS)}")
        try:
            return await answer(
                ToolArguments(META_TOOLS[name], arguments), self._as_meta_caller(caller), on_progress
            )
        except (InvalidToolArgument, ResultReadError) as error:
            return _error_reply(str(error))
        except ToolyardError as error:
            if raise_approval_needed and isinstance(error, ApprovalNeeded):
                raise
            return self._reply_to_error(error, caller)
        except Exception:  # noqa: BLE001 - see below
            # The boundary of the promise: a model's turn goes on, and the log says what we did wrong.
            _log.exception("meta tool %s", name)
            return _error_reply(f"{name} failed inside Toolyard; its log says why")

    def _reply_to_error(self, error: ToolyardError, caller: Caller) -> MetaToolReply:
        result = self._call_path.build_error_result(error, caller, ResultLimits(self._limits.result))
        return _error_reply(result.text if result.cause is None else f"{result.text}: {result.cause}")

    async def result(
        self,
        name: str,
        arguments: object,
        caller: Caller,
        *,
        on_progress: OnProgress | None = None,
        raise_approval_needed: bool = False,
        route: CallRoute | None = None,
    ) -> Result:
        """As ``reply``, as the result of a call: its text is the answer in JSON."""
        return _reply_to_result(
            await self.call(
                name,
                arguments,
                caller,
                on_progress=on_progress,
                raise_approval_needed=raise_approval_needed,
                route=route,
            )
        )

    def build_error_result(self, error: ToolyardError, caller: Caller) -> Result:
        """What a call through the meta tools comes to that was not made, as its result."""
        return _reply_to_result(self._reply_to_error(error, caller))

    async def has_stored_results(self, caller: Caller) -> bool:
        """Whether there is something for ``result_read`` to read."""
        return caller.surface is not Surface.OPERATOR and await self._get_result_store(caller).has_any()

    # The tools. No list waits for a server that is slow or dead; it says who is missing.

    async def _search_tools(
        self, given: ToolArguments, caller: Caller, _: OnProgress | None
    ) -> MetaToolReply:
        query, limit = given.text("query"), given.number("limit", _DEFAULT_SEARCH_LIMIT, 1, MAX_LISTED_TOOLS)
        roster = await self._tool_directory.refresh_within_deadline(caller.principal, chat=caller.chat)
        found = self.search(roster, query, caller, limit)
        body: dict[str, Any] = {"tools": self._summarize_tools(found, caller)}
        if not found:
            total = len(self._call_path.shown(roster, caller))
            body["hint"] = f"nothing matches; other words may, and tools_list lists all {total:,} tools"
        return self._reply_with_unlisted(body, caller)

    async def _list_tools(self, given: ToolArguments, caller: Caller, _: OnProgress | None) -> MetaToolReply:
        server, offset = given.get_text("server"), given.number("offset", 0, 0)
        limit = given.number("limit", _DEFAULT_LIST_LIMIT, 1, MAX_LISTED_TOOLS)
        only = (server,) if server is not None and self._call_path.can_reach(server, caller) else None
        roster = await self._tool_directory.refresh_within_deadline(
            caller.principal, only=only, chat=caller.chat
        )
        shown = self._call_path.shown(roster, caller)
        if server is not None:
            servers = {definition.server_id for definition in shown.values()}
            if server not in servers:
                return self._unknown_server_reply(server, servers, caller)
            shown = {name: tool for name, tool in shown.items() if tool.server_id == server}
        names = list(shown)[offset : offset + limit]
        body: dict[str, Any] = {
            "tools": self._summarize_tools({name: shown[name] for name in names}, caller),
            "total": len(shown),
        }
        if offset + len(names) < len(shown):
            body["next_offset"] = offset + len(names)
        return self._reply_with_unlisted(body, caller) if server is None else _ok_reply(**body)

    def _unknown_server_reply(self, server: str, servers: Collection[str], caller: Caller) -> MetaToolReply:
        if (why := self._unlisted_servers.why(server, caller)) is not None:
            return _error_reply(
                f"the tools of server '{server}' are not known yet: it {why}", "ask again later"
            )
        near = get_close_matches(server, sorted(servers), n=1)
        hint = f"did you mean '{near[0]}'?" if near else "tools_list without a server lists all tools"
        return _error_reply(f"there is no server '{server[:64]}' here", hint)

    async def _describe_tools(
        self, given: ToolArguments, caller: Caller, _: OnProgress | None
    ) -> MetaToolReply:
        names = given.texts("names", MAX_DESCRIBED_TOOLS)
        # By what the caller sees: how long it takes must not tell of anything hidden.
        known = self._call_path.shown(self._tool_directory.known_listing(caller.principal), caller)
        owners = {known[name].server_id for name in names if name in known}
        only = owners if known.keys() >= set(names) else None
        roster = await self._tool_directory.refresh_within_deadline(
            caller.principal, only=only, chat=caller.chat
        )
        shown = self._call_path.shown(roster, caller)
        tools: dict[str, Any] = {}
        room = self._limits.schema
        for name in names:
            definition = shown.get(name)
            if definition is None:
                tools[name[:64]] = {"error": _format_error(build_refusal(name, shown))}
                continue
            told = await self._build_description(definition, caller, room)
            room = max(0, room - _json_length(told))
            tools[name] = told
        errors = [told["error"] for told in tools.values() if "error" in told]
        if len(errors) < len(tools):
            return self._reply_with_unlisted({"tools": tools}, caller) if errors else _ok_reply(tools=tools)
        line = self._unlisted_servers.line(caller)
        return _error_reply(" ".join(errors) if line is None else f"{' '.join(errors)} Not listed: {line}")

    def _reply_with_unlisted(self, body: dict[str, Any], caller: Caller) -> MetaToolReply:
        """An answer that says whose tools are not in it."""
        line = self._unlisted_servers.line(caller)
        return _ok_reply(**body) if line is None else _ok_reply(**body, not_listed=line)

    async def _call_tool(
        self,
        given: ToolArguments,
        caller: Caller,
        on_progress: OnProgress | None,
        via: CallRoute | None = None,
    ) -> MetaToolReply:
        name, arguments = given.text("name"), given.get_object("arguments")
        if name in META_TOOLS:
            return _error_reply(f"'{name}' is called by itself, not through tools_call")
        try:
            result = await self._call_path.call(
                name,
                arguments,
                caller,
                on_progress=on_progress,
                timeouts=self.seconds,
                limits=ResultLimits(self._limits.result),
                route=via,
            )
        except CallTimeout as error:
            # A list that took too long has the limits of its server, which the error names; so has a call
            # where those are shorter.
            if error.cause.startswith("tools/call") and f" {self.seconds:g} s" in error.cause:
                error.hint = _TIMEOUT_HINT
            raise
        if result.is_error:
            return MetaToolReply({"ok": False, "error": result.text}, result.media)
        body: dict[str, Any] = {"ok": True, "result": result.text}
        if result.handle is not None:
            body["handle"] = result.handle
        return MetaToolReply(body, result.media)

    async def _read_result(self, given: ToolArguments, caller: Caller, _: OnProgress | None) -> MetaToolReply:
        handle, offset = given.text("handle"), given.number("offset", 0, 0)
        words, path = given.get_text("grep"), given.get_text("path")
        most = self._limits.result
        length = given.number("length", min(_DEFAULT_READ_CHARS, most), 1, most)
        if words is not None and path is not None:
            raise InvalidToolArgument("give 'grep' or 'path', not both")
        kept = await self._get_result_store(caller).read(handle)
        if kept is None or not self._call_path.is_in_token_scope(kept.server, caller):
            return _error_reply(missing_result_message(handle))
        # In a thread: the whole of a long result is gone through, and others must not wait for that.
        if words is not None:
            return _excerpt_reply(await asyncio.to_thread(read_lines, kept, words, offset, length), "lines")
        if path is not None:
            return _excerpt_reply(await asyncio.to_thread(read_path, kept, path, offset, length), "total")
        return _excerpt_reply(await asyncio.to_thread(read_range, kept, offset, length), "total")

    # What they are made of.

    def _as_meta_caller(self, caller: Caller) -> Caller:
        """The same caller, coming through the meta tools."""
        if caller.surface is Surface.MODEL_META:
            return caller
        through = self._meta_callers.get(caller)
        if through is None:
            through = self._meta_callers[caller] = replace(caller, surface=Surface.MODEL_META)
        self._meta_callers.move_to_end(caller)
        while len(self._meta_callers) > _MAX_CACHED_CALLERS:
            self._meta_callers.popitem(last=False)
        return through

    def _get_result_store(self, caller: Caller) -> ResultStore:
        return self._call_path.result_store(caller.principal)

    def _summarize_tools(self, tools: Mapping[str, Definition], caller: Caller) -> dict[str, str]:
        return {
            name: summarize_description(tool.description or tool.title or "", _SUMMARY_COLUMNS)
            if self._is_trusted(tool, caller)
            else _UNTRUSTED_SUMMARY
            for name, tool in tools.items()
        }

    def _is_trusted(self, tool: Definition, caller: Caller) -> bool:
        return self._call_path.trust(tool.server_id, caller) is Trust.TRUSTED

    async def _build_description(self, tool: Definition, caller: Caller, room: int) -> dict[str, Any]:
        """A definition within the budget. What does not fit is kept for ``result_read``."""
        description = tool.description
        if len(description) > self._limits.description:
            description = description[: self._limits.description - 1] + "…"
        told: dict[str, Any] = {
            "description": description,
            "input_schema": make_compact_schema(tool.input_schema),
        }
        trust = self._call_path.trust(tool.server_id, caller)
        text = json.dumps(told, ensure_ascii=False, default=str)
        if len(text) > room:
            schema = json.dumps(tool.input_schema, ensure_ascii=False, default=str)
            kept = StoredResult(schema, trust, tool.server_id)
            handle = make_handle(kept)
            await self._get_result_store(caller).save(handle, kept)
            note = f"its schema has {len(schema):,} characters, more than there is room for: use result_read"
            told = {"description": description, "note": note, "handle": handle}
            text = json.dumps({"description": description}, ensure_ascii=False)
        if trust is Trust.TRUSTED:
            return told
        fenced = {key: told[key] for key in ("note", "handle") if key in told}
        return {"definition": fence_untrusted_text(text, tool.server_id), **fenced}


def missing_result_message(handle: str) -> str:
    """The words for a handle that expired, is another's or was made up: the same."""
    return f"there is no result '{handle[:64]}' here: it may have expired; call the tool again"


def _excerpt_reply(part: ResultExcerpt, count_key: str) -> MetaToolReply:
    body: dict[str, Any] = {"text": part.text, count_key: part.total}
    if part.next_offset is not None:
        body["next_offset"] = part.next_offset
    if part.note is not None:
        body["note"] = part.note
    return _ok_reply(**body)


def _ok_reply(**body: Any) -> MetaToolReply:
    return MetaToolReply({"ok": True, **body})


def _reply_to_result(reply: MetaToolReply) -> Result:
    text = json.dumps(reply.body, ensure_ascii=False, separators=(",", ":"), default=str)
    raw = {"content": [{"type": "text", "text": text}], "structuredContent": reply.body}
    return Result(raw, text, blocks=(TextBlock(text), *reply.media))


def _error_reply(error: str, hint: str | None = None) -> MetaToolReply:
    return MetaToolReply({"ok": False, "error": f"{error} ({hint})" if hint else error})


def _format_error(error: ToolyardError) -> str:
    return f"{error.cause} ({error.hint})" if error.hint else error.cause


def _json_length(told: JsonObject) -> int:
    return len(json.dumps(told, ensure_ascii=False, default=str))
