"""The page of one tool: what its server says, whether it may be used and why, and a form to try it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.catalog.token_estimate import estimate_definition
from toolyard.catalog.tool_listing import Roster
from toolyard.errors import ToolyardError
from toolyard.registry.errors import NotFound
from toolyard.types.decision import Decision
from toolyard.types.result import Media, Result
from toolyard.types.server import Server
from toolyard.types.tool import Definition
from toolyard.web.access.dependencies import Visitor, admin, visitor
from toolyard.web.services import Site
from toolyard.web.ui.components.forms import posted
from toolyard.web.ui.components.render import render
from toolyard.web.ui.registry.server_listing import ask_now
from toolyard.web.ui.tools.form import ToolForm
from toolyard.web.ui.tools.schema_form import BadArguments

__all__ = ["router"]

router = APIRouter()

_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "image/svg+xml")


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a call."""

    seconds: float
    result: Result | None = None
    error: ToolyardError | None = None

    @property
    def pictures(self) -> list[Media]:
        """What a page can show of it."""
        media = self.result.media if self.result is not None else ()
        return [each for each in media if each.kind == "image" and each.mime in _PICTURES]


@dataclass(frozen=True, slots=True)
class ToolPage:
    """One tool."""

    definition: Definition
    exposed: str
    decision: Decision
    tokens: int
    form: ToolForm
    back: str
    back_text: str
    tried: Tried | None = None
    review: str = ""
    """The page where it can be accepted, where it was not."""

    @property
    def callable(self) -> bool:
        """Whether a call would be made at all."""
        return self.decision.verdict.shown


@dataclass(frozen=True, slots=True)
class _Place:
    """Whose tool it is, and the way back there."""

    server: Server
    page: str
    text: str


@router.get("/ui/mcp/{instance_id}/tool")
async def show_instance_tool(
    request: Request, me: Annotated[Visitor, Depends(visitor)], instance_id: str, name: str = ""
) -> Response:
    """A tool of one's own instance."""
    return await _show(request, me, await _of_instance(request, me, instance_id), name)


@router.post("/ui/mcp/{instance_id}/tool")
async def try_instance_tool(
    request: Request, me: Annotated[Visitor, Depends(visitor)], instance_id: str, name: str = ""
) -> Response:
    """Call it."""
    return await _try(request, me, await _of_instance(request, me, instance_id), name)


@router.get("/ui/admin/mcp/files/{server_id}/tool")
async def show_config_tool(
    request: Request, me: Annotated[Visitor, Depends(admin)], server_id: str, name: str = ""
) -> Response:
    """A tool of a server from the operator's files."""
    return await _show(request, me, _of_file(request, server_id), name)


@router.post("/ui/admin/mcp/files/{server_id}/tool")
async def try_config_tool(
    request: Request, me: Annotated[Visitor, Depends(admin)], server_id: str, name: str = ""
) -> Response:
    """Call it."""
    return await _try(request, me, _of_file(request, server_id), name)


async def _of_instance(request: Request, me: Visitor, instance_id: str) -> _Place:
    site: Site = request.app.state.site
    instance, registered = await site.instance(me, instance_id)
    server = site.registry.core_server(instance, registered)
    return _Place(server, f"/ui/mcp/{instance.id}", instance.name)


def _of_file(request: Request, server_id: str) -> _Place:
    site: Site = request.app.state.site
    server = site.configuration.servers.get(server_id)
    if server is None:
        raise NotFound("there is no such server", hint="it may have been taken out of its file")
    return _Place(server, f"/ui/admin/mcp/files/{server.id}", server.label or server.id)


async def _show(request: Request, me: Visitor, place: _Place, name: str) -> Response:
    site: Site = request.app.state.site
    return render(request, "tool.html", page=await _page(site, me, place, name))


async def _try(request: Request, me: Visitor, place: _Place, name: str) -> Response:
    site: Site = request.app.state.site
    form = await posted(request)
    page = await _page(site, me, place, name)
    filled = page.form.sent(form)
    if filled.only_changed:
        return render(request, "tool.html", page=replace(page, form=filled))
    try:
        arguments = filled.arguments()
    except BadArguments as error:
        return render(request, "tool.html", status=422, page=replace(page, form=filled.wrong(error)))
    began = time.perf_counter()
    try:
        result = await site.call(me, page.exposed, arguments)
        tried = Tried(time.perf_counter() - began, result)
    except ToolyardError as error:
        tried = Tried(time.perf_counter() - began, error=error)
    return render(request, "tool.html", page=replace(page, form=filled, tried=tried))


async def _page(site: Site, me: Visitor, place: _Place, name: str) -> ToolPage:
    roster = site.parts.rosters.known(me.principal)
    found = _find(roster, place.server.id, name)
    if found is None:
        # Not listed in this process yet, or not the last time.
        asked = await ask_now(site, me.principal, place.server)
        if asked.error is not None:
            raise asked.error
        found = _find(asked.roster, place.server.id, name)
    if found is None:
        raise NotFound("the server has no such tool", hint="it may have changed; look at its list")
    exposed, definition = found
    catalogue = site.parts.rosters.known(me.principal).catalogues.get(place.server.id)
    aside = () if catalogue is None else site.parts.locks.reasons(catalogue.contents)
    return ToolPage(
        definition,
        exposed,
        site.parts.calls.explain(exposed, site.caller(me)),
        estimate_definition(definition),
        ToolForm.of(definition.input_schema),
        back=place.page,
        back_text=place.text,
        review=f"{place.page}/changes" if definition.name in aside else "",
    )


def _find(roster: Roster, server_id: str, name: str) -> tuple[str, Definition] | None:
    for exposed, definition in roster.tools.items():
        if definition.server_id == server_id and definition.name == name:
            return exposed, definition
    return None
