"""``/status``: the status of the user's servers, and restart of a configured server."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fastapi import Depends
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from toolyard.types.server import TransportName
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AdminUser,
    PathId,
    UserWithRead,
    problem_responses,
    require_media_types,
    to_optional_datetime,
)
from toolyard.web.routes import Routes
from toolyard.web.servers.status import ServerRecord
from toolyard.web.service_dependencies import CallersDep, ConfigDep, ConfiguredServersDep, ServerRecordsDep

__all__ = ["ServerStatus", "StatusList", "build_status_model", "router"]

router = Routes(tags=["status"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))])

_STATUS_EXAMPLE: dict[str, JsonValue] = {
    "kind": "config",
    "id": "github",
    "label": "GitHub",
    "description": "",
    "transport": "http",
    "trust": "trusted",
    "enabled": True,
    "state": "ready",
    "reason": None,
    "cause": None,
    "hint": None,
    "since": "2026-11-15T06:00:00Z",
    "protocol_version": "2026-07-28",
    "server_name": "github-mcp-server",
    "server_version": "1.4.0",
    "tool_count": 41,
    "token_cost": 8120,
    "provenance": "mcp.json:3",
    "shared": False,
    "restarts": 0,
    "next_retry": None,
    "last_call": "2026-11-15T06:42:10Z",
    "pid": None,
    "processes": [],
    "stderr": [],
    "slug": None,
    "registry_id": None,
}


class ProcessStatus(BaseModel):
    """A process of a stdio server."""

    pid: int
    users: list[str] = Field(description="Names of the clients with a session, and of chats, that use it.")
    launch: str | None = Field(description="How it was started, if processes were started in different ways.")


class ServerStatus(BaseModel):
    """Status of a server."""

    model_config = ConfigDict(json_schema_extra={"examples": [_STATUS_EXAMPLE]})

    kind: Literal["config", "instance"] = Field(description="Configured server, or one of your instances.")
    id: str = Field(description="Id of the configured server or of the instance.")
    label: str
    description: str
    transport: TransportName
    trust: Literal["trusted", "untrusted"]
    enabled: bool
    state: Literal[
        "disabled",
        "idle",
        "connecting",
        "ready",
        "needs_auth",
        "failed",
        "closed",
        "pending",
        "needs_reauth",
    ] = Field(description="State. Instances are pending, ready, needs_reauth, failed or disabled.")
    reason: str | None = Field(description="Reason for the state, as a stable identifier.")
    cause: str | None = Field(description="Reason for the state, in one sentence.")
    hint: str | None = Field(description="Suggested next step.")
    since: datetime | None
    protocol_version: str | None
    server_name: str | None
    server_version: str | None
    tool_count: int | None = Field(description="Number of tools; null if they were never listed.")
    token_cost: int | None = Field(description="Estimated size of all tool definitions, in tokens.")
    provenance: str | None = Field(description="Source of the entry; for admins with file and line.")
    shared: bool
    restarts: int
    next_retry: datetime | None
    last_call: datetime | None = Field(
        description="Time of the last request to the server. A change of it alone sends no event."
    )
    pid: int | None = Field(description="Process id. Shown to admins only.")
    processes: list[ProcessStatus] = Field(
        description="All processes of a stdio server for you. Shown to admins only."
    )
    stderr: list[str] = Field(
        description="Last lines of standard error after a failure. Shown to admins only."
    )
    slug: str | None = Field(description="Slug of the instance.")
    registry_id: str | None = Field(description="Registry server of the instance.")


class StatusList(BaseModel):
    """Status of all servers."""

    items: list[ServerStatus]
    config_problem: str | None = Field(
        description="Error in the last edit of the configuration. Shown to admins only."
    )


def build_status_model(record: ServerRecord) -> ServerStatus:
    """Return the response model of a status record."""
    values = {name: getattr(record, name) for name in _RECORD_FIELDS}
    values["since"] = to_optional_datetime(record.since)
    values["next_retry"] = to_optional_datetime(record.next_retry)
    values["last_call"] = to_optional_datetime(record.last_call)
    values["stderr"] = list(record.stderr)
    values["processes"] = [
        ProcessStatus(pid=each.pid, users=list(each.users), launch=each.launch) for each in record.processes
    ]
    # Without validation: the values are our own, and live updates build many of these.
    return ServerStatus.model_construct(**values)


_RECORD_FIELDS = tuple(ServerStatus.model_fields)


@router.get("/status", responses=problem_responses(), summary="Get the status of all servers")
async def get_status(
    callers: CallersDep, config: ConfigDep, server_records: ServerRecordsDep, request_user: UserWithRead
) -> StatusList:
    """Return a record for each configured server and each of your instances."""
    records = await server_records.list_server_records(callers.get(request_user))
    problem = config.problem if request_user.is_admin else None
    return StatusList(items=[build_status_model(each) for each in records], config_problem=problem)


@router.post(
    "/servers/{id}/restart",
    responses=problem_responses(404),
    summary="Restart a configured server",
)
async def restart_server(
    callers: CallersDep,
    config: ConfigDep,
    configured_servers: ConfiguredServersDep,
    server_records: ServerRecordsDep,
    request_user: AdminUser,
    id: PathId,
) -> ServerStatus:
    """Close all connections of a server and clear its failure. A shared server is connected again at once,
    others on their next use."""
    await configured_servers.restart(request_user, id)
    server = config.configuration.servers[id]
    return build_status_model(server_records.build_config_record(callers.get(request_user), server))
