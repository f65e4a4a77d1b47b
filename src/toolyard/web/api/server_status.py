"""``/status`` and ``/events``: status of servers; restart of configured ones, and own sign-ins to them."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import orjson
from fastapi import Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from toolyard.accounts.errors import NotAllowed
from toolyard.web import service_dependencies as deps
from toolyard.web.api import base as api
from toolyard.web.api import event_stream
from toolyard.web.api.record_models import response_model
from toolyard.web.servers.live_updates import LiveUpdate
from toolyard.web.servers.status import ServerRecord

__all__ = ["ConnectResponse", "ServerStatus", "router"]

router = api.ApiRoutes(tags=["status"])

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
    users: list[str] = Field(
        description="Names of the clients and chats that use it. A client without a session is one of them "
        "for ten minutes after its last request."
    )
    launch: str | None = Field(description="How it was started, if processes were started in different ways.")


class ServerStatus(response_model(ServerRecord, processes=ProcessStatus)):
    """Status of a server."""

    model_config = ConfigDict(json_schema_extra={"examples": [_STATUS_EXAMPLE]})


class StatusList(api.ItemList[ServerStatus]):
    """Status of all servers."""

    config_problem: str | None = Field(
        description="Error in the last edit of the configuration. Shown to admins only."
    )


@router.get("/status", summary="Get the status of all servers")
async def get_status(
    callers: deps.CallersDep,
    config: deps.ConfigDep,
    server_records: deps.ServerRecordsDep,
    request_user: api.UserWithRead,
) -> StatusList:
    """Return a record for each configured server and each of your instances."""
    records = await server_records.list_server_records(callers.get(request_user))
    problem = config.problem if request_user.is_admin else None
    return StatusList(items=[ServerStatus.of(each) for each in records], config_problem=problem)


@router.post(
    "/servers/{id}/restart",
    errors=[404],
    summary="Restart a configured server",
)
async def restart_server(
    callers: deps.CallersDep,
    config: deps.ConfigDep,
    configured_servers: deps.ConfiguredServersDep,
    server_records: deps.ServerRecordsDep,
    request_user: deps.AdminUser,
    id: api.PathId,
) -> ServerStatus:
    """Close all connections of a server and clear its failure. A shared server is connected again at once,
    others on their next use."""
    await configured_servers.restart(request_user, id)
    server = config.configuration.servers[id]
    return ServerStatus.of(server_records.build_config_record(callers.get(request_user), server))


# Personal sign-ins to configured servers.


class ConnectResponse(api.ApiModel, schema="ConnectUrl"):
    """Address of the sign-in page."""

    url: str = Field(description="URL to open in the same browser; it redirects back to Toolyard.")


@router.post(
    "/servers/{id}/sign-in",
    errors=[404, 424, 502, 504],
    summary="Sign in to a configured server",
)
async def sign_in_to_server(
    urls: deps.UrlsDep,
    server_sign_ins: deps.ServerSignInsDep,
    request_user: api.UserWithManage,
    id: api.PathId,
    request: Request,
) -> ConnectResponse:
    """Start an OAuth sign-in for yourself. It must be completed in the same browser; programs without a
    browser session are refused."""
    server = server_sign_ins.find_config_server(request_user, id)
    if not request_user.browser_id:
        raise NotAllowed(
            "signing in requires a browser, because it leads to the provider's page and back",
            hint=f"open {urls.base_url(request)}/ui/ and select the server there",
        )
    return ConnectResponse(url=await server_sign_ins.begin_config_sign_in(request_user, server, request))


@router.post("/servers/{id}/sign-out", errors=[404], summary="Sign out of a configured server")
async def sign_out_of_server(
    callers: deps.CallersDep,
    server_sign_ins: deps.ServerSignInsDep,
    server_records: deps.ServerRecordsDep,
    request_user: api.UserWithManage,
    id: api.PathId,
) -> ServerStatus:
    """Delete your sign-in, and revoke it at the provider if supported. Other users are not affected."""
    server = server_sign_ins.find_config_server(request_user, id)
    await server_sign_ins.sign_out_of_config_server(request_user, server)
    return ServerStatus.of(server_records.build_config_record(callers.get(request_user), server))


# Events.


@router.get(
    "/events",
    response_class=StreamingResponse,
    errors=[429],
    responses={
        200: {
            "description": "Server-sent events.",
            "content": {event_stream.CONTENT_TYPE: {"schema": {"type": "string"}}},
        },
    },
    summary="Stream status changes",
    media_types=[event_stream.CONTENT_TYPE],
)
async def stream_events(
    callers: deps.CallersDep,
    live_updates: deps.LiveUpdatesDep,
    stream_limits: deps.StreamLimitsDep,
    request_user: api.UserWithRead,
    request: Request,
) -> StreamingResponse:
    """Stream server-sent events: first `status` for every server, then one for each change, with a record as
    in `/status`, and `gone` for a removed server. When Toolyard stops, the stream ends, and clients should
    reconnect."""
    changes = live_updates.subscribe(
        callers.get(request_user), heartbeat_seconds=stream_limits.heartbeat_seconds
    )
    changes = event_stream.while_authorized(request, changes, stream_limits.heartbeat_seconds)
    return event_stream.EventStreamResponse(stream_limits, request_user, _encode_status_events(changes))


async def _encode_status_events(
    changes: AsyncGenerator[LiveUpdate[ServerRecord] | None],
) -> AsyncGenerator[bytes]:
    yield b"retry: 2000\n\n"
    async for change in changes:
        yield b": still here\n\n" if change is None else _encode_status_event(change)


def _encode_status_event(change: LiveUpdate[ServerRecord]) -> bytes:
    if change.record is None:
        kind, _, id_ = change.id.partition(":")
        return b"event: gone\ndata: " + orjson.dumps({"kind": kind, "id": id_}) + b"\n\n"
    return b"event: status\ndata: " + ServerStatus.of(change.record).model_dump_json().encode() + b"\n\n"
