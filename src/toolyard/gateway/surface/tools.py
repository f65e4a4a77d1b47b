"""Tools as their servers published them, except for their names if there are several servers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias, cast

from toolyard.catalog.tool_listing import ToolListing
from toolyard.concurrency.tasks import iterate_in_steps
from toolyard.errors import ApprovalNeeded, ToolRefused, ToolyardError
from toolyard.gateway.caller_view import CallerView
from toolyard.gateway.error_responses import RpcErrorResponse
from toolyard.gateway.incoming_request import ClientRequest
from toolyard.gateway.input_required.approval_prompt import ApprovalPrompt
from toolyard.gateway.input_required.rounds import InputRequiredRunner
from toolyard.gateway.surface.downgrade import downgrade_result, needs_downgrade
from toolyard.gateway.surface.list_repair import paginate_items
from toolyard.gateway.surface.result_limits import ResultLimiter, make_meta_tool_links
from toolyard.meta_tools import ExposedTools, ToolMode
from toolyard.meta_tools.meta_tools import TOOLS_CALL_NAME
from toolyard.meta_tools.tool_definitions import META_TOOLS
from toolyard.policy import build_refusal
from toolyard.protocol.codec import JsonFragment
from toolyard.protocol.constants import HEADER_MISMATCH, INVALID_PARAMS
from toolyard.protocol.eras import Era
from toolyard.protocol.mirrored_headers import HeaderParam, HeaderParamError, find_header_params
from toolyard.protocol.server import find_header_mismatch
from toolyard.results.json_size import is_large, is_within_limits
from toolyard.types.call import RequestClient, ToolCall
from toolyard.types.json_values import object_or_empty
from toolyard.types.server import NATIVE_SERVER_ID
from toolyard.types.tool import Definition, Result

__all__ = ["ToolHandlers"]

_DefinitionMap: TypeAlias = Mapping[str, Definition]
_SNAPSHOT_SECONDS = 30.0
"""Time for which the pages of a list come from the list as it was when the first page was requested."""


@dataclass(frozen=True, slots=True)
class _ListSnapshot:
    tools: Sequence[JsonFragment]
    usable_until: float
    fresh_until: float
    """Time until which clients may cache the list; both on the monotonic clock."""


class ToolHandlers:
    """Tool requests of one endpoint."""

    def __init__(self, view: CallerView, runner: InputRequiredRunner, mode: ToolMode | None = None) -> None:
        """``mode`` selects direct or meta tools; None leaves it to the agent, and to tools that are reachable
        in one way only."""
        self._mode: ToolMode | None = mode
        self._view = view
        self._runner = runner
        self._approval_prompt = ApprovalPrompt(view.gateway.approvals, view.caller, runner)
        self._gateway = view.gateway
        self._limits = view.gateway.call_path.limits
        self._encoded_lists: dict[Era, tuple[_DefinitionMap, _DefinitionMap, Sequence[JsonFragment]]] = {}
        """Encoded lists for the clients of each era."""
        self._snapshots: dict[Era, _ListSnapshot] = {}
        """The lists whose first page was returned last, for the pages after it."""
        self._header_params: dict[str, tuple[Definition, tuple[HeaderParam, ...]]] = {}

    async def list(self, request: ClientRequest) -> dict[str, Any]:
        """Handle ``tools/list``: returns identical bytes as long as the servers' lists are unchanged."""
        era = request.era
        snapshot = self._snapshots.get(era)
        # The other pages of a list cost no more than their tools, and belong to the same list as the first.
        if snapshot is None or "cursor" not in request.params or time.monotonic() >= snapshot.usable_until:
            snapshot = await self._take_snapshot(era)
        result = paginate_items("tools", snapshot.tools, request.params)
        if "nextCursor" in result:
            self._snapshots[era] = snapshot
        era.add_cache_hint(result, max(0, int(1000 * (snapshot.fresh_until - time.monotonic()))))
        return result

    async def _take_snapshot(self, era: Era) -> _ListSnapshot:
        only = self._view.only_server_id
        if only is not None:
            await self._view.servers_with_capability("tools")
        listing = await self._view.fetch_tool_listing()
        tools = await self._encode_tools(listing, era)
        now = time.monotonic()
        return _ListSnapshot(tools, now + _SNAPSHOT_SECONDS, now + _compute_ttl_seconds(listing, only))

    async def _encode_tools(self, listing: ToolListing, era: Era) -> Sequence[JsonFragment]:
        exposed = self._select_exposed_tools(listing)
        known = self._encoded_lists.get(era)
        if known is None or known[0] is not exposed.direct or known[1] is not exposed.meta:
            only = self._view.only_server_id
            written = partial(self._view.gateway.encode_tool, era=era)
            tools: list[tuple[str, JsonFragment]] = []
            async for name, each in iterate_in_steps(exposed.direct.items()):
                if only in (None, each.server_id):
                    tools.append((name, written(name if only is None else each.name, each)))
            tools += ((name, written(name, each)) for name, each in exposed.meta.items())
            if exposed.meta:
                tools.sort(key=itemgetter(0))
            known = self._encoded_lists[era] = (exposed.direct, exposed.meta, [tool for _, tool in tools])
        return known[2]

    def _select_exposed_tools(self, listing: ToolListing) -> ExposedTools:
        mode = self._mode
        if mode is None and self._view.only_server_id is not None:
            mode = "direct"
        return self._gateway.meta_tools.select_exposed_tools(listing, self._view.caller, mode)

    def _visible_tools(self, listing: ToolListing) -> Mapping[str, Definition]:
        return self._gateway.call_path.visible_tools(listing, self._view.caller)

    async def call(self, request: ClientRequest) -> dict[str, Any]:
        """Handle ``tools/call`` through the common call path."""
        params = request.params
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            raise RpcErrorResponse(INVALID_PARAMS, "name must be a string")
        if arguments is not None and not isinstance(arguments, dict):
            raise RpcErrorResponse(INVALID_PARAMS, "arguments must be an object")
        given = cast("dict[str, Any]", arguments or {})
        if (
            name in META_TOOLS
            and name in self._select_exposed_tools(await self._view.fetch_tool_listing()).meta
        ):
            return await self._call_meta_tool(
                ToolCall(name, given, request.meta, request.send_progress), request
            )
        client = request.begin_upstream()
        exposed = name if self._view.only_server_id is None else await self._find_exposed_name(name)
        if request.headers is not None:
            await self._check_param_headers(exposed, request, request.headers)
        call = ToolCall(exposed, given, request.meta, request.send_progress, client=client)
        try:
            if (
                "requestState" in params
                and (asked := await self._approval_prompt.apply_answer(request)) is not None
            ):
                return asked
            return await self._call_tool(call, request)
        except ApprovalNeeded as needed:
            return await self._ask_approval(needed, call, request)
        except ToolRefused as error:
            return self._refusal_result(error, name, exposed)

    async def _call_tool(self, call: ToolCall, request: ClientRequest) -> dict[str, Any]:
        if call.client is None:
            # Each round of the request has a client of its own.
            result = await self._runner.run_round(request, partial(self._call_in_round, call))
        else:
            result = (await self._gateway.call_path.call_raw(call, self._view.caller))[2]
        # Clients of an era without sessions can read every result.
        if request.era.has_sessions and needs_downgrade(result, request):
            result = (
                await asyncio.to_thread(downgrade_result, result, request)
                if is_large(result)
                else downgrade_result(result, request)
            )
        return (
            result
            if is_within_limits(result, self._limits)
            else await self._limit_result(call.name, result, request)
        )

    async def _call_in_round(self, call: ToolCall, client: RequestClient) -> dict[str, Any]:
        call = replace(call, client=client, on_progress=client.on_progress or call.on_progress)
        return (await self._gateway.call_path.call_raw(call, self._view.caller))[2]

    async def _limit_result(
        self, exposed: str, result: dict[str, Any], request: ClientRequest
    ) -> dict[str, Any]:
        """Return the result, shortened with a link if it is too long for a model."""
        tool_directory, principal = self._gateway.tool_directory, self._view.principal
        located = await tool_directory.locate_tool(exposed, principal)
        if located is None:
            return result
        server, definition = located
        tool = "result_read" in self._select_exposed_tools(tool_directory.known_listing(principal)).meta
        fitting = ResultLimiter(self._view, request, server, has_result_read=tool)
        return await fitting.limit(result, has_output_schema=definition.output_schema is not None)

    async def _ask_approval(
        self, needed: ApprovalNeeded, call: ToolCall, request: ClientRequest
    ) -> dict[str, Any]:
        name, exposed = str(request.params.get("name")), call.name
        try:
            again = partial(self._call_tool, call, request)
            asked = await self._approval_prompt.ask_client(needed, request, call.arguments, again)
        except ToolRefused as error:
            return self._refusal_result(error, name, exposed)
        if asked is not None:
            return asked
        await self._approval_prompt.add_link(needed)
        # Not raised again: the error and a frame that both holds and raised it would form a reference cycle.
        return self._refusal_result(needed, name, exposed)

    async def _call_meta_tool(self, call: ToolCall, request: ClientRequest) -> dict[str, Any]:
        """Return a meta tool's answer. Results of called tools are shaped for a model; media are added beside
        the text."""
        meta, caller = self._gateway.meta_tools, self._view.caller

        async def made() -> dict[str, Any]:
            if call.name == TOOLS_CALL_NAME:
                return await self._runner.run(request, partial(self._call_through_meta, call, request))
            return _build_meta_result(await meta.call_for_result(call, caller), request)

        try:
            if (asked := await self._approval_prompt.apply_answer(request)) is not None:
                return asked
            try:
                return await made()
            except ApprovalNeeded as needed:
                asked = await self._approval_prompt.ask_client(
                    needed, request, object_or_empty(call.arguments.get("arguments")), made
                )
                if asked is not None:
                    return asked
                await self._approval_prompt.add_link(needed)
                return _build_meta_result(meta.build_error_result(needed, caller), request)
        except ToolRefused as error:
            return _build_meta_result(meta.build_error_result(error, caller), request)

    async def _call_through_meta(
        self, call: ToolCall, request: ClientRequest, client: RequestClient
    ) -> dict[str, Any]:
        """Call a tool through the meta tools.

        Returns the server's question as it came, if there is one, else the result, shaped for a model.
        """
        questions: list[dict[str, Any]] = []
        if (check := client.on_input_required) is not None:

            def keep_question(server_id: str, result: dict[str, Any]) -> dict[str, Any]:
                questions.append(check(server_id, result))
                return questions[-1]

            client = replace(client, on_input_required=keep_question)
        result = await self._gateway.meta_tools.call_for_result(
            replace(call, client=client, on_progress=client.on_progress or call.on_progress),
            self._view.caller,
            raise_approval_needed=True,
        )
        return questions[-1] if questions else _build_meta_result(result, request)

    async def _find_exposed_name(self, name: str) -> str:
        """Return the exposed name of a tool of the only server; one that does not exist for an unknown
        tool."""
        only = cast("str", self._view.only_server_id)
        tool_directory, principal = self._gateway.tool_directory, self._view.principal
        found = tool_directory.known_listing(principal).names.exposed_name(only, name)
        if found is None:
            found = (await self._view.fetch_tool_listing()).names.exposed_name(only, name)
        return found or f"{only}/{name}"

    def _refusal_result(self, error: ToolRefused, name: str, exposed: str) -> dict[str, Any]:
        """Return the result of a refusal. Raises ToolRefused.

        A visible tool that lacks approval is a failed call, so that the model reads the reason. Any other
        tool does not exist, under the name that the client used.
        """
        only = self._view.only_server_id
        shown = self._visible_tools(self._gateway.tool_directory.known_listing(self._view.principal))
        if exposed in shown:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        if only is None:
            raise error
        raise build_refusal(name, [each.name for each in shown.values() if each.server_id == only])

    async def _check_param_headers(
        self, exposed: str, request: ClientRequest, headers: Mapping[str, str]
    ) -> None:
        """Raise RpcErrorResponse if headers contradict the parameters of a tool that they mirror.

        A tool that cannot be looked up is not checked: the call reports why.
        """
        directory, principal = self._gateway.tool_directory, self._view.principal
        definition = directory.known_listing(principal).tools.get(exposed)
        if definition is None:
            with contextlib.suppress(ToolyardError):
                located = await directory.locate_tool(exposed, principal)
                definition = None if located is None else located[1]
        if definition is None:
            return
        known = self._header_params.get(exposed)
        if known is None or known[0] is not definition:
            try:
                known = (definition, find_header_params(definition.input_schema))
            except HeaderParamError:
                known = (definition, ())
            self._header_params[exposed] = known
        if known[1]:
            message = {"method": request.method, "params": request.params}
            reason = find_header_mismatch(headers, message, request.version, known[1])
            if reason is not None:
                raise RpcErrorResponse(HEADER_MISMATCH, f"Header mismatch: {reason}")


def _build_meta_result(result: Result, request: ClientRequest) -> dict[str, Any]:
    """Return the result of a meta tool as a client gets it."""
    raw = cast("dict[str, Any]", result.raw)
    media = [
        {"type": each.kind, "data": each.data, "mimeType": each.mime}
        for each in result.media
        if each.kind != "file" and each.handle is None
    ]
    return {**raw, "content": [*raw["content"], *media, *make_meta_tool_links(result, request)]}


def _compute_ttl_seconds(listing: ToolListing, only: str | None) -> float:
    """Return the time until the first server's list becomes stale."""
    kept = [one for id, one in listing.catalogues.items() if only in (None, id) and id != NATIVE_SERVER_ID]
    return max(0.0, min((one.ttl - one.age for one in kept), default=0.0))
