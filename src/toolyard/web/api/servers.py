"""``/servers``: the registry. Admins change it, everybody may see what there is."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from toolyard.types.registry import RegistryServer
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AdminUser,
    AppServices,
    PathId,
    UserWithRead,
    problem_responses,
    require_media_types,
)
from toolyard.web.api.previews import PreviewShown, build_preview_model
from toolyard.web.api.server_models import (
    IssuerGiven,
    IssuerList,
    ServerChanges,
    ServerGiven,
    ServerList,
    ServerShown,
    build_server_model,
    issuer_list,
)
from toolyard.web.server_preview import fetch_server_preview

__all__ = ["router"]

router = APIRouter(
    prefix="/servers", tags=["servers"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))]
)


# Seeing.


@router.get("", responses=problem_responses(), summary="The servers of the registry")
async def list_servers(site: AppServices, visitor: UserWithRead) -> ServerList:
    """All of them, by name, with the ways of signing in that each offers. Secrets are never shown."""
    servers = await site.registry.servers()
    counts = await site.registry.count_instances() if visitor.is_admin else {}
    return ServerList(items=[build_server_model(each, visitor, counts.get(each.id, 0)) for each in servers])


@router.get("/{id}", responses=problem_responses(404), summary="One server of the registry")
async def get_server(site: AppServices, visitor: UserWithRead, id: PathId) -> ServerShown:
    """One server, with the ways of signing in that it offers."""
    return await _build_counted_server_model(site, visitor, await site.registry.server(id))


@router.get("/{id}/preview", responses=problem_responses(404), summary="What a server has")
async def preview_server(site: AppServices, visitor: AdminUser, id: PathId) -> PreviewShown:
    """Connect and list tools, resources and prompts now, with your own sign-in where you have an instance
    that is ready. Where that fails, `error` says why, in full."""
    return build_preview_model(await fetch_server_preview(site, visitor, await site.registry.server(id)))


@router.get(
    "/{id}/issuer", responses=problem_responses(404), summary="The issuers that wait for a confirmation"
)
async def list_issuers(site: AppServices, visitor: AdminUser, id: PathId) -> IssuerList:
    """Ask the server which issuers it names, for each client secret that has no confirmed issuer. No
    credentials are sent."""
    return issuer_list(await site.issuers.unconfirmed(await site.registry.server(id)))


# Changing.

WithPreview = Annotated[
    bool, Query(alias="preview", description="Connect at once, and answer what the server has.")
]


@router.post("", status_code=201, responses=problem_responses(409, 413, 415), summary="Add a server")
async def add_server(
    site: AppServices,
    visitor: AdminUser,
    given: ServerGiven,
    response: Response,
    with_preview: WithPreview = False,
) -> ServerShown:
    """Add a server. Its address is not asked, unless `preview=true`."""
    server = await site.registry.add_server(given.draft())
    await site.changed(visitor, "server.add", server.id, name=server.name, url=server.url)
    response.headers["Location"] = f"/api/v1/servers/{server.id}"
    shown = build_server_model(server, visitor, 0)
    if with_preview:
        shown.preview = build_preview_model(await fetch_server_preview(site, visitor, server))
    return shown


@router.patch("/{id}", responses=problem_responses(404, 409, 413, 415), summary="Change a server")
async def edit_server(site: AppServices, visitor: AdminUser, id: PathId, given: ServerChanges) -> ServerShown:
    """Change what is given. With a URL of another host the sign-ins of all instances are dropped."""
    server = await site.registry.edit_server(id, given.draft(await site.registry.server(id)))
    await site.changed(visitor, "server.edit", id, name=server.name, fields=sorted(given.model_fields_set))
    return await _build_counted_server_model(site, visitor, server)


@router.delete("/{id}", status_code=204, responses=problem_responses(404), summary="Delete a server")
async def delete_server(site: AppServices, visitor: AdminUser, id: PathId) -> None:
    """Delete a server, with everybody's instances of it and their sign-ins."""
    server = await site.sign_outs.delete_server(site.registry, id)
    await site.changed(visitor, "server.delete", id, name=server.name)


@router.post("/{id}/enable", responses=problem_responses(404), summary="Switch a server on")
async def enable_server(site: AppServices, visitor: AdminUser, id: PathId) -> ServerShown:
    """Let instances of it be used."""
    server = await site.registry.set_server_enabled(id, True)
    await site.changed(visitor, "server.enable", id, name=server.name)
    return await _build_counted_server_model(site, visitor, server)


@router.post("/{id}/disable", responses=problem_responses(404), summary="Switch a server off")
async def disable_server(site: AppServices, visitor: AdminUser, id: PathId) -> ServerShown:
    """Nobody can use it until it is switched on again; nothing is lost."""
    server = await site.registry.set_server_enabled(id, False)
    await site.changed(visitor, "server.disable", id, name=server.name)
    return await _build_counted_server_model(site, visitor, server)


@router.post(
    "/{id}/issuer",
    responses=problem_responses(404, 413, 415, 424, 502, 504),
    summary="Confirm the issuer of a server",
)
async def confirm_server_issuer(
    site: AppServices, visitor: AdminUser, id: PathId, given: IssuerGiven
) -> ServerShown:
    """Allow the client secret of a choice to be sent to the issuer that the server names. If the server now
    names another issuer, nothing is stored (422)."""
    server = await site.issuers.confirm(id, given.choice_id, given.issuer)
    details = {"choice": given.choice_id, "issuer": given.issuer}
    await site.changed(visitor, "server.confirm_issuer", id, name=server.name, **details)
    return await _build_counted_server_model(site, visitor, server)


async def _build_counted_server_model(
    site: AppServices, visitor: RequestUser, server: RegistryServer
) -> ServerShown:
    counts = await site.registry.count_instances() if visitor.is_admin else {}
    return build_server_model(server, visitor, counts.get(server.id, 0))
