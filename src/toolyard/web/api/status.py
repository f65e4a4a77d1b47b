"""``/status``: how every server is, for whoever asks; and starting one again."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AdminUser,
    AppServices,
    PathId,
    UserWithRead,
    problem_responses,
    require_media_types,
    to_optional_datetime,
)
from toolyard.web.server_status import ServerRecord, build_config_record, list_server_records

__all__ = ["ServerStatus", "StatusList", "build_status_model", "router"]

router = APIRouter(tags=["status"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))])

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
    "stderr": [],
    "slug": None,
    "registry_id": None,
}


class ServerStatus(BaseModel):
    """How one server is."""

    model_config = ConfigDict(json_schema_extra={"examples": [_STATUS_EXAMPLE]})

    kind: Literal["config", "instance"] = Field(
        description="A server of the configuration, or an instance of yours."
    )
    id: str = Field(description="The server's id in the configuration, or the instance's.")
    label: str
    description: str
    transport: Literal["stdio", "http", "sse"]
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
    ] = Field(description="An instance is pending, ready, needs_reauth, failed or disabled.")
    reason: str | None = Field(description="Why, as a stable word.")
    cause: str | None = Field(description="Why, in one sentence.")
    hint: str | None = Field(description="What to do next.")
    since: datetime | None
    protocol_version: str | None
    server_name: str | None
    server_version: str | None
    tool_count: int | None = Field(description="None: never listed.")
    token_cost: int | None = Field(description="What its tools cost a model, in tokens, estimated.")
    provenance: str | None = Field(description="Where the entry stands; for admins with file and line.")
    shared: bool
    restarts: int
    next_retry: datetime | None
    last_call: datetime | None = Field(description="When it was last asked something; no event tells of it.")
    pid: int | None = Field(description="Its process; for admins.")
    stderr: list[str] = Field(description="Its last words, where it failed; for admins.")
    slug: str | None = Field(description="What the instance is called.")
    registry_id: str | None = Field(description="The registry server that the instance is of.")


class StatusList(BaseModel):
    """How all servers are."""

    items: list[ServerStatus]
    config_problem: str | None = Field(
        description="Why the last edit of the configuration is not in force; for admins."
    )


def build_status_model(record: ServerRecord) -> ServerStatus:
    """A record as the API shows it."""
    told = {name: getattr(record, name) for name in _RECORD_FIELDS}
    told["since"] = to_optional_datetime(record.since)
    told["next_retry"] = to_optional_datetime(record.next_retry)
    told["last_call"] = to_optional_datetime(record.last_call)
    told["stderr"] = list(record.stderr)
    return ServerStatus.model_construct(**told)


_RECORD_FIELDS = tuple(each.name for each in fields(ServerRecord))


@router.get("/status", responses=problem_responses(), summary="How all servers are")
async def get_status(site: AppServices, visitor: UserWithRead) -> StatusList:
    """One record for each server of the configuration and each instance of yours."""
    records = await list_server_records(site, site.get_caller(visitor))
    problem = site.config_problem if visitor.is_admin else None
    return StatusList(items=[build_status_model(each) for each in records], config_problem=problem)


@router.post(
    "/servers/{id}/restart",
    responses=problem_responses(404),
    summary="Start a server of the configuration again",
)
async def restart_server(site: AppServices, visitor: AdminUser, id: PathId) -> ServerStatus:
    """Close all its connections and forget why it failed; it is connected again at once where that is one for
    all, and otherwise at the next use."""
    await site.restart_server(visitor, id)
    server = site.configuration.servers[id]
    return build_status_model(build_config_record(site, site.get_caller(visitor), server))
