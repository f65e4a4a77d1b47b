"""``/ui/admin/mcp``: servers of the registry, and servers from configuration files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import Request, Response

from toolyard.core.audit import AuditRecorder
from toolyard.registry import Registry
from toolyard.registry.errors import NotFound
from toolyard.registry.redirect_conflicts import (
    find_servers_sharing_redirect,
    shared_redirect_issuers_in_files,
    shared_redirect_issuers_in_registry,
)
from toolyard.types.account import RequestUser
from toolyard.types.registry import RegistryServer
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.status import ServerRecord
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.formatting import count
from toolyard.web.ui.components.forms import ConfirmPage, read_submitted_form, render_confirm_page
from toolyard.web.ui.components.paging import Pagination, paginate
from toolyard.web.ui.components.render import render_page
from toolyard.web.ui.components.safe_redirect import safe_redirect_path

__all__ = ["router"]

router = Routes()


@dataclass(frozen=True, slots=True)
class RegistryPage:
    """Content of the registry page: one page of servers, and all servers from files."""

    servers: Sequence[RegistryServer]
    counts: Mapping[str, int]
    """Number of instances of all people, by server id."""
    pages: Pagination
    query: str
    any_servers: bool
    files: list[ServerRecord]
    file: str | None
    """Path of the configuration file."""
    waiting: str | None
    config_problem: str | None
    changed: Mapping[str, int]
    """Number of tools with changes that are not accepted, by server id, also for servers from files."""
    icons: Mapping[str, str]
    """Paths of icons, by server id; empty for a server without one."""
    sharing: Sequence[str]
    """Names of servers whose client ids share a redirect address although their issuers differ."""


@router.get("/ui/admin/mcp")
async def list_servers(
    request: Request,
    me: deps.AdminUser,
    callers: deps.CallersDep,
    config: deps.ConfigDep,
    registry: deps.RegistryDep,
    tool_acceptance: deps.ToolAcceptanceDep,
    server_records: deps.ServerRecordsDep,
    registry_icons: deps.RegistryIconsDep,
    q: str = "",
    page: str = "1",
) -> Response:
    """Show one page of the registry."""
    servers = await registry.list_servers()
    words = q.casefold().split()
    matches = [each for each in servers if all(word in _build_search_text(each) for word in words)]
    shown, pages = paginate(matches, page, "/ui/admin/mcp", {"q": q})
    caller = callers.get(me)
    files = [
        server_records.build_config_record(caller, each) for each in config.configuration.servers.values()
    ]
    return render_page(
        request,
        "registry.html",
        page=RegistryPage(
            shown,
            await registry.count_instances(),
            pages,
            q,
            bool(servers),
            files,
            config.configuration.file,
            config.configuration.waiting,
            config.problem,
            {
                **await tool_acceptance.count_unaccepted_tools(shown),
                **tool_acceptance.count_unaccepted_file_tools(me),
            },
            await registry_icons.list_paths(me, shown),
            find_servers_sharing_redirect(
                shared_redirect_issuers_in_registry(servers),
                shared_redirect_issuers_in_files(config.configuration.servers.values()),
            ),
        ),
    )


def _build_search_text(server: RegistryServer) -> str:
    return f"{server.name}\n{server.url}\n{server.description}".casefold()


# Buttons.


@router.post("/ui/admin/mcp/{server_id}/enable")
async def enable_server(
    request: Request, me: deps.AdminUser, server_id: str, audit: deps.AuditDep, registry: deps.RegistryDep
) -> Response:
    """Enable a server."""
    return await _set_server_enabled(request, audit, registry, me, server_id, True)


@router.post("/ui/admin/mcp/{server_id}/disable")
async def disable_server(
    request: Request, me: deps.AdminUser, server_id: str, audit: deps.AuditDep, registry: deps.RegistryDep
) -> Response:
    """Disable a server, and with it all its instances."""
    return await _set_server_enabled(request, audit, registry, me, server_id, False)


async def _set_server_enabled(
    request: Request, audit: AuditRecorder, registry: Registry, me: RequestUser, server_id: str, enabled: bool
) -> Response:
    server = await registry.set_server_enabled(server_id, enabled)
    await audit.record_change(
        me, "server.enable" if enabled else "server.disable", server.id, name=server.name
    )
    back = safe_redirect_path((await read_submitted_form(request)).text("next"), "/ui/admin/mcp")
    return redirect_with_message(back, f"“{server.name}” is {'enabled' if enabled else 'disabled'}.")


@router.get("/ui/admin/mcp/{server_id}/delete")
async def show_delete_confirmation(
    request: Request, me: deps.AdminUser, server_id: str, registry: deps.RegistryDep
) -> Response:
    """Show the confirmation page with the number of affected instances."""
    server = await registry.get_server(server_id)
    used = (await registry.count_instances()).get(server.id, 0)
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
async def delete_server(
    request: Request,
    me: deps.AdminUser,
    server_id: str,
    audit: deps.AuditDep,
    registry: deps.RegistryDep,
    sign_outs: deps.SignOutsDep,
) -> Response:
    """Delete a server with all its instances."""
    server = await sign_outs.delete_server(registry, server_id)
    await audit.record_change(me, "server.delete", server_id, name=server.name)
    return redirect_with_message("/ui/admin/mcp", f"“{server.name}” is deleted.")


@router.post("/ui/admin/mcp/files/{server_id}/restart")
async def restart_server(
    request: Request,
    me: deps.AdminUser,
    server_id: str,
    audit: deps.AuditDep,
    config: deps.ConfigDep,
    manager: deps.ManagerDep,
    configured_servers: deps.ConfiguredServersDep,
) -> Response:
    """Restart a server from a file, in whatever state it is."""
    if server_id not in config.configuration.servers:
        raise NotFound("server not found", hint="it may have been removed from its file")
    await manager.restart(server_id)
    # Connect in the background: the page shows the progress through its live status.
    configured_servers.connect_shared_in_background([server_id])
    await audit.record_change(me, "server.restart", server_id)
    back = safe_redirect_path((await read_submitted_form(request)).text("next"), "/ui/admin/mcp")
    return redirect_with_message(back, f"“{server_id}” is being restarted.")
