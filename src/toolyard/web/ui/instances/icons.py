"""Icons of servers, from our own origin."""

from __future__ import annotations

from fastapi import Response
from starlette.exceptions import HTTPException

from toolyard.core.callers import CallerCache
from toolyard.types.account import RequestUser
from toolyard.types.server import Server
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.icons import Icon, ServerIcons
from toolyard.web.servers.status import ServerRecords

__all__ = ["router"]

router = Routes()

_CACHE_CONTROL = "private, max-age=3600"


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
        raise HTTPException(404)
    return Response(icon.content, media_type=icon.media_type, headers={"Cache-Control": _CACHE_CONTROL})
