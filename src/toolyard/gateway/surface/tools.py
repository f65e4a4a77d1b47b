"""Tools as their servers published them; only the name is ours where there are several servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias, cast

from toolyard.catalog.tool_listing import ToolListing
from toolyard.errors import ApprovalNeeded, ToolRefused, ToolyardError
from toolyard.gateway.caller_view import CallerView
from toolyard.gateway.client_request import ClientRequest, as_object
from toolyard.gateway.error_responses import RpcErrorResponse
from toolyard.gateway.input_required.approval_prompt import ApprovalPrompt
from toolyard.gateway.input_required.rounds import InputRequiredRunner, SendUpstream
from toolyard.gateway.surface.downgrade import downgrade_result
from toolyard.gateway.surface.paging import paginate_items
from toolyard.gateway.surface.result_limits import ResultLimiter, is_within_limits
from toolyard.gateway.surface.result_links import make_meta_tool_links
from toolyard.gateway.upstream import needs_dedicated_connection
from toolyard.meta import ToolMode, ToolOffer
from toolyard.meta.meta_tools import TOOLS_CALL_NAME
from toolyard.meta.tool_definitions import META_TOOLS
from toolyard.policy import build_refusal
from toolyard.protocol.codec import JsonFragment
from toolyard.protocol.constants import INVALID_PARAMS
from toolyard.protocol.mirrored_headers import HeaderParam, HeaderParamError, find_header_params
from toolyard.types.result import Result
from toolyard.types.server import NATIVE_SERVER_ID, Server, Trust
from toolyard.types.tool import Definition

__all__ = ["ToolHandlers"]

_DefinitionMap: TypeAlias = Mapping[str, Definition]


class ToolHandlers:
    """Tool requests of one endpoint."""

    def __init__(self, view: CallerView, runner: InputRequiredRunner, mode: ToolMode | None = None) -> None:
        """``mode`` selects direct or meta tools; None leaves it to the agent, and to tools that are reachable
        in one way only."""
        self._mode: ToolMode | None = mode
        self._view = view
        self._runner = runner
        self._approval_prompt = ApprovalPrompt(view.gateway.approvals, view.caller, runner)
        self._core = view.core
        self._limits = view.core.call_path.limits
        self._encoded_lists: dict[bool, tuple[_DefinitionMap, _DefinitionMap, Sequence[JsonFragment]]] = {}
        """Encoded lists for modern and legacy clients."""
        self._header_params: dict[str, tuple[Definition, tuple[HeaderParam, ...]]] = {}

    async def list(self, request: ClientRequest) -> dict[str, Any]:
        """Handle ``tools/list``: returns identical bytes as long as the servers' lists are unchanged."""
        offering = self._view
        if offering.only_server_id is not None:
            await offering.servers_with_capability("tools")
        roster = await offering.fetch_tool_listing()
        result = paginate_items("tools", self._encode_tools(roster, modern=request.modern), request.params)
        if request.modern:
            result["ttlMs"] = _compute_ttl_milliseconds(roster, offering.only_server_id)
        return result

    def _encode_tools(self, roster: ToolListing, *, modern: bool) -> Sequence[JsonFragment]:
        offer = self._select_offer(roster)
        known = self._encoded_lists.get(modern)
        if known is None or known[0] is not offer.direct or known[1] is not offer.meta:
            only = self._view.only_server_id
            written = partial(self._view.gateway.encode_tool, modern=modern)
            tools = [
                (name, written(name if only is None else each.name, each))
                for name, each in offer.direct.items()
                if only in (None, each.server_id)
            ]
            tools += ((name, written(name, each)) for name, each in offer.meta.items())
            if offer.meta:
                tools.sort(key=itemgetter(0))
            known = self._encoded_lists[modern] = (offer.direct, offer.meta, [tool for _, tool in tools])
        return known[2]

    def _select_offer(self, roster: ToolListing) -> ToolOffer:
        mode = self._mode
        if mode is None and self._view.only_server_id is not None:
            mode = "direct"
        return self._core.meta_tools.offer_tools(roster, self._view.caller, mode)

    def _visible_tools(self, roster: ToolListing) -> Mapping[str, Definition]:
        return self._core.call_path.visible_tools(roster, self._view.caller)

    async def call(self, request: ClientRequest) -> dict[str, Any]:
        """Handle ``tools/call`` through the common call path."""
        params = request.params
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            raise RpcErrorResponse(INVALID_PARAMS, "name must be a string")
        if arguments is not None and not isinstance(arguments, dict):
            raise RpcErrorResponse(INVALID_PARAMS, "arguments must be an object")
        given = cast("dict[str, Any] | None", arguments)
        if name in META_TOOLS and name in self._select_offer(await self._view.fetch_tool_listing()).meta:
            return await self._call_meta_tool(name, given, request)
        exposed = await self._find_exposed_name(name)
        try:
            if (
                "requestState" in params
                and (asked := await self._approval_prompt.apply_answer(request)) is not None
            ):
                return asked
            return await self._call_tool(exposed, given, request)
        except ApprovalNeeded as needed:
            return await self._ask_approval(needed, exposed, given, request)
        except ToolRefused as error:
            return self._refusal_result(error, name, exposed)

    async def _call_tool(
        self, exposed: str, given: dict[str, Any] | None, request: ClientRequest
    ) -> dict[str, Any]:
        params = request.params
        if needs_dedicated_connection(request) or "inputResponses" in params or "requestState" in params:
            result = await self._runner.run(request, lambda send: self._pass_through(exposed, given, send))
        elif self._core.manager.has_client_capabilities:
            result = await self._pass_through(exposed, given, self._runner.single_round_sender(request))
        else:
            progress = request.send_progress if request.progress_token is not None else None
            result = await self._core.call_path.call_raw(
                exposed, given, self._view.caller, on_progress=progress, meta=request.meta
            )
        result = downgrade_result(result, request)
        return (
            result
            if is_within_limits(result, self._limits)
            else await self._limit_result(exposed, result, request)
        )

    async def _limit_result(
        self, exposed: str, result: dict[str, Any], request: ClientRequest
    ) -> dict[str, Any]:
        """Return the result, shortened with a link if it is too long for a model."""
        rosters, principal = self._core.tool_directory, self._view.principal
        located = await rosters.locate_tool(exposed, principal)
        if located is None:
            return result
        server, definition = located
        tool = "result_read" in self._select_offer(rosters.known_listing(principal)).meta
        fitting = ResultLimiter(self._view, request, server, has_result_read=tool)
        return await fitting.limit(result, has_output_schema=definition.output_schema is not None)

    async def _ask_approval(
        self, needed: ApprovalNeeded, exposed: str, given: dict[str, Any] | None, request: ClientRequest
    ) -> dict[str, Any]:
        name = str(request.params.get("name"))
        try:
            again = partial(self._call_tool, exposed, given, request)
            asked = await self._approval_prompt.ask_client(needed, request, given or {}, again)
        except ToolRefused as error:
            return self._refusal_result(error, name, exposed)
        # Not raised again: the error and a frame that both holds and raised it would form a reference cycle.
        return self._refusal_result(needed, name, exposed) if asked is None else asked

    async def _call_meta_tool(
        self, name: str, arguments: dict[str, Any] | None, request: ClientRequest
    ) -> dict[str, Any]:
        """Return a meta tool's answer. Results of called tools are shaped for a model; media are added beside
        the text."""
        meta, caller, given = self._core.meta_tools, self._view.caller, arguments or {}
        progress = request.send_progress if request.progress_token is not None else None

        async def made() -> dict[str, Any]:
            if name == TOOLS_CALL_NAME and self._needs_client_capabilities(request):
                return await self._runner.run(request, partial(self._call_through_meta, given, request))
            return _build_meta_result(
                await meta.call_for_result(
                    name, given, caller, on_progress=progress, raise_approval_needed=True
                ),
                request,
            )

        try:
            if (asked := await self._approval_prompt.apply_answer(request)) is not None:
                return asked
            try:
                return await made()
            except ApprovalNeeded as needed:
                asked = await self._approval_prompt.ask_client(
                    needed, request, as_object(given.get("arguments")), made
                )
                return (
                    _build_meta_result(meta.build_error_result(needed, caller), request)
                    if asked is None
                    else asked
                )
        except ToolRefused as error:
            return _build_meta_result(meta.build_error_result(error, caller), request)

    def _needs_client_capabilities(self, request: ClientRequest) -> bool:
        """Return whether servers must be told this client's capabilities, or that it has none."""
        rounds = "inputResponses" in request.params or "requestState" in request.params
        return rounds or needs_dedicated_connection(request) or self._core.manager.has_client_capabilities

    async def _call_through_meta(
        self, given: dict[str, Any], request: ClientRequest, send: SendUpstream
    ) -> dict[str, Any]:
        """Call a tool through the meta tools for a client with capabilities.

        Returns the server's question as it came, if there is one, else the result, shaped for a model.
        """
        asked: list[dict[str, Any]] = []

        async def send_call(
            server: Server, definition: Definition, arguments: Mapping[str, Any], repeatable: bool
        ) -> dict[str, Any]:
            params = {"name": definition.name, "arguments": arguments}
            within, way = server.timeouts.within(meta.call_timeout_seconds), send
            if server.trust is Trust.UNTRUSTED:
                # Untrusted servers may not ask questions.
                way = self._runner.single_round_sender(
                    replace(request, capabilities={}, log_level=None, session=None)
                )
            elif needs_dedicated_connection(request):
                # A person may have to answer, which takes time. The silence timeout of the server stays the
                # same.
                within = replace(within, call=max(within.call, server.timeouts.call))
            raw = await way(server.id, "tools/call", params, repeatable, within)
            if raw.get("resultType") == "input_required":
                asked.append(raw)
            return raw

        meta, caller = self._core.meta_tools, self._view.caller
        result = await meta.call_for_result(
            TOOLS_CALL_NAME, given, caller, raise_approval_needed=True, route=send_call
        )
        return asked[0] if asked else _build_meta_result(result, request)

    async def _pass_through(
        self, exposed: str, arguments: dict[str, Any] | None, send: SendUpstream
    ) -> dict[str, Any]:
        async def send_call(
            server: Server, definition: Definition, arguments: Mapping[str, Any], repeatable: bool
        ) -> dict[str, Any]:
            params = {"name": definition.name, "arguments": arguments}
            return await send(server.id, "tools/call", params, repeatable)

        return await self._core.call_path.call_raw(exposed, arguments, self._view.caller, route=send_call)

    async def _find_exposed_name(self, name: str) -> str:
        """Return the exposed name of a tool; for an unknown tool the name itself, which does not exist
        either."""
        only = self._view.only_server_id
        if only is None:
            return name
        rosters, principal = self._core.tool_directory, self._view.principal
        found = rosters.known_listing(principal).names.exposed_name(only, name)
        if found is None:
            found = (await self._view.fetch_tool_listing()).names.exposed_name(only, name)
        return found or f"{only}/{name}"

    def _refusal_result(self, error: ToolRefused, name: str, exposed: str) -> dict[str, Any]:
        """Return the result of a refusal. Raises ToolRefused.

        A visible tool that lacks approval is a failed call, so that the model reads the reason. Any other
        tool does not exist, under the name that the client used.
        """
        only = self._view.only_server_id
        shown = self._visible_tools(self._core.tool_directory.known_listing(self._view.principal))
        if exposed in shown:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        if only is None:
            raise error
        raise build_refusal(name, [each.name for each in shown.values() if each.server_id == only])

    async def get_header_params(self, name: object) -> tuple[HeaderParam, ...]:
        """Return the parameters of a tool that modern clients mirror in headers; none if it cannot be looked
        up, since the call will report why."""
        if not isinstance(name, str):
            return ()
        try:
            exposed, definition = await self._find_definition(name)
        except ToolyardError:
            return ()
        if definition is None:
            return ()
        known = self._header_params.get(exposed)
        if known is None or known[0] is not definition:
            try:
                known = (definition, find_header_params(definition.input_schema))
            except HeaderParamError:
                known = (definition, ())
            self._header_params[exposed] = known
        return known[1]

    async def _find_definition(self, name: str) -> tuple[str, Definition | None]:
        """Return a tool's exposed name and its definition; None for a meta tool or an unknown tool. Raises
        ServerError."""
        rosters, principal = self._core.tool_directory, self._view.principal
        exposed = await self._find_exposed_name(name)
        if exposed in META_TOOLS:
            return exposed, None
        definition = rosters.known_listing(principal).tools.get(exposed)
        if definition is None and (located := await rosters.locate_tool(exposed, principal)) is not None:
            definition = located[1]
        return exposed, definition


def _build_meta_result(result: Result, request: ClientRequest) -> dict[str, Any]:
    """Return the result of a meta tool as a client gets it."""
    raw = cast("dict[str, Any]", result.raw)
    media = [
        {"type": each.kind, "data": each.data, "mimeType": each.mime}
        for each in result.media
        if each.kind != "file" and each.handle is None
    ]
    return {**raw, "content": [*raw["content"], *media, *make_meta_tool_links(result, request)]}


def _compute_ttl_milliseconds(roster: ToolListing, only: str | None) -> int:
    """Return the time, in milliseconds, until the first server's list becomes stale."""
    kept = [one for id, one in roster.catalogues.items() if only in (None, id) and id != NATIVE_SERVER_ID]
    return max(0, int(1000 * min((one.ttl - one.age for one in kept), default=0.0)))
