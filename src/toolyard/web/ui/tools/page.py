"""Page of a tool: definition, the rules about it, and a form to call it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from fastapi import Request, Response
from markupsafe import Markup

from toolyard.catalog.token_estimate import estimate_definition_tokens
from toolyard.clients.call_path import CallPath
from toolyard.core.current_config import CurrentConfig
from toolyard.core.instances import InstanceSync
from toolyard.core.user_tools import UserTools
from toolyard.errors import ToolyardError
from toolyard.registry import Registry
from toolyard.registry.errors import NotFound
from toolyard.types.account import RequestUser
from toolyard.types.call import Decision
from toolyard.types.server import Server
from toolyard.types.tool import Definition, Media, Result
from toolyard.web import service_dependencies as deps
from toolyard.web.rendering.result_renderer import ResultRenderer
from toolyard.web.routes import Routes
from toolyard.web.ui.components.forms import read_submitted_form
from toolyard.web.ui.components.render import render_page
from toolyard.web.ui.tools.form import ToolForm
from toolyard.web.ui.tools.results import INLINE_IMAGE_TYPES, render_call_result
from toolyard.web.ui.tools.schema_form import BadArguments
from toolyard.web.ui.tools.server_tools import ServerTools, ServerToolsDep

__all__ = ["router"]


router = Routes()


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """Result of a call, or its error."""

    seconds: float
    result: Result | None = None
    view: Markup | None = None
    error: ToolyardError | None = None

    @property
    def pictures(self) -> list[Media]:
        """Images of the result that browsers can display."""
        media = self.result.media if self.result is not None else ()
        return [each for each in media if each.kind == "image" and each.mime in INLINE_IMAGE_TYPES]


@dataclass(frozen=True, slots=True)
class ToolPage:
    """Content of a tool's page."""

    definition: Definition
    exposed: str
    decision: Decision
    tokens: int
    form: ToolForm
    back: str
    back_text: str
    tried: CallAttempt | None = None
    review: str = ""
    """URL of the page where its change can be accepted, or empty."""

    @property
    def callable(self) -> bool:
        """True if the person may call the tool."""
        return self.decision.verdict.is_visible


@dataclass(frozen=True, slots=True)
class _ToolLocation:
    """Server of a tool, and the path and title of the page that lists it."""

    server: Server
    page: str
    text: str


@router.get("/ui/mcp/{instance_id}/tool")
async def show_instance_tool(
    request: Request,
    me: deps.CurrentUser,
    instance_id: str,
    instance_sync: deps.InstanceSyncDep,
    registry: deps.RegistryDep,
    server_tools: ServerToolsDep,
    name: str = "",
) -> Response:
    """Show a tool of an instance."""
    place = await _locate_in_instance(instance_sync, registry, me, instance_id)
    return render_page(request, "tool.html", page=await _build_page(server_tools, me, place, name))


@router.post("/ui/mcp/{instance_id}/tool")
async def try_instance_tool(
    request: Request,
    me: deps.CurrentUser,
    instance_id: str,
    instance_sync: deps.InstanceSyncDep,
    registry: deps.RegistryDep,
    server_tools: ServerToolsDep,
    user_tools: deps.UserToolsDep,
    call_path: deps.CallPathDep,
    results: deps.ResultRendererDep,
    name: str = "",
) -> Response:
    """Call a tool of an instance and show the result."""
    place = await _locate_in_instance(instance_sync, registry, me, instance_id)
    return await _try_tool(request, server_tools, user_tools, call_path, results, me, place, name)


@router.get("/ui/admin/mcp/files/{server_id}/tool")
async def show_config_tool(
    request: Request,
    me: deps.AdminUser,
    server_id: str,
    config: deps.ConfigDep,
    server_tools: ServerToolsDep,
    name: str = "",
) -> Response:
    """Show a tool of a server from a file."""
    place = _locate_in_file(config, server_id)
    return render_page(request, "tool.html", page=await _build_page(server_tools, me, place, name))


@router.post("/ui/admin/mcp/files/{server_id}/tool")
async def try_config_tool(
    request: Request,
    me: deps.AdminUser,
    server_id: str,
    config: deps.ConfigDep,
    server_tools: ServerToolsDep,
    user_tools: deps.UserToolsDep,
    call_path: deps.CallPathDep,
    results: deps.ResultRendererDep,
    name: str = "",
) -> Response:
    """Call a tool of a server from a file and show the result."""
    place = _locate_in_file(config, server_id)
    return await _try_tool(request, server_tools, user_tools, call_path, results, me, place, name)


async def _locate_in_instance(
    instance_sync: InstanceSync, registry: Registry, me: RequestUser, instance_id: str
) -> _ToolLocation:
    instance, registered = await instance_sync.find(me, instance_id)
    server = registry.build_instance_server(instance, registered)
    return _ToolLocation(server, f"/ui/mcp/{instance.id}", instance.name)


def _locate_in_file(config: CurrentConfig, server_id: str) -> _ToolLocation:
    server = config.configuration.servers.get(server_id)
    if server is None:
        raise NotFound("server not found", hint="it may have been removed from its file")
    return _ToolLocation(server, f"/ui/admin/mcp/files/{server.id}", server.label or server.id)


async def _build_page(
    server_tools: ServerTools, me: RequestUser, place: _ToolLocation, name: str
) -> ToolPage:
    found = await server_tools.find(me, place.server, name)
    return ToolPage(
        found.definition,
        found.exposed,
        found.decision,
        estimate_definition_tokens(found.definition),
        ToolForm.from_schema(found.definition.input_schema),
        back=place.page,
        back_text=place.text,
        review=f"{place.page}/changes" if found.quarantined else "",
    )


async def _try_tool(
    request: Request,
    server_tools: ServerTools,
    user_tools: UserTools,
    call_path: CallPath,
    results: ResultRenderer,
    me: RequestUser,
    place: _ToolLocation,
    name: str,
) -> Response:
    # Read first: a request without a valid form must not make us connect to the server.
    form = await read_submitted_form(request)
    page = await _build_page(server_tools, me, place, name)
    filled = page.form.with_submission(form)
    # A button that adds or removes an entry redraws the form without a call.
    if filled.only_changed:
        return render_page(request, "tool.html", page=replace(page, form=filled))
    try:
        arguments = filled.arguments()
    except BadArguments as error:
        return render_page(
            request, "tool.html", status=422, page=replace(page, form=filled.with_errors(error))
        )
    began = time.perf_counter()
    try:
        result = await user_tools.call(me, page.exposed, arguments)
        seconds = time.perf_counter() - began
        view = await render_call_result(call_path, results, me, place.server, result, arguments)
        attempt = CallAttempt(seconds, result, view)
    except ToolyardError as error:
        attempt = CallAttempt(time.perf_counter() - began, error=error)
    return render_page(request, "tool.html", page=replace(page, form=filled, tried=attempt))
