"""``/ui/servers/{id}``: a server of the operator's files, and one's own sign-in to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.auth.errors import AuthError, AuthUnavailable
from toolyard.registry.errors import Invalid
from toolyard.types.server import Server
from toolyard.web.access.dependencies import Visitor, person
from toolyard.web.config_sign_ins import begin, config_server, sign_in_word, sign_out
from toolyard.web.server_status import ServerRecord, config_record
from toolyard.web.services import Site
from toolyard.web.ui.components.flash import go
from toolyard.web.ui.components.formatting import host_of
from toolyard.web.ui.components.render import render
from toolyard.web.ui.instances.oauth import Leave, sign_in_problem

__all__ = ["router"]

router = APIRouter()

Me = Annotated[Visitor, Depends(person)]


@dataclass(frozen=True, slots=True)
class ConfigServerPage:
    """How a server is for this person. ``sign_in`` is the word on the button, or empty."""

    server: Server
    record: ServerRecord
    sign_in: str
    signed_in: bool
    at: str


@router.get("/ui/servers/{server_id}")
async def show_config_server(request: Request, me: Me, server_id: str) -> Response:
    """How it is, at once."""
    site: Site = request.app.state.site
    server = config_server(site, me, server_id)
    record = config_record(site, site.caller(me), server)
    word, signed_in = await sign_in_word(site, me, server, record.state)
    page = ConfigServerPage(server, record, word, signed_in, _at(server))
    return render(request, "config_server.html", page=page)


@router.post("/ui/servers/{server_id}/connect")
async def connect(request: Request, me: Me, server_id: str) -> Response:
    """Begin to sign in; a page leads on to the provider."""
    site: Site = request.app.state.site
    server = config_server(site, me, server_id)
    try:
        url = await begin(site, me, server, request)
    except (AuthError, AuthUnavailable, Invalid) as error:
        return sign_in_problem(request, error, f"{_at(server)}/connect")
    page = Leave(server.label or server.id, url, host_of(url), _at(server))
    return render(request, "oauth/leave.html", page=page)


@router.post("/ui/servers/{server_id}/sign-out")
async def leave(request: Request, me: Me, server_id: str) -> Response:
    """Forget the sign-in."""
    site: Site = request.app.state.site
    server = config_server(site, me, server_id)
    there_was = await sign_out(site, me, server)
    words = "You are signed out of" if there_was else "You were not signed in to"
    return go(_at(server), f"{words} “{server.label or server.id}”.")


def _at(server: Server) -> str:
    return f"/ui/servers/{quote(server.id, safe='')}"
