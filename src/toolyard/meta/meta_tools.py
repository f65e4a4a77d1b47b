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

from toolyard.catalog.search import brief
from toolyard.catalog.token_estimate import estimate_definition
from toolyard.catalog.tool_listing import Roster
from toolyard.clients.call_path import CallPath, Via
from toolyard.clients.session import OnProgress
from toolyard.clients.tool_directory import Rosters
from toolyard.errors import ApprovalNeeded, CallTimeout, ToolyardError
from toolyard.meta.arguments import BadArgument, Given
from toolyard.meta.caller_search import Finder
from toolyard.meta.compact_schema import slim
from toolyard.meta.tool_definitions import META_TOOLS, MOST_LISTED, MOST_NAMES
from toolyard.meta.unlisted_servers import Missing
from toolyard.policy import refused
from toolyard.results import Limits, fence
from toolyard.results.partial_read import Part, Unreadable, read_lines, read_path, read_range
from toolyard.results.result_store import Handles, Kept, handle_of
from toolyard.types.call import Caller
from toolyard.types.decision import Surface
from toolyard.types.result import Media, Result, Text
from toolyard.types.server import Trust
from toolyard.types.tool import Definition, JsonObject

__all__ = ["CALL", "Budgets", "MetaTools", "Mode", "Offer", "Reply", "directly", "no_result"]

Mode: TypeAlias = Literal["direct", "meta"]

CALL = "tools_call"
"""The meta tool that calls another."""
_log = logging.getLogger("toolyard.meta.surface")
_FOUND = 10
_LISTED = 64
_READ = 16_000
_LINE = 48
_CALLERS = 256
_UNTRUSTED = "(of an untrusted server: tools_describe shows its words)"
_TOO_LONG = "ask for less at once; whoever runs Toolyard may raise the setting meta_call_timeout"


@dataclass(frozen=True, slots=True)
class Budgets:
    """How much one answer may hold, in characters, and how long one call may take, in seconds.

    ``threshold`` is in tokens of definitions: above it an agent without a mode gets the meta tools; 0: never.
    """

    schema: int = 64_000
    result: int = 64_000
    description: int = 400
    seconds: float = 30.0
    threshold: int = 20_000


