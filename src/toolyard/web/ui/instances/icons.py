"""Icons of servers, from our own origin."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.exceptions import HTTPException
from starlette.responses import Response

from toolyard.core.callers import CallerCache
from toolyard.types.server import Server
from toolyard.web.access.dependencies import RequestUser, require_user
from toolyard.web.routes import Routes
from toolyard.web.server_icons import Icon, ServerIcons
from toolyard.web.server_status import ServerRecords
from toolyard.web.service_dependencies import (
    CallersDep,
    InstanceSyncDep,
    RegistryDep,
    RegistryIconsDep,
    ServerIconsDep,
    ServerRecordsDep,
    ServerSignInsDep,
)

__all__ = ["router"]

router = Routes()

CurrentUser = Annotated[RequestUser, Depends(require_user)]

_CACHE_CONTROL = "private, max-age=3600"


@router.get("/ui/mcp/{instance_id}/icon")
async def show_instance_icon(
    me: CurrentUser,
    instance_id: str,
    callers: CallersDep,
    instance_sync: InstanceSyncDep,
    registry: RegistryDep,
    server_records: ServerRecordsDep,
    server_icons: ServerIconsDep,
) -> Response:
    """Return the icon of an instance's server."""
    server = registry.build_instance_server(*await instance_sync.find(me, instance_id))
    return await _respond(callers, server_records, server_icons, me, server)


@router.get("/ui/servers/{server_id}/icon")
async def show_config_server_icon(
    me: CurrentUser,
    server_id: str,
    callers: CallersDep,
    server_sign_ins: ServerSignInsDep,
    server_records: ServerRecordsDep,
    server_icons: ServerIconsDep,
) -> Response:
    """Return the icon of a configured server."""
    server = server_sign_ins.find_config_server(me, server_id)
    return await _respond(callers, server_records, server_icons, me, server)


@router.get("/ui/registry/{server_id}/icon")
async def show_registry_icon(me: CurrentUser, server_id: str, registry_icons: RegistryIconsDep) -> Response:
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
