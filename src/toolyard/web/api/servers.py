"""``/servers``: the registry. Admins may change it, all users may read it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Response

from toolyard.registry import Registry
from toolyard.types.registry import RegistryServer
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AdminUser,
    PathId,
    UserWithRead,
    problem_responses,
    require_media_types,
)
from toolyard.web.api.previews import PreviewResponse, build_preview_model
from toolyard.web.api.record_models import (
    ConfirmIssuerRequest,
    CreateServerRequest,
    IssuerList,
    ServerList,
    ServerResponse,
    UpdateServerRequest,
    issuer_list,
    output_values,
)
from toolyard.web.routes import Routes
from toolyard.web.service_dependencies import AuditDep, IssuersDep, PreviewsDep, RegistryDep, SignOutsDep

__all__ = ["router"]

router = Routes(
    prefix="/servers", tags=["servers"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))]
)


# Reading.


@router.get("", responses=problem_responses(), summary="List registry servers")
async def list_servers(registry: RegistryDep, request_user: UserWithRead) -> ServerList:
    """Return all registry servers with their sign-in choices, sorted by name. Secrets are never returned."""
    servers = await registry.list_servers()
    counts = await registry.count_instances() if request_user.is_admin else {}
    return ServerList(
        items=[_build_server_model(each, request_user, counts.get(each.id, 0)) for each in servers]
    )


@router.get("/{id}", responses=problem_responses(404), summary="Get a registry server")
async def get_server(registry: RegistryDep, request_user: UserWithRead, id: PathId) -> ServerResponse:
    """Return a server with its sign-in choices."""
    return await _build_counted_server_model(registry, request_user, await registry.get_server(id))


@router.get("/{id}/preview", responses=problem_responses(404), summary="Preview a server")
async def preview_server(
    registry: RegistryDep, previews: PreviewsDep, request_user: AdminUser, id: PathId
) -> PreviewResponse:
    """Connect and list tools, resources and prompts now, with your own sign-in if you have an instance that
    is ready. If that fails, `error` holds the problem."""
    return build_preview_model(
        await previews.fetch_server_preview(request_user, await registry.get_server(id))
    )


@router.get("/{id}/issuer", responses=problem_responses(404), summary="List unconfirmed issuers")
async def list_issuers(
    registry: RegistryDep, issuers: IssuersDep, request_user: AdminUser, id: PathId
) -> IssuerList:
    """Discover the issuer for each client secret without a confirmed one. No credentials are sent to the
    server."""
    return issuer_list(await issuers.unconfirmed(await registry.get_server(id)))


# Changing.

WithPreview = Annotated[
    bool,
    Query(
        alias="preview",
        description="Connect at once, and include the contents of the server in the response.",
    ),
]


@router.post("", status_code=201, responses=problem_responses(409, 413, 415), summary="Add a server")
async def add_server(
    audit: AuditDep,
    registry: RegistryDep,
    previews: PreviewsDep,
    request_user: AdminUser,
    given: CreateServerRequest,
    response: Response,
    with_preview: WithPreview = False,
) -> ServerResponse:
    """Add a server. Toolyard does not connect to it unless `preview=true`."""
    server = await registry.add_server(given.draft())
    await audit.record_change(request_user, "server.add", server.id, name=server.name, url=server.url)
    response.headers["Location"] = f"/api/v1/servers/{server.id}"
    model = _build_server_model(server, request_user, 0)
    if with_preview:
        model.preview = build_preview_model(await previews.fetch_server_preview(request_user, server))
    return model


@router.patch("/{id}", responses=problem_responses(404, 409, 413, 415), summary="Change a server")
async def edit_server(
    audit: AuditDep, registry: RegistryDep, request_user: AdminUser, id: PathId, given: UpdateServerRequest
) -> ServerResponse:
    """Change the given fields. If the host of the URL changes, the sign-ins of all instances are deleted."""
    server = await registry.edit_server(id, given.draft(await registry.get_server(id)))
    await audit.record_change(
        request_user, "server.edit", id, name=server.name, fields=sorted(given.model_fields_set)
    )
    return await _build_counted_server_model(registry, request_user, server)


@router.delete("/{id}", status_code=204, responses=problem_responses(404), summary="Delete a server")
async def delete_server(
    audit: AuditDep, registry: RegistryDep, sign_outs: SignOutsDep, request_user: AdminUser, id: PathId
) -> None:
    """Delete a server with the instances of all users and their sign-ins."""
    server = await sign_outs.delete_server(registry, id)
    await audit.record_change(request_user, "server.delete", id, name=server.name)


@router.post("/{id}/enable", responses=problem_responses(404), summary="Enable a server")
async def enable_server(
    audit: AuditDep, registry: RegistryDep, request_user: AdminUser, id: PathId
) -> ServerResponse:
    """Enable a server, so that its instances can be used."""
    server = await registry.set_server_enabled(id, True)
    await audit.record_change(request_user, "server.enable", id, name=server.name)
    return await _build_counted_server_model(registry, request_user, server)


@router.post("/{id}/disable", responses=problem_responses(404), summary="Disable a server")
async def disable_server(
    audit: AuditDep, registry: RegistryDep, request_user: AdminUser, id: PathId
) -> ServerResponse:
    """Disable a server: nobody can use it until it is enabled again. Nothing is deleted."""
    server = await registry.set_server_enabled(id, False)
    await audit.record_change(request_user, "server.disable", id, name=server.name)
    return await _build_counted_server_model(registry, request_user, server)


@router.post(
    "/{id}/issuer",
    responses=problem_responses(404, 413, 415, 424, 502, 504),
    summary="Confirm the issuer of a server",
)
async def confirm_server_issuer(
    audit: AuditDep,
    registry: RegistryDep,
    issuers: IssuersDep,
    request_user: AdminUser,
    id: PathId,
    given: ConfirmIssuerRequest,
) -> ServerResponse:
    """Allow the client secret of a choice to be sent to the issuer that the server reports. If the server now
    reports another issuer, nothing is stored (422)."""
    server = await issuers.confirm(id, given.choice_id, given.issuer)
    details = {"choice": given.choice_id, "issuer": given.issuer}
    await audit.record_change(request_user, "server.confirm_issuer", id, name=server.name, **details)
    return await _build_counted_server_model(registry, request_user, server)


def _build_server_model(server: RegistryServer, request_user: RequestUser, count: int) -> ServerResponse:
    values = output_values(server, is_admin=request_user.is_admin)
    return ServerResponse(**values, instance_count=count if request_user.is_admin else None)


async def _build_counted_server_model(
    registry: Registry, request_user: RequestUser, server: RegistryServer
) -> ServerResponse:
    counts = await registry.count_instances() if request_user.is_admin else {}
    return _build_server_model(server, request_user, counts.get(server.id, 0))
