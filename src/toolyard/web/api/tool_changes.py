"""``/servers/{id}/changes`` and ``/instances/{id}/changes``: review and acceptance of tool changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from toolyard.catalog.lock import Change
from toolyard.core.current_config import CurrentConfig
from toolyard.registry import Registry
from toolyard.types.registry import RegistryServer
from toolyard.types.server import Server
from toolyard.web import service_dependencies as deps
from toolyard.web.api import base as api

__all__ = ["router"]

router = api.ApiRoutes()


class ChangeResponse(api.ApiModel, schema="ChangeShown"):
    """A difference between the current and the accepted definitions of a server."""

    key: str = Field(description="Key that identifies this exact change; send it to accept the change.")
    kind: Literal["new", "changed", "renamed", "removed", "instructions", "package"]
    tool: str | None = Field(
        description="Name of the tool on its server; null if the change does not concern a tool."
    )
    was: str | None = Field(description="Accepted name of a renamed tool.")
    blocks: bool = Field(description="Whether the tool is quarantined until the change is accepted.")
    reason: str
    diff: list[str] = Field(description="Readable difference. It contains untrusted text of the server.")


class ChangeList(api.ItemList[ChangeResponse]):
    """Differences to the accepted definitions."""


class AcceptChangesRequest(api.RequestModel, schema="Acceptance"):
    """Changes to accept."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"keys": ["5f1c0a9b3d7e2f4a6b8c0d1e"]}]})

    keys: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        min_length=1, max_length=5000, description="Keys of listed differences."
    )


@router.get(
    "/servers/{id}/changes",
    tags=["servers"],
    errors=[404, 409, 502, 504],
    summary="List changes of a server",
)
async def list_server_changes(
    config: deps.ConfigDep,
    registry: deps.RegistryDep,
    tool_acceptance: deps.ToolAcceptanceDep,
    request_user: deps.AdminUser,
    id: api.PathId,
) -> ChangeList:
    """Return the unaccepted changes of a server. For a configured server, its last listing is compared with
    `mcp.lock`; for a registry server, the listings of all users with the definitions accepted for all."""
    server = await _find_server(config, registry, id)
    return _build_change_list(await tool_acceptance.find_changes(request_user, server))


@router.post(
    "/servers/{id}/changes",
    tags=["servers"],
    errors=[404, 409, 413, 415, 502, 504],
    summary="Accept changes of a server",
)
async def accept_server_changes(
    config: deps.ConfigDep,
    registry: deps.RegistryDep,
    tool_acceptance: deps.ToolAcceptanceDep,
    request_user: deps.AdminUser,
    id: api.PathId,
    given: AcceptChangesRequest,
) -> ChangeList:
    """Accept exactly the given changes for everyone, and return them. If one has changed since it was listed,
    nothing is accepted (409)."""
    server = await _find_server(config, registry, id)
    return _build_change_list(await tool_acceptance.accept_changes(request_user, server, given.keys))


@router.get(
    "/instances/{id}/changes",
    tags=["instances"],
    errors=[404],
    summary="List changes of an instance",
)
async def list_instance_changes(
    instance_sync: deps.InstanceSyncDep,
    tool_acceptance: deps.ToolAcceptanceDep,
    request_user: api.UserWithRead,
    id: api.PathId,
) -> ChangeList:
    """Return the changes in the last listing of your instance that neither you nor an admin accepted."""
    instance, _ = await instance_sync.find(request_user, id)
    return _build_change_list(await tool_acceptance.find_changes(request_user, instance))


@router.post(
    "/instances/{id}/changes",
    tags=["instances"],
    errors=[404, 409, 413, 415],
    summary="Accept changes of an instance",
)
async def accept_instance_changes(
    instance_sync: deps.InstanceSyncDep,
    tool_acceptance: deps.ToolAcceptanceDep,
    request_user: api.UserWithManage,
    id: api.PathId,
    given: AcceptChangesRequest,
) -> ChangeList:
    """Accept exactly the given changes for this instance only, and return them. If one has changed since it
    was listed, nothing is accepted (409)."""
    instance, _ = await instance_sync.find(request_user, id)
    return _build_change_list(await tool_acceptance.accept_changes(request_user, instance, given.keys))


async def _find_server(config: CurrentConfig, registry: Registry, server_id: str) -> Server | RegistryServer:
    """Return a configured server or a registry server. Raises NotFound."""
    return config.configuration.servers.get(server_id) or await registry.get_server(server_id)


def _build_change_list(changes: Sequence[Change]) -> ChangeList:
    return ChangeList(
        items=[
            ChangeResponse.of(each, tool=each.tool or None, was=each.was or None, diff=each.diff())
            for each in changes
        ]
    )
