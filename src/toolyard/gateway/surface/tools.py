"""Tools, as their servers published them; only the name is ours where there are several servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias, cast

from toolyard.catalog.tool_listing import Roster
from toolyard.errors import ApprovalNeeded, ToolRefused, ToolyardError
from toolyard.gateway.caller_view import Offering
from toolyard.gateway.client_request import Request, as_object
from toolyard.gateway.error_responses import Refusal
from toolyard.gateway.input_required.approval_prompt import Asking
from toolyard.gateway.input_required.rounds import Rounds, Send
from toolyard.gateway.surface.downgrade import told_result
from toolyard.gateway.surface.paging import page
from toolyard.gateway.surface.result_limits import Fitting, fits
from toolyard.gateway.surface.result_links import meta_links
from toolyard.gateway.upstream import needs_lane
from toolyard.meta import Mode, Offer
from toolyard.meta.meta_tools import CALL
from toolyard.meta.tool_definitions import META_TOOLS
from toolyard.policy import refused
from toolyard.protocol.codec import Written
from toolyard.protocol.constants import INVALID_PARAMS
from toolyard.protocol.mirrored_headers import HeaderParam, HeaderParamError, header_params
from toolyard.types.result import Result
from toolyard.types.server import NATIVE, Server, Trust
from toolyard.types.tool import Definition

__all__ = ["Tools"]

_Tools: TypeAlias = Mapping[str, Definition]


class Tools:
    """The tools of one front."""

    def __init__(self, offering: Offering, rounds: Rounds, mode: Mode | None = None) -> None:
        """``mode`` says whether tools are shown themselves or reached through the meta tools; None leaves it
        to the agent, and to what can be reached in one way only."""
        self._mode: Mode | None = mode
        self._offering = offering
        self._rounds = rounds
        self._asking = Asking(offering.gateway.approvals, offering.caller, rounds)
        self._parts = offering.parts
        self._limits = offering.parts.calls.limits
        self._listed: dict[bool, tuple[_Tools, _Tools, Sequence[Written]]] = {}
        """As clients of the modern era and of the legacy one get them."""
        self._marks: dict[str, tuple[Definition, tuple[HeaderParam, ...]]] = {}

    async def list(self, request: Request) -> dict[str, Any]:
        """``tools/list``: the same bytes as long as the servers list the same."""
        offering = self._offering
        if offering.only is not None:
            await offering.servers_with("tools")
        roster = await offering.roster()
        result = page("tools", self._tools(roster, modern=request.modern), request.params)
        if request.modern:
            result["ttlMs"] = _ttl(roster, offering.only)
        return result

    def _tools(self, roster: Roster, *, modern: bool) -> Sequence[Written]:
        offer = self._offer(roster)
        known = self._listed.get(modern)
        if known is None or known[0] is not offer.direct or known[1] is not offer.meta:
            only = self._offering.only
            written = partial(self._offering.gateway.written, modern=modern)
            tools = [
                (name, written(name if only is None else each.name, each))
                for name, each in offer.direct.items()
                if only in (None, each.server_id)
            ]
            tools += ((name, written(name, each)) for name, each in offer.meta.items())
            if offer.meta:
                tools.sort(key=itemgetter(0))
            known = self._listed[modern] = (offer.direct, offer.meta, [tool for _, tool in tools])
        return known[2]

    def _offer(self, roster: Roster) -> Offer:
        mode = self._mode
        if mode is None and self._offering.only is not None:
            mode = "direct"
        return self._parts.meta.offer(roster, self._offering.caller, mode)

    def _shown(self, roster: Roster) -> Mapping[str, Definition]:
        return self._parts.calls.shown(roster, self._offering.caller)

    async def call(self, request: Request) -> dict[str, Any]:
        """``tools/call``, through the one call path."""
        params = request.params
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            raise Refusal(INVALID_PARAMS, "name is no string")
        if arguments is not None and not isinstance(arguments, dict):
            raise Refusal(INVALID_PARAMS, "arguments is no object")
        given = cast("dict[str, Any] | None", arguments)
        if name in META_TOOLS and name in self._offer(await self._offering.roster()).meta:
            return await self._meta(name, given, request)
        exposed = await self._exposed(name)
        try:
            if "requestState" in params and (asked := await self._asking.settled(request)) is not None:
                return asked
            return await self._made(exposed, given, request)
        except ApprovalNeeded as needed:
            return await self._asked(needed, exposed, given, request)
        except ToolRefused as error:
            return self._refused(error, name, exposed)

    async def _made(self, exposed: str, given: dict[str, Any] | None, request: Request) -> dict[str, Any]:
        params = request.params
        if needs_lane(request) or "inputResponses" in params or "requestState" in params:
            result = await self._rounds.run(request, lambda send: self._pass(exposed, given, send))
        elif self._parts.manager.offers:
            result = await self._pass(exposed, given, self._rounds.plain(request))
        else:
            progress = request.progressed if request.progress_token is not None else None
            result = await self._parts.calls.pass_on(
                exposed, given, self._offering.caller, on_progress=progress, meta=request.meta
            )
        result = told_result(result, request)
        return result if fits(result, self._limits) else await self._fitted(exposed, result, request)

    async def _fitted(self, exposed: str, result: dict[str, Any], request: Request) -> dict[str, Any]:
        """The result with head, tail and a link in place of what is too much for a model."""
        rosters, principal = self._parts.rosters, self._offering.principal
        located = await rosters.locate(exposed, principal)
        if located is None:
            return result
        server, definition = located
        tool = "result_read" in self._offer(rosters.known(principal)).meta
        fitting = Fitting(self._offering, request, server, tool=tool)
        return await fitting.fit(result, promised=definition.output_schema is not None)

    async def _asked(
        self, needed: ApprovalNeeded, exposed: str, given: dict[str, Any] | None, request: Request
    ) -> dict[str, Any]:
        name = str(request.params.get("name"))
        try:
            again = partial(self._made, exposed, given, request)
            asked = await self._asking.ask(needed, request, given or {}, again)
        except ToolRefused as error:
            return self._refused(error, name, exposed)
        # Not raised again: an error and a frame that both has it and raised it keep each other.
        return self._refused(needed, name, exposed) if asked is None else asked

    async def _meta(self, name: str, arguments: dict[str, Any] | None, request: Request) -> dict[str, Any]:
        """A meta tool's answer. What it calls is shaped as for a model; media go beside the text."""
        meta, caller, given = self._parts.meta, self._offering.caller, arguments or {}
        progress = request.progressed if request.progress_token is not None else None

        async def made() -> dict[str, Any]:
            if name == CALL and self._is_told_of(request):
                return await self._rounds.run(request, partial(self._meta_call, given, request))
            return _shaped(await meta.result(name, given, caller, on_progress=progress, asks=True), request)

        try:
            if (asked := await self._asking.settled(request)) is not None:
                return asked
            try:
                return await made()
            except ApprovalNeeded as needed:
                asked = await self._asking.ask(needed, request, as_object(given.get("arguments")), made)
                return _shaped(meta.refused(needed, caller), request) if asked is None else asked
        except ToolRefused as error:
            return _shaped(meta.refused(error, caller), request)

    def _is_told_of(self, request: Request) -> bool:
        """Whether servers must be told what this client can do, or that it can do nothing."""
        rounds = "inputResponses" in request.params or "requestState" in request.params
        return rounds or needs_lane(request) or self._parts.manager.offers

    async def _meta_call(self, given: dict[str, Any], request: Request, send: Send) -> dict[str, Any]:
        """A call through the meta tools of a client of whom servers are told. Where the server asks it, that
        is the answer, as it came; otherwise the result, as for a model."""
        asked: list[dict[str, Any]] = []

        async def via(
            server: Server, definition: Definition, arguments: Mapping[str, Any], repeatable: bool
        ) -> dict[str, Any]:
            params = {"name": definition.name, "arguments": arguments}
            within, way = server.timeouts.within(meta.seconds), send
            if server.trust is Trust.UNTRUSTED:
                # Whose words are only data asks nobody.
                way = self._rounds.plain(replace(request, capabilities={}, log_level=None, session=None))
            elif needs_lane(request):
                # Somebody may be asked, who thinks; a server that says nothing has no longer than else.
                within = replace(within, call=max(within.call, server.timeouts.call))
            raw = await way(server.id, "tools/call", params, repeatable, within)
            if raw.get("resultType") == "input_required":
                asked.append(raw)
            return raw

        meta, caller = self._parts.meta, self._offering.caller
        result = await meta.result(CALL, given, caller, asks=True, via=via)
        return asked[0] if asked else _shaped(result, request)

    async def _pass(self, exposed: str, arguments: dict[str, Any] | None, send: Send) -> dict[str, Any]:
        async def via(
            server: Server, definition: Definition, arguments: Mapping[str, Any], repeatable: bool
        ) -> dict[str, Any]:
            params = {"name": definition.name, "arguments": arguments}
            return await send(server.id, "tools/call", params, repeatable)

        return await self._parts.calls.pass_on(exposed, arguments, self._offering.caller, via=via)

    async def _exposed(self, name: str) -> str:
        """The exposed name of what a client calls a tool. Of one that is not known, the name itself, under
        which there is nothing either."""
        only = self._offering.only
        if only is None:
            return name
        rosters, principal = self._parts.rosters, self._offering.principal
        found = rosters.known(principal).names.of(only, name)
        if found is None:
            found = (await self._offering.roster()).names.of(only, name)
        return found or f"{only}/{name}"

    def _refused(self, error: ToolRefused, name: str, exposed: str) -> dict[str, Any]:
        """What a client gets of a refusal. A tool that it sees and may not call as it did, for want of an
        approval, is a failed call, so that the model behind it reads why; any other is none at all, by the
        name that the client used. Raises ToolRefused."""
        only = self._offering.only
        shown = self._shown(self._parts.rosters.known(self._offering.principal))
        if exposed in shown:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        if only is None:
            raise error
        raise refused(name, [each.name for each in shown.values() if each.server_id == only])

    async def marks(self, name: object) -> tuple[HeaderParam, ...]:
        """The parameters of a tool that a modern client mirrors into headers. None of one that cannot be
        looked up: the call will say why."""
        if not isinstance(name, str):
            return ()
        try:
            exposed, definition = await self._defined(name)
        except ToolyardError:
            return ()
        if definition is None:
            return ()
        known = self._marks.get(exposed)
        if known is None or known[0] is not definition:
            try:
                known = (definition, header_params(definition.input_schema))
            except HeaderParamError:
                known = (definition, ())
            self._marks[exposed] = known
        return known[1]

    async def _defined(self, name: str) -> tuple[str, Definition | None]:
        """A tool's exposed name, and what its server published; None of a meta tool, or where there is no
        such tool. Raises a ServerError."""
        rosters, principal = self._parts.rosters, self._offering.principal
        exposed = await self._exposed(name)
        if exposed in META_TOOLS:
            return exposed, None
        definition = rosters.known(principal).tools.get(exposed)
        if definition is None and (located := await rosters.locate(exposed, principal)) is not None:
            definition = located[1]
        return exposed, definition


def _shaped(result: Result, request: Request) -> dict[str, Any]:
    """The result of a meta tool as a client gets it."""
    raw = cast("dict[str, Any]", result.raw)
    media = [
        {"type": each.kind, "data": each.data, "mimeType": each.mime}
        for each in result.media
        if each.kind != "file" and each.handle is None
    ]
    return {**raw, "content": [*raw["content"], *media, *meta_links(result, request)]}


def _ttl(roster: Roster, only: str | None) -> int:
    """Milliseconds for which no server's list gets old."""
    kept = [one for id, one in roster.catalogues.items() if only in (None, id) and id != NATIVE]
    return max(0, int(1000 * min((one.ttl - one.age for one in kept), default=0.0)))
