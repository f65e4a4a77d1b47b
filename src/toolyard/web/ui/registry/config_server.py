"""``/ui/servers/{id}``: a server from a configuration file, and the person's sign-in to it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from fastapi import Request, Response

from toolyard.auth.errors import AuthError, AuthUnavailable
from toolyard.registry.errors import Invalid
from toolyard.types.server import Server
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.status import ServerRecord
from toolyard.web.ui.components import responses
from toolyard.web.ui.instances.oauth import render_leave_page, render_sign_in_problem

__all__ = ["ConfigServerPage", "router"]

router = Routes()


@dataclass(frozen=True, slots=True)
class ConfigServerPage:
    """Content of the page."""

    server: Server
    record: ServerRecord
    sign_in: str
    """Text of the sign-in button, or empty."""
    signed_in: bool
    at: str


@router.get("/ui/servers/{server_id}")
async def show_config_server(
    request: Request,
    me: deps.BrowserUser,
    server_id: str,
    callers: deps.CallersDep,
    server_sign_ins: deps.ServerSignInsDep,
    server_records: deps.ServerRecordsDep,
) -> Response:
    """Show the server's status without contacting it."""
    server = server_sign_ins.find_config_server(me, server_id)
    record = server_records.build_config_record(callers.get(me), server)
    sign_in, signed_in = await server_sign_ins.get_sign_in_action(me, server, record.state)
    page = ConfigServerPage(server, record, sign_in, signed_in, _build_server_path(server))
    return responses.render_page(request, "config_server.html", page=page)


@router.post("/ui/servers/{server_id}/connect")
async def connect_server(
    request: Request, me: deps.BrowserUser, server_id: str, server_sign_ins: deps.ServerSignInsDep
) -> Response:
    """Begin the sign-in and show the page that leads to the provider."""
    server = server_sign_ins.find_config_server(me, server_id)
    try:
        url = await server_sign_ins.begin_config_sign_in(me, server, request)
    except (AuthError, AuthUnavailable, Invalid) as error:
        return render_sign_in_problem(request, error, f"{_build_server_path(server)}/connect")
    return await render_leave_page(request, server.label or server.id, url, _build_server_path(server))


@router.post("/ui/servers/{server_id}/sign-out")
async def sign_out_of_server(
    me: deps.BrowserUser, server_id: str, server_sign_ins: deps.ServerSignInsDep
) -> Response:
    """Remove the person's sign-in."""
    server = server_sign_ins.find_config_server(me, server_id)
    was_signed_in = await server_sign_ins.sign_out_of_config_server(me, server)
    words = "You are signed out of" if was_signed_in else "You were not signed in to"
    return responses.redirect_to(_build_server_path(server), f"{words} “{server.label or server.id}”.")


def _build_server_path(server: Server) -> str:
    return f"/ui/servers/{quote(server.id, safe='')}"
