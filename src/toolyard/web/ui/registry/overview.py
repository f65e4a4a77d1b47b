"""``/ui/admin/mcp``: the servers of the registry, and beside them those of the operator's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.registry.errors import NotFound
from toolyard.registry.shared_redirect import shared_in_files, shared_in_registry, sharing_redirect
from toolyard.types.registry import RegistryServer
from toolyard.web.access.dependencies import Visitor, admin
from toolyard.web.server_status import ServerRecord, config_record
from toolyard.web.services import Site
from toolyard.web.tool_acceptance import unaccepted, unaccepted_in_files
from toolyard.web.ui.components.confirm import Confirm, confirm_page
from toolyard.web.ui.components.flash import go
from toolyard.web.ui.components.formatting import count
from toolyard.web.ui.components.forms import posted
from toolyard.web.ui.components.paging import Pages, page_of
from toolyard.web.ui.components.render import render
from toolyard.web.ui.components.safe_redirect import inner_path

__all__ = ["router"]

router = APIRouter()

Me = Annotated[Visitor, Depends(admin)]


@dataclass(frozen=True, slots=True)
class RegistryPage:
    """One page of the registry, and all servers from files."""

    servers: Sequence[RegistryServer]
    counts: Mapping[str, int]
    """Instances of each, of everybody."""
    pages: Pages
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
async def list_servers(request: Request, me: Me, q: str = "", page: str = "1") -> Response:
    """The registry, a page at a time."""
    site: Site = request.app.state.site
    servers = await site.registry.servers()
    words = q.casefold().split()
    found = [each for each in servers if all(word in _text(each) for word in words)]
    shown, pages = page_of(found, page, "/ui/admin/mcp", {"q": q})
    caller = site.caller(me)
    files = [config_record(site, caller, each) for each in site.configuration.servers.values()]
    return render(
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
            {**await unaccepted(site, shown), **unaccepted_in_files(site, me)},
            sharing_redirect(
                shared_in_registry(servers), shared_in_files(site.configuration.servers.values())
            ),
        ),
    )


def _text(server: RegistryServer) -> str:
    return f"{server.name}\n{server.url}\n{server.description}".casefold()


# What one press does.


@router.post("/ui/admin/mcp/{server_id}/enable")
async def enable(request: Request, me: Me, server_id: str) -> Response:
    """Let instances of it be used."""
    return await _switch(request, me, server_id, True)


@router.post("/ui/admin/mcp/{server_id}/disable")
async def disable(request: Request, me: Me, server_id: str) -> Response:
    """Nobody can use it until it is switched on again."""
    return await _switch(request, me, server_id, False)


async def _switch(request: Request, me: Visitor, server_id: str, enabled: bool) -> Response:
    site: Site = request.app.state.site
    server = await site.registry.enable_server(server_id, enabled)
    await site.changed(me, "server.enable" if enabled else "server.disable", server.id, name=server.name)
    back = inner_path((await posted(request)).text("next"), "/ui/admin/mcp")
    return go(back, f"“{server.name}” is {'enabled' if enabled else 'disabled'}.")


@router.get("/ui/admin/mcp/{server_id}/delete")
async def ask_to_delete(request: Request, me: Me, server_id: str) -> Response:
    """Ask again: others may use it."""
    site: Site = request.app.state.site
    server = await site.registry.server(server_id)
    used = (await site.registry.count_instances()).get(server.id, 0)
    page = Confirm(
        title=f"Delete “{server.name}”?",
        text=f"{count(used, 'instance')} of it would be gone too, with the sign-ins of those who made them."
        if used
        else "Nobody has an instance of it.",
        action=f"/ui/admin/mcp/{server.id}/delete",
        back=f"/ui/admin/mcp/{server.id}",
    )
    return confirm_page(request, page)


@router.post("/ui/admin/mcp/{server_id}/delete")
async def delete(request: Request, me: Me, server_id: str) -> Response:
    """Delete it, with everybody's instances."""
    site: Site = request.app.state.site
    server = await site.sign_outs.delete_server(site.registry, server_id)
    await site.changed(me, "server.delete", server_id, name=server.name)
    return go("/ui/admin/mcp", f"“{server.name}” is deleted.")


@router.post("/ui/admin/mcp/files/{server_id}/restart")
async def restart(request: Request, me: Me, server_id: str) -> Response:
    """Start a server of the files again, whatever happened to it."""
    site: Site = request.app.state.site
    if server_id not in site.configuration.servers:
        raise NotFound("there is no such server", hint="it may have been taken out of its file")
    await site.parts.manager.restart(server_id)
    site.spawn(site.warm([server_id]))
    await site.changed(me, "server.restart", server_id)
    back = inner_path((await posted(request)).text("next"), "/ui/admin/mcp")
    return go(back, f"“{server_id}” is being restarted.")
