"""The five meta tools. Every reply is ``{ok: true, …}`` or ``{ok: false, error}``, for any input."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from toolyard.catalog.search import summarize_description
from toolyard.catalog.token_costs import estimate_definition_tokens
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients.call_path import CallPath
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.errors import ApprovalNeeded, CallTimeout, ServerError, ToolyardError
from toolyard.meta_tools.arguments import InvalidToolArgument, ToolArguments
from toolyard.meta_tools.caller_search import CallerSearch
from toolyard.meta_tools.tool_definitions import (
    MAX_DESCRIBED_TOOLS,
    MAX_LISTED_TOOLS,
    META_TOOLS,
    make_compact_schema,
)
from toolyard.policy import build_refusal
from toolyard.results import ResultLimits, fence_untrusted_text
from toolyard.results.partial_read import ResultExcerpt, ResultReadError, read_lines, read_path, read_range
from toolyard.results.result_store import ResultStore, StoredResult, make_handle
from toolyard.types.call import Caller, Surface, ToolCall
from toolyard.types.server import Trust
from toolyard.types.tool import Definition, JsonObject, Media, Result, TextBlock

__all__ = [
    "TOOLS_CALL_NAME",
    "ExposedTools",
    "MetaToolLimits",
    "MetaToolReply",
    "MetaTools",
    "ToolMode",
    "UnlistedServers",
    "missing_result_message",
    "with_direct_mode",
]


_MAX_NAMED_SERVERS = 5
_MAX_CAUSE_CHARS = 80


class UnlistedServers:
    """Describes servers with tools missing from a listing, so that a model can try again."""

    def __init__(self, tool_directory: ToolDirectory, call_path: CallPath) -> None:
        self._tool_directory = tool_directory
        self._call_path = call_path

    def explain(self, server_id: str, caller: Caller) -> str | None:
        """Return why a server's tools are unknown; None if they are known or the caller cannot reach it."""
        return self._find_reasons(caller, server_id).get(server_id)

    def summarize(self, caller: Caller) -> str | None:
        """Return a line about all such servers, the first few by name; None if there are none."""
        reasons = self._find_reasons(caller)
        if not reasons:
            return None
        named = [f"{server_id} ({reasons[server_id]})" for server_id in sorted(reasons)[:_MAX_NAMED_SERVERS]]
        if len(reasons) > _MAX_NAMED_SERVERS:
            named.append(f"{len(reasons) - _MAX_NAMED_SERVERS:,} more")
        return f"{', '.join(named)}; try again later to see their tools"

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
            # The reason may contain text from the server.
            return "cannot be listed"
        self._call_path.redact_error(failure)
        cause = " ".join(failure.cause.split())
        return cause if len(cause) <= _MAX_CAUSE_CHARS else f"{cause[: _MAX_CAUSE_CHARS - 1]}…"


ToolMode: TypeAlias = Literal["direct", "meta"]

TOOLS_CALL_NAME = "tools_call"
"""Name of the meta tool that calls another tool."""
_log = logging.getLogger("toolyard.meta.surface")
_DEFAULT_SEARCH_LIMIT = 10
_DEFAULT_LIST_LIMIT = 64
_DEFAULT_READ_CHARS = 16_000
_SUMMARY_COLUMNS = 48
_UNTRUSTED_SUMMARY = "(untrusted server: tools_describe shows its description)"
_TIMEOUT_HINT = "request less at once, or ask an admin to raise the setting meta_call_timeout"


@dataclass(frozen=True, slots=True)
class MetaToolLimits:
    """Maximum sizes of replies in characters, and the maximum duration of a call in seconds.

    If the definitions of an agent's tools take more than ``threshold_tokens`` and it has no mode, it gets the
    meta tools; so does a chat without an agent. 0 disables this. ``chat_tools`` is the number of definitions
    above which a chat gets them as well, because providers refuse requests with more.
    """

    schema_chars: int = 64_000
    result_chars: int = 64_000
    description_chars: int = 400
    call_seconds: float = 30.0
    threshold_tokens: int = 20_000
    chat_tools: int = 128


