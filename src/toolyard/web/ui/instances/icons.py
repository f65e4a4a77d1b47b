"""Icons of servers, from our own origin."""

from __future__ import annotations

from fastapi import Response

from toolyard.core.caller_cache import CallerCache
from toolyard.types.account import RequestUser
from toolyard.types.server import Server
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.icons import Icon, ServerIcons
from toolyard.web.servers.status import ServerRecords

__all__ = ["router"]

router = Routes()

_CACHE_CONTROL = "private, max-age=3600"
_PLUG_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 20" fill="none" stroke="#2457b0" '
    'stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round">'
    '<path d="M7 2.5v4M13 2.5v4M5 6.5h10V10a5 5 0 0 1-10 0zM10 15v2.5"/></svg>'
)


@router.get("/ui/mcp/{instance_id}/icon")
async def show_instance_icon(
    me: deps.CurrentUser,
    instance_id: str,
    callers: deps.CallersDep,
    instance_sync: deps.InstanceSyncDep,
    registry: deps.RegistryDep,
    server_records: deps.ServerRecordsDep,
    server_icons: deps.ServerIconsDep,
) -> Response:
    """Return the icon of an instance's server."""
    server = registry.build_instance_server(*await instance_sync.find(me, instance_id))
    return await _respond(callers, server_records, server_icons, me, server)


@router.get("/ui/servers/{server_id}/icon")
async def show_config_server_icon(
    me: deps.CurrentUser,
    server_id: str,
    callers: deps.CallersDep,
    server_sign_ins: deps.ServerSignInsDep,
    server_records: deps.ServerRecordsDep,
    server_icons: deps.ServerIconsDep,
) -> Response:
    """Return the icon of a configured server."""
    server = server_sign_ins.find_config_server(me, server_id)
    return await _respond(callers, server_records, server_icons, me, server)


@router.get("/ui/registry/{server_id}/icon")
async def show_registry_icon(
    me: deps.CurrentUser, server_id: str, registry_icons: deps.RegistryIconsDep
) -> Response:
    """Return the icon of a registry server. Everyone who signs in may see these servers."""
    return _respond_with(await registry_icons.fetch(server_id))


async def _respond(
    callers: CallerCache, records: ServerRecords, icons: ServerIcons, me: RequestUser, server: Server
) -> Response:
    return _respond_with(await icons.fetch(server, records.find_icon_urls(callers.get(me), server)))


def _respond_with(icon: Icon | None) -> Response:
    if icon is None:
        # Browsers show the body of an error, too, instead of a broken image.
        return Response(_PLUG_SVG, 404, media_type="image/svg+xml")
    return Response(icon.content, media_type=icon.media_type, headers={"Cache-Control": _CACHE_CONTROL})
