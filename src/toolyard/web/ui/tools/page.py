"""Page of a tool: definition, the rules about it, and a form to call it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import Depends, Request, Response
from markupsafe import Markup

from toolyard.catalog.token_costs import estimate_definition_tokens
from toolyard.errors import ToolyardError
from toolyard.types.server import Server
from toolyard.types.tool import Media, Result
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.tools.results import INLINE_IMAGE_TYPES, render_call_result
from toolyard.web.ui.tools.schema_form import BadArguments, ToolForm
from toolyard.web.ui.tools.server_tools import FoundTool, ServerToolsDep, find_file_server

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
class ToolLocation:
    """Server of a tool, and the path and title of the page that lists it."""

    server: Server
    page: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolPage:
    """Content of a tool's page."""

    place: ToolLocation
    found: FoundTool
    form: ToolForm
    tried: CallAttempt | None = None

    @property
    def tokens(self) -> int:
        """Estimated tokens of the definition."""
        return estimate_definition_tokens(self.found.definition)

    @property
    def callable(self) -> bool:
        """True if the person may call the tool."""
        return self.found.decision.verdict.is_visible


async def _locate_in_instance(
    me: deps.CurrentUser, instance_id: str, instance_sync: deps.InstanceSyncDep, registry: deps.RegistryDep
) -> ToolLocation:
    instance, registered = await instance_sync.find(me, instance_id)
    server = registry.build_instance_server(instance, registered)
    return ToolLocation(server, f"/ui/mcp/{instance.id}", instance.name)


async def _locate_in_file(me: deps.AdminUser, server_id: str, config: deps.ConfigDep) -> ToolLocation:
    server = find_file_server(config, server_id)
    return ToolLocation(server, f"/ui/admin/mcp/files/{server.id}", server.label or server.id)


_InstanceLocation = Annotated[ToolLocation, Depends(_locate_in_instance)]
_FileLocation = Annotated[ToolLocation, Depends(_locate_in_file)]


@dataclass(frozen=True, slots=True)
class _ToolPages:
    """The pages of the tools of one person."""

    request: Request
    me: deps.CurrentUser
    server_tools: ServerToolsDep
    user_tools: deps.UserToolsDep
    call_path: deps.CallPathDep
    results: deps.ResultRendererDep

    async def show(self, place: ToolLocation, name: str) -> Response:
        """Show a tool."""
        return await self._render(await self._build_page(place, name))

    async def call(self, place: ToolLocation, name: str, form: forms.SubmittedForm) -> Response:
        """Call a tool with the arguments of the form, and show the result."""
        page = await self._build_page(place, name)
        page = replace(page, form=page.form.with_submission(form))
        # A button that adds or removes an entry redraws the form without a call.
        if page.form.only_changed:
            return await self._render(page)
        try:
            arguments = page.form.arguments()
        except BadArguments as error:
            return await self._render(replace(page, form=page.form.with_errors(error)), 422)
        began = time.perf_counter()
        try:
            result = await self.user_tools.call(self.me, page.found.exposed, arguments)
            seconds = time.perf_counter() - began
            view = await render_call_result(
                self.call_path, self.results, self.me, place.server, result, arguments
            )
            attempt = CallAttempt(seconds, result, view)
        except ToolyardError as error:
            attempt = CallAttempt(time.perf_counter() - began, error=error)
        return await self._render(replace(page, tried=attempt))

    async def _build_page(self, place: ToolLocation, name: str) -> ToolPage:
        found = await self.server_tools.find(self.me, place.server, name)
        return ToolPage(place, found, ToolForm.from_schema(found.definition.input_schema))

    async def _render(self, page: ToolPage, status: int = 200) -> Response:
        return await responses.render_large_page(self.request, "tool.html", status=status, page=page)


_ToolPagesDep = Annotated[_ToolPages, Depends()]


@router.get("/ui/mcp/{instance_id}/tool")
async def show_instance_tool(place: _InstanceLocation, pages: _ToolPagesDep, name: str = "") -> Response:
    """Show a tool of an instance."""
    return await pages.show(place, name)


@router.post("/ui/mcp/{instance_id}/tool")
async def try_instance_tool(
    place: _InstanceLocation, pages: _ToolPagesDep, form: forms.FormDep, name: str = ""
) -> Response:
    """Call a tool of an instance and show the result."""
    return await pages.call(place, name, form)


@router.get("/ui/admin/mcp/files/{server_id}/tool")
async def show_config_tool(place: _FileLocation, pages: _ToolPagesDep, name: str = "") -> Response:
    """Show a tool of a server from a file."""
    return await pages.show(place, name)


@router.post("/ui/admin/mcp/files/{server_id}/tool")
async def try_config_tool(
    place: _FileLocation, pages: _ToolPagesDep, form: forms.FormDep, name: str = ""
) -> Response:
    """Call a tool of a server from a file and show the result."""
    return await pages.call(place, name, form)