_NO_TOOLS: Mapping[str, Definition] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ExposedTools:
    """Tools to offer to a model.

    Equal selections have the same objects, by which the gateway recognises a list that it has encoded.
    """

    direct: Mapping[str, Definition]
    """By exposed name."""
    meta: Mapping[str, Definition] = field(default_factory=lambda: _NO_TOOLS)
    """The meta tools, by name; empty if they are not offered."""
    meta_reason: str = ""
    """Reason for offering meta tools, if they are offered."""


@dataclass(frozen=True, slots=True)
class MetaToolReply:
    """Body of a reply, and the media of a called tool's result, which are passed separately."""

    body: dict[str, Any]
    media: tuple[Media, ...] = field(default=())


def with_direct_mode(caller: Caller) -> Caller:
    """Return the caller with its agent's mode changed from "meta" to "direct"."""
    if caller.agent is None or caller.agent.mode != "meta":
        return caller
    return replace(caller, agent=replace(caller.agent, mode="direct"))


class MetaTools:
    """Implementation of the meta tools for all callers.

    Access is decided by the same policy as for direct calls.
    """

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
        self._handlers: Mapping[str, Callable[[ToolArguments, Caller], Awaitable[MetaToolReply]]] = {
            "result_read": self._read_result,
            "tools_describe": self._describe_tools,
            "tools_list": self._list_tools,
            "tools_search": self._search_tools,
        }

    @property
    def call_timeout_seconds(self) -> float:
        """Maximum duration of one call, unless its server has a shorter limit."""
        return self._limits.call_seconds

    def forget_principal(self, principal_id: str) -> None:
        """Drop all cached data of a principal."""
        self._caller_search.forget_principal(principal_id)

    async def search(
        self, listing: ToolListing, query: str, caller: Caller, limit: int
    ) -> dict[str, Definition]:
        """Return the best tools for a query that the caller can reach, best first; for a query without words
        the first tools by server. Contacts no server."""
        if caller.surface is Surface.MODEL_DIRECT:
            caller = caller.on_surface(Surface.MODEL_META)
        if not query.strip():
            shown = self._call_path.visible_tools(listing, caller)
            names = sorted(shown, key=lambda name: (shown[name].server_id, name))
            return {name: shown[name] for name in names[:limit]}
        hits = await self._caller_search.search(listing, query, caller, limit)
        return {hit.name: listing.tools[hit.name] for hit in hits}

    def select_exposed_tools(
        self, listing: ToolListing, caller: Caller, mode: ToolMode | None = None
    ) -> ExposedTools:
        """Return the tools to offer to the caller's model: direct tools, meta tools, or both.

        ``mode`` takes precedence, then the agent's mode, then the number of tokens. Meta tools are added if
        some tools can be reached only through them.
        """
        if mode == "direct":
            return ExposedTools(self._call_path.visible_tools(listing, with_direct_mode(caller)))
        shown = self._call_path.visible_tools(listing, caller)
        agent = caller.agent
        if mode == "meta":
            return ExposedTools(_NO_TOOLS, META_TOOLS, "this was requested")
        if agent is not None and agent.mode == "meta":
            return ExposedTools(_NO_TOOLS, META_TOOLS, f"agent '{agent.id}' has the mode 'meta'")
        if caller.surface is not Surface.MODEL_DIRECT:
            return ExposedTools(shown)
        if reason := self._exceeded_threshold(caller, shown):
            return ExposedTools(_NO_TOOLS, META_TOOLS, reason)
        reachable = self._call_path.visible_tools(listing, caller.on_surface(Surface.MODEL_META))
        if reachable.keys() - shown.keys():
            in_meta_bundles = any(bundle.mode == "meta" for bundle in caller.bundles)
            origin = (
                "of bundles in meta mode or of untrusted servers"
                if in_meta_bundles
                else "of untrusted servers"
            )
            return ExposedTools(shown, META_TOOLS, f"those {origin} are not offered to it directly")
        return ExposedTools(shown)

    def _exceeded_threshold(self, caller: Caller, shown: Mapping[str, Definition]) -> str:
        """Return why these are too many definitions for one request; empty if they are not."""
        agent, in_chat, limits = caller.agent, caller.chat is not None, self._limits
        threshold = limits.threshold_tokens
        if threshold <= 0 or (not in_chat if agent is None else agent.mode is not None):
            return ""
        tokens = sum(map(estimate_definition_tokens, shown.values()))
        if tokens > threshold:
            return f"its tools would cost about {tokens:,} tokens, more than {threshold:,}"
        if in_chat and len(shown) > limits.chat_tools:
            return f"it has {len(shown):,} tools, more than the {limits.chat_tools} that providers accept"
        return ""

    async def call(
        self,
        call: ToolCall,
        caller: Caller,
        *,
        raise_approval_needed: bool = False,
    ) -> MetaToolReply:
        """Call a meta tool and return its reply, with the media of a called tool's result.

        Every failure becomes a reply, for any name and arguments. With ``raise_approval_needed``, raise
        ApprovalNeeded instead of describing it, for callers that can prompt a person.
        """
        name = call.name
        if name not in META_TOOLS:
            return _error_reply(f"unknown meta tool '{name[:64]}'", f"available: {', '.join(META_TOOLS)}")
        try:
            arguments = ToolArguments(META_TOOLS[name], call.arguments)
            meta_caller = caller.on_surface(Surface.MODEL_META)
            if name == TOOLS_CALL_NAME:
                return await self._call_tool(arguments, call, meta_caller)
            return await self._handlers[name](arguments, meta_caller)
        except (InvalidToolArgument, ResultReadError) as error:
            return _error_reply(str(error))
        except ToolyardError as error:
            if raise_approval_needed and isinstance(error, ApprovalNeeded):
                raise
            return self._reply_to_error(error, caller)
        except Exception:  # noqa: BLE001 - see below
            # A defect of Toolyard must not end the model's turn: reply with an error and log the details.
            _log.exception("meta tool %s", name)
            return _error_reply(f"{name} failed inside Toolyard; see Toolyard's log")

    def _reply_to_error(self, error: ToolyardError, caller: Caller) -> MetaToolReply:
        result = self._call_path.build_error_result(error, caller, ResultLimits(self._limits.result_chars))
        return _error_reply(result.text if result.cause is None else f"{result.text}: {result.cause}")

    async def call_for_result(
        self,
        call: ToolCall,
        caller: Caller,
        *,
        raise_approval_needed: bool = False,
    ) -> Result:
        """Call a meta tool and return its reply as a result, with the JSON of the reply as text."""
        return _reply_to_result(await self.call(call, caller, raise_approval_needed=raise_approval_needed))

    def build_error_result(self, error: ToolyardError, caller: Caller) -> Result:
        """Return the result for a call through the meta tools that failed with ``error``."""
        return _reply_to_result(self._reply_to_error(error, caller))

    async def has_stored_results(self, caller: Caller) -> bool:
        """Return True if the caller has stored results that ``result_read`` can read."""
        return caller.surface is not Surface.OPERATOR and await self._get_result_store(caller).has_any()

    # Handlers of the meta tools. Lists are not delayed by slow or unreachable servers beyond a short
    # deadline; their replies name the servers that are missing.

    async def _search_tools(self, args: ToolArguments, caller: Caller) -> MetaToolReply:
        query, limit = (
            args.require_text("query"),
            args.get_int("limit", _DEFAULT_SEARCH_LIMIT, 1, MAX_LISTED_TOOLS),
        )
        listing = await self._tool_directory.refresh_within_deadline(caller.principal, chat=caller.chat)
        hits = await self.search(listing, query, caller, limit)
        body: dict[str, Any] = {"tools": self._summarize_tools(hits, caller)}
        if not hits:
            total = len(self._call_path.visible_tools(listing, caller))
            body["hint"] = f"no tool matches; try other words, or list all {total:,} tools with tools_list"
        return self._reply_with_unlisted(body, caller)

    async def _list_tools(self, args: ToolArguments, caller: Caller) -> MetaToolReply:
        server, offset = args.get_text("server"), args.get_int("offset", 0, 0)
        limit = args.get_int("limit", _DEFAULT_LIST_LIMIT, 1, MAX_LISTED_TOOLS)
        only = (server,) if server is not None and self._call_path.can_reach(server, caller) else None
        listing = await self._tool_directory.refresh_within_deadline(
            caller.principal, only=only, chat=caller.chat
        )
        shown = self._call_path.visible_tools(listing, caller)
        # Hidden servers and unknown ones get the same reply, so that names cannot be probed.
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
        if (reason := self._unlisted_servers.explain(server, caller)) is not None:
            return _error_reply(
                f"the tools of server '{server}' are not known yet ({reason})", "try again later"
            )
        similar = get_close_matches(server, sorted(servers), n=1)
        hint = f"did you mean '{similar[0]}'?" if similar else "tools_list without a server lists all tools"
        return _error_reply(f"unknown server '{server[:64]}'", hint)

    async def _describe_tools(self, args: ToolArguments, caller: Caller) -> MetaToolReply:
        names = args.get_text_list("names", MAX_DESCRIBED_TOOLS)
        # Only visible tools decide which servers are refreshed: the response time must not reveal hidden
        # tools.
        known = self._call_path.visible_tools(self._tool_directory.known_listing(caller.principal), caller)
        owners = {known[name].server_id for name in names if name in known}
        only = owners if known.keys() >= set(names) else None
        listing = await self._tool_directory.refresh_within_deadline(
            caller.principal, only=only, chat=caller.chat
        )
        shown = self._call_path.visible_tools(listing, caller)
        tools: dict[str, Any] = {}
        remaining_chars = self._limits.schema_chars
        for name in names:
            definition = shown.get(name)
            if definition is None:
                tools[name[:64]] = {"error": _format_error(build_refusal(name, shown))}
                continue
            description = await self._build_description(definition, caller, remaining_chars)
            remaining_chars = max(0, remaining_chars - _json_length(description))
            tools[name] = description
        errors = [description["error"] for description in tools.values() if "error" in description]
        if len(errors) < len(tools):
            return self._reply_with_unlisted({"tools": tools}, caller) if errors else _ok_reply(tools=tools)
        line = self._unlisted_servers.summarize(caller)
        return _error_reply(" ".join(errors) if line is None else f"{' '.join(errors)} Not listed: {line}")

    def _reply_with_unlisted(self, body: dict[str, Any], caller: Caller) -> MetaToolReply:
        """Return a reply that names the servers with tools missing from it."""
        line = self._unlisted_servers.summarize(caller)
        return _ok_reply(**body) if line is None else _ok_reply(**body, not_listed=line)

    async def _call_tool(
        self,
        args: ToolArguments,
        call: ToolCall,
        caller: Caller,
    ) -> MetaToolReply:
        name, arguments = args.require_text("name"), args.get_object("arguments")
        # Meta tools are not in the catalogue. Without this check the reply would be "no tool named …".
        if name in META_TOOLS:
            return _error_reply(f"call '{name}' directly, not through tools_call")
        try:
            target = replace(
                call,
                name=name,
                arguments=arguments,
                timeouts=self.call_timeout_seconds,
                limits=ResultLimits(self._limits.result_chars),
            )
            result = await self._call_path.call(target, caller)
        except CallTimeout as error:
            # Replace the hint only if the limit of the meta tools was exceeded. Listing the tools, and calls
            # with a shorter limit of their server, time out by the server's settings, which the error's hint
            # names.
            if error.method == "tools/call" and error.limit_seconds == self.call_timeout_seconds:
                error.hint = _TIMEOUT_HINT
            raise
        if result.is_error:
            return MetaToolReply({"ok": False, "error": result.text}, result.media)
        body: dict[str, Any] = {"ok": True, "result": result.text}
        if result.handle is not None:
            body["handle"] = result.handle
        return MetaToolReply(body, result.media)

    async def _read_result(self, args: ToolArguments, caller: Caller) -> MetaToolReply:
        handle, offset = args.require_text("handle"), args.get_int("offset", 0, 0)
        words, path = args.get_text("grep"), args.get_text("path")
        max_chars = self._limits.result_chars
        length = args.get_int("length", min(_DEFAULT_READ_CHARS, max_chars), 1, max_chars)
        if words is not None and path is not None:
            raise InvalidToolArgument("give 'grep' or 'path', not both")
        # A token limited to some servers must not read results of others.
        stored = await self._get_result_store(caller).read(handle)
        if stored is None or not self._call_path.is_in_token_scope(stored.server, caller):
            return _error_reply(missing_result_message(handle))
        # In a thread, since a long result is searched as a whole, which would block the event loop.
        if words is not None:
            return _excerpt_reply(await asyncio.to_thread(read_lines, stored, words, offset, length), "lines")
        if path is not None:
            return _excerpt_reply(await asyncio.to_thread(read_path, stored, path, offset, length), "total")
        return _excerpt_reply(await asyncio.to_thread(read_range, stored, offset, length), "total")

    # Helpers of the handlers

    def _get_result_store(self, caller: Caller) -> ResultStore:
        return self._call_path.result_store(caller.principal)

    def _summarize_tools(self, tools: Mapping[str, Definition], caller: Caller) -> dict[str, str]:
        return {
            name: summarize_description(tool.description or tool.title or "", _SUMMARY_COLUMNS)
            if self._call_path.trust(tool.server_id, caller) is Trust.TRUSTED
            else _UNTRUSTED_SUMMARY
            for name, tool in tools.items()
        }

    async def _build_description(self, tool: Definition, caller: Caller, max_chars: int) -> dict[str, Any]:
        """Return a definition within ``max_chars``; store a schema that does not fit for ``result_read``."""
        description = tool.description
        if len(description) > self._limits.description_chars:
            description = description[: self._limits.description_chars - 1] + "…"
        body: dict[str, Any] = {
            "description": description,
            "input_schema": make_compact_schema(tool.input_schema),
        }
        trust = self._call_path.trust(tool.server_id, caller)
        text = json.dumps(body, ensure_ascii=False, default=str)
        if len(text) > max_chars:
            schema = json.dumps(tool.input_schema, ensure_ascii=False, default=str)
            stored = StoredResult(schema, trust, tool.server_id)
            handle = make_handle(stored)
            await self._get_result_store(caller).save(handle, stored)
            note = (
                f"the schema has {len(schema):,} characters, too many to show here: read it with result_read"
            )
            body = {"description": description, "note": note, "handle": handle}
            text = json.dumps({"description": description}, ensure_ascii=False)
        if trust is Trust.TRUSTED:
            return body
        # Note and handle are Toolyard's text and stay outside of the fence.
        own_fields = {key: body[key] for key in ("note", "handle") if key in body}
        return {"definition": fence_untrusted_text(text, tool.server_id), **own_fields}


def missing_result_message(handle: str) -> str:
    """Return the message for an unknown handle, whether it expired, belongs to others or never existed."""
    return f"unknown result '{handle[:64]}'; it may have expired: call the tool again"


def _excerpt_reply(excerpt: ResultExcerpt, count_key: str) -> MetaToolReply:
    body: dict[str, Any] = {"text": excerpt.text, count_key: excerpt.total}
    if excerpt.next_offset is not None:
        body["next_offset"] = excerpt.next_offset
    if excerpt.note is not None:
        body["note"] = excerpt.note
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


def _json_length(body: JsonObject) -> int:
    return len(json.dumps(body, ensure_ascii=False, default=str))
