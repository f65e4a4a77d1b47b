"""``/servers/{id}/sign-in`` and ``/sign-out``: personal sign-ins to configured servers."""

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
    summary="Sign in to a configured server",
)
async def sign_in_to_server(
    services: AppServices, request_user: UserWithManage, id: PathId, request: Request
) -> ConnectUrl:
    """Start an OAuth sign-in for yourself. It must be completed in the same browser; programs without a
    browser session are refused."""
    server = find_config_server(services, request_user, id)
    if not request_user.browser_id:
        raise NotAllowed(
            "signing in requires a browser, because it leads to the provider's page and back",
            hint=f"open {services.base_url(request)}/ui/ and select the server there",
        )
    return ConnectUrl(url=await begin_config_sign_in(services, request_user, server, request))


@router.post("/{id}/sign-out", responses=problem_responses(404), summary="Sign out of a configured server")
async def sign_out_of_server(services: AppServices, request_user: UserWithManage, id: PathId) -> ServerStatus:
    """Delete your sign-in, and revoke it at the provider if supported. Other users are not affected."""
    server = find_config_server(services, request_user, id)
    await sign_out_of_config_server(services, request_user, server)
    return build_status_model(build_config_record(services, services.get_caller(request_user), server))