@dataclass(frozen=True, slots=True)
class Offer:
    """What a model is shown. ``because`` says why there are meta tools, where there are."""

    direct: Mapping[str, Definition]
    meta: Mapping[str, Definition] = field(default_factory=dict[str, Definition])
    because: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and the media of the result, which travel beside it."""

    body: dict[str, Any]
    media: tuple[Media, ...] = field(default=())


def directly(caller: Caller) -> Caller:
    """The same caller, who asked for the tools themselves, whatever mode the agent has."""
    if caller.agent is None or caller.agent.mode != "meta":
        return caller
    return replace(caller, agent=replace(caller.agent, mode="direct"))


class MetaTools:
    """Meta mode, for every caller. What a caller reaches through it is decided by the same chain."""

    def __init__(
        self,
        rosters: Rosters,
        calls: CallPath,
        finder: Finder,
        budgets: Budgets = Budgets(),  # noqa: B008 - frozen
    ) -> None:
        self._rosters = rosters
        self._calls = calls
        self._finder = finder
        self._budgets = budgets
        self._missing = Missing(rosters, calls)
        self._callers: OrderedDict[Caller, Caller] = OrderedDict()
        self._costs: OrderedDict[Caller, tuple[Mapping[str, Definition], int]] = OrderedDict()
        self._tools: Mapping[str, Callable[[Given, Caller, OnProgress | None], Awaitable[Reply]]] = {
            "result_read": self._read,
            CALL: self._call,
            "tools_describe": self._describe,
            "tools_list": self._list,
            "tools_search": self._search,
        }

    @property
    def seconds(self) -> float:
        """What one call may take, where its server's own limits are not shorter."""
        return self._budgets.seconds

    def leave(self, principal_id: str) -> None:
        """Forget what was prepared for a principal."""
        self._finder.leave(principal_id)
        for caller in [each for each in self._callers if each.principal.id == principal_id]:
            del self._callers[caller]
        for caller in [each for each in self._costs if each.principal.id == principal_id]:
            del self._costs[caller]

    def search(self, roster: Roster, query: str, caller: Caller, limit: int) -> dict[str, Definition]:
        """The best tools for a query among those that this caller can reach, best first. Asks nobody."""
        if caller.surface is Surface.MODEL_DIRECT:
            caller = self._through(caller)
        hits = self._finder.search(roster, query, caller, limit)
        return {hit.name: roster.tools[hit.name] for hit in hits}

    def offer(self, roster: Roster, caller: Caller, mode: Mode | None = None) -> Offer:
        """What to show this caller's model: direct tools, meta tools, or both, and why.

        ``mode`` decides where it is given. Otherwise the agent's does, and where it has none the cost. The
        meta tools come along where something can be reached through them only.
        """
        if mode == "direct":
            return Offer(self._calls.shown(roster, directly(caller)))
        shown = self._calls.shown(roster, caller)
        agent = caller.agent
        if mode == "meta":
            return Offer({}, META_TOOLS, "meta mode was asked for")
        if agent is not None and agent.mode == "meta":
            return Offer({}, META_TOOLS, f"agent '{agent.id}' has the mode meta")
        if caller.surface is not Surface.MODEL_DIRECT:
            return Offer(shown)
        if agent is not None and agent.mode is None:
            cost, most = self._cost(caller, shown), self._budgets.threshold
            if 0 < most < cost:
                said = f"its tools would cost about {cost:,} tokens, more than {most:,}"
                return Offer({}, META_TOOLS, said)
        if self._calls.shown(roster, self._through(caller)).keys() - shown.keys():
            return Offer(shown, META_TOOLS, "some tools can be reached through the meta tools only")
        return Offer(shown)

    def _cost(self, caller: Caller, shown: Mapping[str, Definition]) -> int:
        before = self._costs.get(caller)
        if before is None or before[0] is not shown:
            before = self._costs[caller] = (shown, sum(map(estimate_definition, shown.values())))
        self._costs.move_to_end(caller)
        while len(self._costs) > _CALLERS:
            self._costs.popitem(last=False)
        return before[1]

    async def answer(self, name: str, arguments: object, caller: Caller) -> dict[str, Any]:
        """What a meta tool says. Never raises, whatever the name and the arguments are."""
        return (await self.reply(name, arguments, caller)).body

    async def reply(
        self,
        name: str,
        arguments: object,
        caller: Caller,
        *,
        on_progress: OnProgress | None = None,
        asks: bool = False,
        via: Via | None = None,
    ) -> Reply:
        """As ``answer``, with the media of a call's result. ``asks``: raises ApprovalNeeded, for whoever can
        ask somebody. ``via`` takes a call to its server."""
        answer = self._tools.get(name) if via is None or name != CALL else partial(self._call, via=via)
        if answer is None:
            return _failed(f"there is no meta tool '{name[:64]}'", f"there are: {', '.join(META_TOOLS)}")
        try:
            return await answer(Given(META_TOOLS[name], arguments), self._through(caller), on_progress)
        except (BadArgument, Unreadable) as error:
            return _failed(str(error))
        except ToolyardError as error:
            if asks and isinstance(error, ApprovalNeeded):
                raise
            return self._refusal(error, caller)
        except Exception:  # noqa: BLE001 - see below
            # The boundary of the promise: a model's turn goes on, and the log says what we did wrong.
            _log.exception("meta tool %s", name)
            return _failed(f"{name} failed inside Toolyard; its log says why")

    def _refusal(self, error: ToolyardError, caller: Caller) -> Reply:
        result = self._calls.failed(error, caller, Limits(self._budgets.result))
        return _failed(result.text if result.cause is None else f"{result.text}: {result.cause}")

    async def result(
        self,
        name: str,
        arguments: object,
        caller: Caller,
        *,
        on_progress: OnProgress | None = None,
        asks: bool = False,
        via: Via | None = None,
    ) -> Result:
        """As ``reply``, as the result of a call: its text is the answer in JSON."""
        return _as_result(
            await self.reply(name, arguments, caller, on_progress=on_progress, asks=asks, via=via)
        )

    def refused(self, error: ToolyardError, caller: Caller) -> Result:
        """What a call through the meta tools comes to that was not made, as its result."""
        return _as_result(self._refusal(error, caller))

    async def has_results(self, caller: Caller) -> bool:
        """Whether there is something for ``result_read`` to read."""
        return caller.surface is not Surface.OPERATOR and await self._handles(caller).has_any()

    # The tools. No list waits for a server that is slow or dead; it says who is missing.

    async def _search(self, given: Given, caller: Caller, _: OnProgress | None) -> Reply:
        query, limit = given.text("query"), given.number("limit", _FOUND, 1, MOST_LISTED)
        roster = await self._rosters.soon(caller.principal, chat=caller.chat)
        found = self.search(roster, query, caller, limit)
        body: dict[str, Any] = {"tools": self._lines(found, caller)}
        if not found:
            total = len(self._calls.shown(roster, caller))
            body["hint"] = f"nothing matches; other words may, and tools_list lists all {total:,} tools"
        return self._telling(body, caller)

    async def _list(self, given: Given, caller: Caller, _: OnProgress | None) -> Reply:
        server, offset = given.text_or_none("server"), given.number("offset", 0, 0)
        limit = given.number("limit", _LISTED, 1, MOST_LISTED)
        only = (server,) if server is not None and self._calls.reaches(server, caller) else None
        roster = await self._rosters.soon(caller.principal, only=only, chat=caller.chat)
        shown = self._calls.shown(roster, caller)
        if server is not None:
            servers = {definition.server_id for definition in shown.values()}
            if server not in servers:
                return self._no_server(server, servers, caller)
            shown = {name: tool for name, tool in shown.items() if tool.server_id == server}
        names = list(shown)[offset : offset + limit]
        body: dict[str, Any] = {
            "tools": self._lines({name: shown[name] for name in names}, caller),
            "total": len(shown),
        }
        if offset + len(names) < len(shown):
            body["next_offset"] = offset + len(names)
        return self._telling(body, caller) if server is None else _ok(**body)

    def _no_server(self, server: str, servers: Collection[str], caller: Caller) -> Reply:
        if (why := self._missing.why(server, caller)) is not None:
            return _failed(f"the tools of server '{server}' are not known yet: it {why}", "ask again later")
        near = get_close_matches(server, sorted(servers), n=1)
        hint = f"did you mean '{near[0]}'?" if near else "tools_list without a server lists all tools"
        return _failed(f"there is no server '{server[:64]}' here", hint)

    async def _describe(self, given: Given, caller: Caller, _: OnProgress | None) -> Reply:
        names = given.texts("names", MOST_NAMES)
        # By what the caller sees: how long it takes must not tell of anything hidden.
        known = self._calls.shown(self._rosters.known(caller.principal), caller)
        owners = {known[name].server_id for name in names if name in known}
        only = owners if known.keys() >= set(names) else None
        roster = await self._rosters.soon(caller.principal, only=only, chat=caller.chat)
        shown = self._calls.shown(roster, caller)
        tools: dict[str, Any] = {}
        room = self._budgets.schema
        for name in names:
            definition = shown.get(name)
            if definition is None:
                tools[name[:64]] = {"error": _said(refused(name, shown))}
                continue
            told = await self._told(definition, caller, room)
            room = max(0, room - _length(told))
            tools[name] = told
        errors = [told["error"] for told in tools.values() if "error" in told]
        if len(errors) < len(tools):
            return self._telling({"tools": tools}, caller) if errors else _ok(tools=tools)
        line = self._missing.line(caller)
        return _failed(" ".join(errors) if line is None else f"{' '.join(errors)} Not listed: {line}")

    def _telling(self, body: dict[str, Any], caller: Caller) -> Reply:
        """An answer that says whose tools are not in it."""
        line = self._missing.line(caller)
        return _ok(**body) if line is None else _ok(**body, not_listed=line)

    async def _call(
        self, given: Given, caller: Caller, on_progress: OnProgress | None, via: Via | None = None
    ) -> Reply:
        name, arguments = given.text("name"), given.object("arguments")
        if name in META_TOOLS:
            return _failed(f"'{name}' is called by itself, not through tools_call")
        try:
            result = await self._calls.call(
                name,
                arguments,
                caller,
                on_progress=on_progress,
                timeouts=self.seconds,
                limits=Limits(self._budgets.result),
                via=via,
            )
        except CallTimeout as error:
            # A list that took too long has the limits of its server, which the error names; so has a call
            # where those are shorter.
            if error.cause.startswith("tools/call") and f" {self.seconds:g} s" in error.cause:
                error.hint = _TOO_LONG
            raise
        if result.is_error:
            return Reply({"ok": False, "error": result.text}, result.media)
        body: dict[str, Any] = {"ok": True, "result": result.text}
        if result.handle is not None:
            body["handle"] = result.handle
        return Reply(body, result.media)

    async def _read(self, given: Given, caller: Caller, _: OnProgress | None) -> Reply:
        handle, offset = given.text("handle"), given.number("offset", 0, 0)
        words, path = given.text_or_none("grep"), given.text_or_none("path")
        most = self._budgets.result
        length = given.number("length", min(_READ, most), 1, most)
        if words is not None and path is not None:
            raise BadArgument("give 'grep' or 'path', not both")
        kept = await self._handles(caller).read(handle)
        if kept is None or not self._calls.covers(kept.server, caller):
            return _failed(no_result(handle))
        # In a thread: the whole of a long result is gone through, and others must not wait for that.
        if words is not None:
            return _part(await asyncio.to_thread(read_lines, kept, words, offset, length), "lines")
        if path is not None:
            return _part(await asyncio.to_thread(read_path, kept, path, offset, length), "total")
        return _part(await asyncio.to_thread(read_range, kept, offset, length), "total")

    # What they are made of.

    def _through(self, caller: Caller) -> Caller:
        """The same caller, coming through the meta tools."""
        if caller.surface is Surface.MODEL_META:
            return caller
        through = self._callers.get(caller)
        if through is None:
            through = self._callers[caller] = replace(caller, surface=Surface.MODEL_META)
        self._callers.move_to_end(caller)
        while len(self._callers) > _CALLERS:
            self._callers.popitem(last=False)
        return through

    def _handles(self, caller: Caller) -> Handles:
        return self._calls.handles(caller.principal)

    def _lines(self, tools: Mapping[str, Definition], caller: Caller) -> dict[str, str]:
        return {
            name: brief(tool.description or tool.title or "", _LINE)
            if self._trusted(tool, caller)
            else _UNTRUSTED
            for name, tool in tools.items()
        }

    def _trusted(self, tool: Definition, caller: Caller) -> bool:
        return self._calls.trust(tool.server_id, caller) is Trust.TRUSTED

    async def _told(self, tool: Definition, caller: Caller, room: int) -> dict[str, Any]:
        """A definition within the budget. What does not fit is kept for ``result_read``."""
        description = tool.description
        if len(description) > self._budgets.description:
            description = description[: self._budgets.description - 1] + "…"
        told: dict[str, Any] = {"description": description, "input_schema": slim(tool.input_schema)}
        trust = self._calls.trust(tool.server_id, caller)
        text = json.dumps(told, ensure_ascii=False, default=str)
        if len(text) > room:
            schema = json.dumps(tool.input_schema, ensure_ascii=False, default=str)
            kept = Kept(schema, trust, tool.server_id)
            handle = handle_of(kept)
            await self._handles(caller).keep(handle, kept)
            note = f"its schema has {len(schema):,} characters, more than there is room for: use result_read"
            told = {"description": description, "note": note, "handle": handle}
            text = json.dumps({"description": description}, ensure_ascii=False)
        if trust is Trust.TRUSTED:
            return told
        fenced = {key: told[key] for key in ("note", "handle") if key in told}
        return {"definition": fence(text, tool.server_id), **fenced}


def no_result(handle: str) -> str:
    """The words for a handle that expired, is another's or was made up: the same."""
    return f"there is no result '{handle[:64]}' here: it may have expired; call the tool again"


def _part(part: Part, counted: str) -> Reply:
    body: dict[str, Any] = {"text": part.text, counted: part.total}
    if part.next_offset is not None:
        body["next_offset"] = part.next_offset
    if part.note is not None:
        body["note"] = part.note
    return _ok(**body)


def _ok(**body: Any) -> Reply:
    return Reply({"ok": True, **body})


def _as_result(reply: Reply) -> Result:
    text = json.dumps(reply.body, ensure_ascii=False, separators=(",", ":"), default=str)
    raw = {"content": [{"type": "text", "text": text}], "structuredContent": reply.body}
    return Result(raw, text, blocks=(Text(text), *reply.media))


def _failed(error: str, hint: str | None = None) -> Reply:
    return Reply({"ok": False, "error": f"{error} ({hint})" if hint else error})


def _said(error: ToolyardError) -> str:
    return f"{error.cause} ({error.hint})" if error.hint else error.cause


def _length(told: JsonObject) -> int:
    return len(json.dumps(told, ensure_ascii=False, default=str))
