"""``/ui/admin/mcp``: servers of the registry, and servers from configuration files."""

from __future__ import annotations

from fastapi import Request, Response

from toolyard.registry.redirect_conflicts import find_servers_sharing_redirect
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import count
from toolyard.web.ui.components.lists import paginate
from toolyard.web.ui.tools.server_tools import find_file_server

__all__ = ["router"]

router = Routes()


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
    servers, configuration = await registry.list_servers(), config.configuration
    shown, pages = paginate(
        servers, lambda each: f"{each.name}\n{each.url}\n{each.description}", "/ui/admin/mcp", q, page
    )
    caller, file_servers = callers.get(me), configuration.servers.values()
    return responses.render_page(
        request,
        "registry.html",
        servers=shown,
        # Number of instances of all people, by server id.
        counts=await registry.count_instances(),
        pages=pages,
        query=q,
        any_servers=bool(servers),
        files=[server_records.build_config_record(caller, each) for each in file_servers],
        file=configuration.file,
        waiting=configuration.waiting,
        config_problem=config.problem,
        # Number of tools with changes that are not accepted, by server id.
        changed={
            **await tool_acceptance.count_unaccepted_tools(shown),
            **tool_acceptance.count_unaccepted_file_tools(me),
        },
        icons=await registry_icons.list_paths(me, shown),
        # Names of servers whose client ids share a redirect URI although their issuers differ.
        sharing=find_servers_sharing_redirect(file_servers, servers),
    )


# Buttons.


@router.post("/ui/admin/mcp/{server_id}/enable")
@router.post("/ui/admin/mcp/{server_id}/disable")
async def set_server_enabled(
    request: Request,
    me: deps.AdminUser,
    server_id: str,
    form: forms.FormDep,
    audit: deps.AuditDep,
    registry: deps.RegistryDep,
) -> Response:
    """Enable or disable a server, and with it all its instances."""
    verb = request.url.path.rpartition("/")[2]
    server = await registry.set_server_enabled(server_id, verb == "enable")
    await audit.record_change(me, f"server.{verb}", server.id, name=server.name)
    return responses.redirect_to(form.next_path("/ui/admin/mcp"), f"“{server.name}” is {verb}d.")


@router.get("/ui/admin/mcp/{server_id}/delete")
async def show_delete_confirmation(
    request: Request, me: deps.AdminUser, server_id: str, registry: deps.RegistryDep
) -> Response:
    """Show the confirmation page with the number of affected instances."""
    server = await registry.get_server(server_id)
    used = (await registry.count_instances()).get(server.id, 0)
    sign_ins = "its sign-in" if used == 1 else "their sign-ins"
    return responses.render_confirmation(
        request,
        title=f"Delete “{server.name}”?",
        text=f"This also deletes {count(used, 'instance')} and {sign_ins}."
        if used
        else "It has no instances.",
        action=f"/ui/admin/mcp/{server.id}/delete",
        back=f"/ui/admin/mcp/{server.id}",
    )


@router.post("/ui/admin/mcp/{server_id}/delete")
async def delete_server(
    me: deps.AdminUser,
    server_id: str,
    audit: deps.AuditDep,
    registry: deps.RegistryDep,
    sign_outs: deps.SignOutsDep,
) -> Response:
    """Delete a server with all its instances."""
    server = await sign_outs.delete_server(registry, server_id)
    await audit.record_change(me, "server.delete", server_id, name=server.name)
    return responses.redirect_to("/ui/admin/mcp", f"“{server.name}” was deleted.")


@router.post("/ui/admin/mcp/files/{server_id}/restart")
async def restart_server(
    me: deps.AdminUser,
    server_id: str,
    form: forms.FormDep,
    audit: deps.AuditDep,
    config: deps.ConfigDep,
    manager: deps.ManagerDep,
    configured_servers: deps.ConfiguredServersDep,
) -> Response:
    """Restart a server from a file, in whatever state it is."""
    find_file_server(config, server_id)
    await manager.restart(server_id)
    # Connect in the background: the page shows the progress through its live status.
    configured_servers.connect_shared_in_background([server_id])
    await audit.record_change(me, "server.restart", server_id)
    return responses.redirect_to(form.next_path("/ui/admin/mcp"), f"“{server_id}” is being restarted.")
