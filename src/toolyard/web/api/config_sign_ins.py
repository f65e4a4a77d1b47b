"""``/servers/{id}/sign-in`` and ``/sign-out``: one's own sign-in to a server of the operator's files."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from toolyard.accounts.errors import NotAllowed
from toolyard.web.api.dependencies import JSON, Id, Managing, Served, problems, produces
from toolyard.web.api.instances import ConnectUrl
from toolyard.web.api.status import ServerStatus, status_of
from toolyard.web.config_sign_ins import begin, config_server, sign_out
from toolyard.web.server_status import config_record

__all__ = ["router"]

router = APIRouter(prefix="/servers", tags=["status"], dependencies=[Depends(produces(JSON))])


@router.post(
    "/{id}/sign-in",
    responses=problems(404, 424, 502, 504),
    summary="Sign in to a server of the configuration",
)
async def sign_in_to_server(site: Served, visitor: Managing, id: Id, request: Request) -> ConnectUrl:
    """Begin to sign in by OAuth, for yourself alone. Only you, in the browser that began, can finish; so this
    is for scripts of pages, and refused to programs."""
    server = config_server(site, visitor, id)
    if not visitor.browser:
        raise NotAllowed(
            "only a browser can sign in, because it is sent to the provider's page and back",
            hint=f"open {site.base_url(request)}/ui/ and choose the server there",
        )
    return ConnectUrl(url=await begin(site, visitor, server, request))


@router.post("/{id}/sign-out", responses=problems(404), summary="Sign out of a server of the configuration")
async def sign_out_of_server(site: Served, visitor: Managing, id: Id) -> ServerStatus:
    """Forget your sign-in, and give it back to the provider where that takes it. Nobody else's is touched."""
    server = config_server(site, visitor, id)
    await sign_out(site, visitor, server)
    return status_of(config_record(site, site.caller(visitor), server))
