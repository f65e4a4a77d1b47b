"""Page of a tool: definition, the rules about it, and a form to call it; also rows of tool lists."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.catalog.lock.combined_locks import CombinedLocks
from toolyard.catalog.token_estimate import estimate_definition_tokens
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients.call_path import CallPath
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.core.callers import CallerCache
from toolyard.core.current_config import CurrentConfig
from toolyard.core.instances import InstanceSync
from toolyard.core.user_tools import UserTools
from toolyard.errors import ToolyardError
from toolyard.registry import Registry
from toolyard.registry.errors import NotFound
from toolyard.types.call import Caller
from toolyard.types.decision import Decision, Verdict
from toolyard.types.result import Media, Result
from toolyard.types.server import Server
from toolyard.types.tool import Definition, JsonObject
from toolyard.web.access.dependencies import RequestUser, require_admin, require_user
from toolyard.web.service_dependencies import (
    CallersDep,
    CallPathDep,
    ConfigDep,
    InstanceSyncDep,
    LocksDep,
    RegistryDep,
    ToolDirectoryDep,
    UserToolsDep,
)
from toolyard.web.ui.components.forms import read_submitted_form
from toolyard.web.ui.components.render import render_page
from toolyard.web.ui.registry.server_listing import fetch_server_listing
from toolyard.web.ui.tools.form import ToolForm
from toolyard.web.ui.tools.schema_form import BadArguments

__all__ = ["ToolRow", "build_plain_row", "build_tool_rows", "router"]


router = APIRouter()

_INLINE_IMAGE_TYPES = (
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/avif",
    "image/bmp",
    "image/svg+xml",
)


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """Result of a call, or its error."""

    seconds: float
    result: Result | None = None
    error: ToolyardError | None = None

    @property
    def pictures(self) -> list[Media]:
        """Images of the result that browsers can display."""
        media = self.result.media if self.result is not None else ()
        return [each for each in media if each.kind == "image" and each.mime in _INLINE_IMAGE_TYPES]


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
    me: Annotated[RequestUser, Depends(require_user)],
    instance_id: str,
    callers: CallersDep,
    instance_sync: InstanceSyncDep,
    registry: RegistryDep,
    tool_directory: ToolDirectoryDep,
    call_path: CallPathDep,
    locks: LocksDep,
    name: str = "",
) -> Response:
    """Show a tool of an instance."""
    return await _render_tool_page(
        request,
        callers,
        tool_directory,
        call_path,
        locks,
        me,
        await _locate_in_instance(request, instance_sync, registry, me, instance_id),
        name,
    )


@router.post("/ui/mcp/{instance_id}/tool")
async def try_instance_tool(
    request: Request,
    me: Annotated[RequestUser, Depends(require_user)],
    instance_id: str,
    callers: CallersDep,
    instance_sync: InstanceSyncDep,
    registry: RegistryDep,
    tool_directory: ToolDirectoryDep,
    call_path: CallPathDep,
    locks: LocksDep,
    user_tools: UserToolsDep,
    name: str = "",
) -> Response:
    """Call a tool of an instance and show the result."""
    return await _try_tool(
        request,
        callers,
        tool_directory,
        call_path,
        locks,
        user_tools,
        me,
        await _locate_in_instance(request, instance_sync, registry, me, instance_id),
        name,
    )


@router.get("/ui/admin/mcp/files/{server_id}/tool")
async def show_config_tool(
    request: Request,
    me: Annotated[RequestUser, Depends(require_admin)],
    server_id: str,
    callers: CallersDep,
    config: ConfigDep,
    tool_directory: ToolDirectoryDep,
    call_path: CallPathDep,
    locks: LocksDep,
    name: str = "",
) -> Response:
    """Show a tool of a server from a file."""
    return await _render_tool_page(
        request,
        callers,
        tool_directory,
        call_path,
        locks,
        me,
        _locate_in_file(request, config, server_id),
        name,
    )


@router.post("/ui/admin/mcp/files/{server_id}/tool")
async def try_config_tool(
    request: Request,
    me: Annotated[RequestUser, Depends(require_admin)],
    server_id: str,
    callers: CallersDep,
    config: ConfigDep,
    tool_directory: ToolDirectoryDep,
    call_path: CallPathDep,
    locks: LocksDep,
    user_tools: UserToolsDep,
    name: str = "",
) -> Response:
    """Call a tool of a server from a file and show the result."""
    return await _try_tool(
        request,
        callers,
        tool_directory,
        call_path,
        locks,
        user_tools,
        me,
        _locate_in_file(request, config, server_id),
        name,
    )


async def _locate_in_instance(
    request: Request, instance_sync: InstanceSync, registry: Registry, me: RequestUser, instance_id: str
) -> _ToolLocation:
    instance, registered = await instance_sync.find(me, instance_id)
    server = registry.build_instance_server(instance, registered)
    return _ToolLocation(server, f"/ui/mcp/{instance.id}", instance.name)


def _locate_in_file(request: Request, config: CurrentConfig, server_id: str) -> _ToolLocation:
    server = config.configuration.servers.get(server_id)
    if server is None:
        raise NotFound("server not found", hint="it may have been removed from its file")
    return _ToolLocation(server, f"/ui/admin/mcp/files/{server.id}", server.label or server.id)


async def _render_tool_page(
    request: Request,
    callers: CallerCache,
    tool_directory: ToolDirectory,
    call_path: CallPath,
    locks: CombinedLocks,
    me: RequestUser,
    place: _ToolLocation,
    name: str,
) -> Response:
    return render_page(
        request,
        "tool.html",
        page=await _build_page(callers, tool_directory, call_path, locks, me, place, name),
    )


async def _try_tool(
    request: Request,
    callers: CallerCache,
    tool_directory: ToolDirectory,
    call_path: CallPath,
    locks: CombinedLocks,
    user_tools: UserTools,
    me: RequestUser,
    place: _ToolLocation,
    name: str,
) -> Response:
    form = await read_submitted_form(request)
    page = await _build_page(callers, tool_directory, call_path, locks, me, place, name)
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
        attempt = CallAttempt(time.perf_counter() - began, result)
    except ToolyardError as error:
        attempt = CallAttempt(time.perf_counter() - began, error=error)
    return render_page(request, "tool.html", page=replace(page, form=filled, tried=attempt))


async def _build_page(
    callers: CallerCache,
    tool_directory: ToolDirectory,
    call_path: CallPath,
    locks: CombinedLocks,
    me: RequestUser,
    place: _ToolLocation,
    name: str,
) -> ToolPage:
    known_listing = tool_directory.known_listing(me.principal)
    found = _find_tool(known_listing, place.server.id, name)
    if found is None:
        # This process has not listed the server yet, or the tool was added since: fetch a new listing.
        fetched = await fetch_server_listing(tool_directory, call_path, me.principal, place.server)
        if fetched.error is not None:
            raise fetched.error
        found = _find_tool(fetched.tool_listing, place.server.id, name)
    if found is None:
        raise NotFound("the server has no such tool", hint="it may have changed; check the list of its tools")
    exposed, definition = found
    catalogue = tool_directory.known_listing(me.principal).catalogues.get(place.server.id)
    quarantined = () if catalogue is None else locks.quarantine_reasons(catalogue.contents)
    return ToolPage(
        definition,
        exposed,
        call_path.explain(exposed, callers.get(me)),
        estimate_definition_tokens(definition),
        ToolForm.from_schema(definition.input_schema),
        back=place.page,
        back_text=place.text,
        review=f"{place.page}/changes" if definition.name in quarantined else "",
    )


def _find_tool(tool_listing: ToolListing, server_id: str, name: str) -> tuple[str, Definition] | None:
    for exposed, definition in tool_listing.tools.items():
        if definition.server_id == server_id and definition.name == name:
            return exposed, definition
    return None


_MAX_TOOLS_WITH_SCHEMAS = 300
"""Maximum number of tools in a list that includes their schemas. Longer lists omit them."""


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A tool in a list. ``name`` is the name on its server."""

    name: str
    title: str | None
    description: str
    annotations: JsonObject
    tokens: int
    schema: JsonObject | None
    exposed: str | None = None
    """Name that models see; None in previews."""
    verdict: str | None = None
    reason: str | None = None
    """Reason why it needs approval or cannot be used; None if it can."""
    picked: bool = True
    """True if the tool selection of the instance includes it."""
    href: str | None = None
    review: str | None = None
    """URL of the page where its change can be accepted; None if it has none."""


