"""``/ui/admin/mcp``: the servers of the registry, and beside them those of the operator's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.registry.errors import NotFound
from toolyard.registry.shared_redirect import (
    find_servers_sharing_redirect,
    shared_redirect_issuers_in_files,
    shared_redirect_issuers_in_registry,
)
from toolyard.types.registry import RegistryServer
from toolyard.web.access.dependencies import RequestUser, require_admin
from toolyard.web.server_status import ServerRecord, build_config_record
from toolyard.web.services import Services
from toolyard.web.tool_acceptance import count_unaccepted_file_tools, count_unaccepted_tools
from toolyard.web.ui.components.confirm import ConfirmPage, render_confirm_page
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.formatting import count
from toolyard.web.ui.components.forms import read_submitted_form
from toolyard.web.ui.components.paging import Pagination, paginate
from toolyard.web.ui.components.render import render_page
from toolyard.web.ui.components.safe_redirect import safe_redirect_path

__all__ = ["router"]

router = APIRouter()

AdminUser = Annotated[RequestUser, Depends(require_admin)]


@dataclass(frozen=True, slots=True)
class RegistryPage:
    """One page of the registry, and all servers from files."""

    servers: Sequence[RegistryServer]
    counts: Mapping[str, int]
    """Instances of each, of everybody."""
    pages: Pagination
    query: str
    any_servers: bool
    files: list[ServerRecord]
    file: str | None
    """The configuration file in use."""
    waiting: str | None
    config_problem: str | None
    changed: Mapping[str, int]
    """How many tools of each server are not accepted, where there are any; of the files by their ids too."""
    sharing: Sequence[str]
    """Servers whose entered client ids share a redirect address, although their issuers differ."""


@router.get("/ui/admin/mcp")
async def list_servers(request: Request, me: AdminUser, q: str = "", page: str = "1") -> Response:
    """The registry, a page at a time."""
    site: Services = request.app.state.site
    servers = await site.registry.servers()
    words = q.casefold().split()
    found = [each for each in servers if all(word in _build_search_text(each) for word in words)]
    shown, pages = paginate(found, page, "/ui/admin/mcp", {"q": q})
    caller = site.get_caller(me)
    files = [build_config_record(site, caller, each) for each in site.configuration.servers.values()]
    return render_page(
        request,
        "registry.html",
        page=RegistryPage(
            shown,
            await site.registry.count_instances(),
            pages,
            q,
            bool(servers),
            files,
            site.configuration.file,
            site.configuration.waiting,
            site.config_problem,
            {**await count_unaccepted_tools(site, shown), **count_unaccepted_file_tools(site, me)},
            find_servers_sharing_redirect(
                shared_redirect_issuers_in_registry(servers),
                shared_redirect_issuers_in_files(site.configuration.servers.values()),
            ),
        ),
    )


def _build_search_text(server: RegistryServer) -> str:
    return f"{server.name}\n{server.url}\n{server.description}".casefold()


# What one press does.


@router.post("/ui/admin/mcp/{server_id}/enable")
async def enable_server(request: Request, me: AdminUser, server_id: str) -> Response:
    """Let instances of it be used."""
    return await _set_server_enabled(request, me, server_id, True)


@router.post("/ui/admin/mcp/{server_id}/disable")
async def disable_server(request: Request, me: AdminUser, server_id: str) -> Response:
    """Nobody can use it until it is switched on again."""
    return await _set_server_enabled(request, me, server_id, False)


async def _set_server_enabled(request: Request, me: RequestUser, server_id: str, enabled: bool) -> Response:
    site: Services = request.app.state.site
    server = await site.registry.set_server_enabled(server_id, enabled)
    await site.changed(me, "server.enable" if enabled else "server.disable", server.id, name=server.name)
    back = safe_redirect_path((await read_submitted_form(request)).text("next"), "/ui/admin/mcp")
    return redirect_with_message(back, f"“{server.name}” is {'enabled' if enabled else 'disabled'}.")


@router.get("/ui/admin/mcp/{server_id}/delete")
async def show_delete_confirmation(request: Request, me: AdminUser, server_id: str) -> Response:
    """Ask again: others may use it."""
    site: Services = request.app.state.site
    server = await site.registry.server(server_id)
    used = (await site.registry.count_instances()).get(server.id, 0)
    sign_ins = "its sign-in" if used == 1 else "their sign-ins"
    page = ConfirmPage(
        title=f"Delete “{server.name}”?",
        text=f"This also deletes {count(used, 'instance')} and {sign_ins}."
        if used
        else "It has no instances.",
        action=f"/ui/admin/mcp/{server.id}/delete",
        back=f"/ui/admin/mcp/{server.id}",
    )
    return render_confirm_page(request, page)


@router.post("/ui/admin/mcp/{server_id}/delete")
async def delete_server(request: Request, me: AdminUser, server_id: str) -> Response:
    """Delete it, with everybody's instances."""
    site: Services = request.app.state.site
    server = await site.sign_outs.delete_server(site.registry, server_id)
    await site.changed(me, "server.delete", server_id, name=server.name)
    return redirect_with_message("/ui/admin/mcp", f"“{server.name}” is deleted.")


@router.post("/ui/admin/mcp/files/{server_id}/restart")
async def restart_server(request: Request, me: AdminUser, server_id: str) -> Response:
    """Start a server of the files again, whatever happened to it."""
    site: Services = request.app.state.site
    if server_id not in site.configuration.servers:
        raise NotFound("server not found", hint="it may have been removed from its file")
    await site.parts.manager.restart(server_id)
    site.spawn(site.connect_shared_servers([server_id]))
    await site.changed(me, "server.restart", server_id)
    back = safe_redirect_path((await read_submitted_form(request)).text("next"), "/ui/admin/mcp")
    return redirect_with_message(back, f"“{server_id}” is being restarted.")
