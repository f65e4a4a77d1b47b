"""``/servers/{id}/sign-in`` and ``/sign-out``: one's own sign-in to a server of the operator's files."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from toolyard.accounts.errors import NotAllowed
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AppServices,
    PathId,
    UserWithManage,
    problem_responses,
    require_media_types,
)
from toolyard.web.api.instances import ConnectUrl
from toolyard.web.api.status import ServerStatus, build_status_model
from toolyard.web.config_sign_ins import begin_config_sign_in, find_config_server, sign_out_of_config_server
from toolyard.web.server_status import build_config_record

__all__ = ["router"]

router = APIRouter(
    prefix="/servers", tags=["status"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))]
)


@router.post(
    "/{id}/sign-in",
    responses=problem_responses(404, 424, 502, 504),
    summary="Sign in to a server of the configuration",
)
async def sign_in_to_server(
    site: AppServices, visitor: UserWithManage, id: PathId, request: Request
) -> ConnectUrl:
    """Begin to sign in by OAuth, for yourself alone. Only you, in the browser that began, can finish; so this
    is for scripts of pages, and refused to programs."""
    server = find_config_server(site, visitor, id)
    if not visitor.browser:
        raise NotAllowed(
            "only a browser can sign in, because it is sent to the provider's page and back",
            hint=f"open {site.base_url(request)}/ui/ and choose the server there",
        )
    return ConnectUrl(url=await begin_config_sign_in(site, visitor, server, request))


@router.post(
    "/{id}/sign-out", responses=problem_responses(404), summary="Sign out of a server of the configuration"
)
async def sign_out_of_server(site: AppServices, visitor: UserWithManage, id: PathId) -> ServerStatus:
    """Forget your sign-in, and give it back to the provider where that takes it. Nobody else's is touched."""
    server = find_config_server(site, visitor, id)
    await sign_out_of_config_server(site, visitor, server)
    return build_status_model(build_config_record(site, site.get_caller(visitor), server))
