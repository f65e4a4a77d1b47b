"""``/servers/{id}/sign-in`` and ``/sign-out``: personal sign-ins to configured servers."""

from __future__ import annotations

from fastapi import Depends, Request

from toolyard.accounts.errors import NotAllowed
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    PathId,
    UserWithManage,
    problem_responses,
    require_media_types,
)
from toolyard.web.api.instances import ConnectResponse
from toolyard.web.api.status import ServerStatus, build_status_model
from toolyard.web.routes import Routes
from toolyard.web.service_dependencies import CallersDep, ServerRecordsDep, ServerSignInsDep, UrlsDep

__all__ = ["router"]

router = Routes(
    prefix="/servers", tags=["status"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))]
)


@router.post(
    "/{id}/sign-in",
    responses=problem_responses(404, 424, 502, 504),
    summary="Sign in to a configured server",
)
async def sign_in_to_server(
    urls: UrlsDep,
    server_sign_ins: ServerSignInsDep,
    request_user: UserWithManage,
    id: PathId,
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


@router.post("/{id}/sign-out", responses=problem_responses(404), summary="Sign out of a configured server")
async def sign_out_of_server(
    callers: CallersDep,
    server_sign_ins: ServerSignInsDep,
    server_records: ServerRecordsDep,
    request_user: UserWithManage,
    id: PathId,
) -> ServerStatus:
    """Delete your sign-in, and revoke it at the provider if supported. Other users are not affected."""
    server = server_sign_ins.find_config_server(request_user, id)
    await server_sign_ins.sign_out_of_config_server(request_user, server)
    return build_status_model(server_records.build_config_record(callers.get(request_user), server))