def build_plain_row(
    definition: Definition,
    tokens: int | None = None,
    *,
    include_schema: bool = True,
    reason: str | None = None,
    review_path: str | None = None,
) -> ToolRow:
    """Return the row of a tool without a policy decision. ``reason`` says why it is in quarantine."""
    return ToolRow(
        definition.name,
        definition.title,
        definition.description,
        definition.annotations,
        estimate_definition_tokens(definition) if tokens is None else tokens,
        definition.input_schema if include_schema else None,
        reason=reason and f"in quarantine: {reason}",
        review=review_path if reason else None,
    )


def build_tool_rows(
    call_path: CallPath,
    locks: CombinedLocks,
    caller: Caller,
    tool_listing: ToolListing,
    server_id: str,
    page_prefix: str,
    tool_filter: tuple[str, ...] | None = None,
    *,
    review_path: str,
) -> list[ToolRow]:
    """Return the rows of all tools of a server, sorted by name.

    ``page_prefix`` plus the name of a tool is the URL of its page. ``tool_filter`` is the selection of the
    instance. ``review_path`` is the page where changed tools are accepted.
    """
    listed = [(name, each) for name, each in tool_listing.tools.items() if each.server_id == server_id]
    listed.sort(key=lambda pair: pair[1].name)
    schemas = len(listed) <= _MAX_TOOLS_WITH_SCHEMAS
    explain: Callable[[str, Caller], Decision] = call_path.explain
    catalogue = tool_listing.catalogues.get(server_id)
    quarantined = () if catalogue is None else locks.quarantine_reasons(catalogue.contents)
    rows = (
        _build_row(
            name,
            each,
            explain(name, caller),
            f"{page_prefix}{quote(each.name, safe='')}",
            tool_filter,
            schemas,
        )
        for name, each in listed
    )
    return [replace(row, review=review_path) if row.name in quarantined else row for row in rows]


def _build_row(
    exposed: str,
    definition: Definition,
    decision: Decision,
    href: str,
    tool_filter: Iterable[str] | None,
    include_schema: bool,
) -> ToolRow:
    decisive = decision.decisive
    return ToolRow(
        definition.name,
        definition.title,
        definition.description,
        definition.annotations,
        estimate_definition_tokens(definition),
        definition.input_schema if include_schema else None,
        exposed,
        decision.verdict.value,
        None if decisive is None or decision.verdict is Verdict.ALLOW else decisive.reason,
        tool_filter is None or definition.name in tool_filter,
        href,
    )
