"""``/servers``: the registry. Admins change it, everybody may see what there is."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from toolyard.types.registry import RegistryServer
from toolyard.web.access.dependencies import Visitor
from toolyard.web.api.dependencies import JSON, Admin, Id, Reading, Served, problems, produces
from toolyard.web.api.previews import PreviewShown, preview_shown
from toolyard.web.api.server_models import (
    IssuerGiven,
    IssuerList,
    ServerChanges,
    ServerGiven,
    ServerList,
    ServerShown,
    issuer_list,
    server_shown,
)
from toolyard.web.server_preview import preview

__all__ = ["router"]

router = APIRouter(prefix="/servers", tags=["servers"], dependencies=[Depends(produces(JSON))])


# Seeing.


@router.get("", responses=problems(), summary="The servers of the registry")
async def list_servers(site: Served, visitor: Reading) -> ServerList:
    """All of them, by name, with the ways of signing in that each offers. Secrets are never shown."""
    servers = await site.registry.servers()
    counts = await site.registry.count_instances() if visitor.is_admin else {}
    return ServerList(items=[server_shown(each, visitor, counts.get(each.id, 0)) for each in servers])


@router.get("/{id}", responses=problems(404), summary="One server of the registry")
async def get_server(site: Served, visitor: Reading, id: Id) -> ServerShown:
    """One server, with the ways of signing in that it offers."""
    return await _shown(site, visitor, await site.registry.server(id))


@router.get("/{id}/preview", responses=problems(404), summary="What a server has")
async def preview_server(site: Served, visitor: Admin, id: Id) -> PreviewShown:
    """Connect and list tools, resources and prompts now, with your own sign-in where you have an instance
    that is ready. Where that fails, `error` says why, in full."""
    return preview_shown(await preview(site, visitor, await site.registry.server(id)))


@router.get("/{id}/issuer", responses=problems(404), summary="The issuers that wait for a confirmation")
async def list_issuers(site: Served, visitor: Admin, id: Id) -> IssuerList:
    """Ask the server which issuers it names, for each client secret that has no confirmed issuer. No
    credentials are sent."""
    return issuer_list(await site.issuers.unconfirmed(await site.registry.server(id)))


# Changing.

WithPreview = Annotated[
    bool, Query(alias="preview", description="Connect at once, and answer what the server has.")
]


@router.post("", status_code=201, responses=problems(409, 413, 415), summary="Add a server")
async def add_server(
    site: Served, visitor: Admin, given: ServerGiven, response: Response, with_preview: WithPreview = False
) -> ServerShown:
    """Add a server. Its address is not asked, unless `preview=true`."""
    server = await site.registry.add_server(given.draft())
    await site.changed(visitor, "server.add", server.id, name=server.name, url=server.url)
    response.headers["Location"] = f"/api/v1/servers/{server.id}"
    shown = server_shown(server, visitor, 0)
    if with_preview:
        shown.preview = preview_shown(await preview(site, visitor, server))
    return shown


@router.patch("/{id}", responses=problems(404, 409, 413, 415), summary="Change a server")
async def edit_server(site: Served, visitor: Admin, id: Id, given: ServerChanges) -> ServerShown:
    """Change what is given. With a URL of another host the sign-ins of all instances are dropped."""
    server = await site.registry.edit_server(id, given.draft(await site.registry.server(id)))
    await site.changed(visitor, "server.edit", id, name=server.name, fields=sorted(given.model_fields_set))
    return await _shown(site, visitor, server)


@router.delete("/{id}", status_code=204, responses=problems(404), summary="Delete a server")
async def delete_server(site: Served, visitor: Admin, id: Id) -> None:
    """Delete a server, with everybody's instances of it and their sign-ins."""
    server = await site.sign_outs.delete_server(site.registry, id)
    await site.changed(visitor, "server.delete", id, name=server.name)


@router.post("/{id}/enable", responses=problems(404), summary="Switch a server on")
async def enable_server(site: Served, visitor: Admin, id: Id) -> ServerShown:
    """Let instances of it be used."""
    server = await site.registry.enable_server(id, True)
    await site.changed(visitor, "server.enable", id, name=server.name)
    return await _shown(site, visitor, server)


@router.post("/{id}/disable", responses=problems(404), summary="Switch a server off")
async def disable_server(site: Served, visitor: Admin, id: Id) -> ServerShown:
    """Nobody can use it until it is switched on again; nothing is lost."""
    server = await site.registry.enable_server(id, False)
    await site.changed(visitor, "server.disable", id, name=server.name)
    return await _shown(site, visitor, server)


@router.post(
    "/{id}/issuer", responses=problems(404, 413, 415, 424, 502, 504), summary="Confirm the issuer of a server"
)
async def confirm_server_issuer(site: Served, visitor: Admin, id: Id, given: IssuerGiven) -> ServerShown:
    """Allow the client secret of a choice to be sent to the issuer that the server names. If the server now
    names another issuer, nothing is stored (422)."""
    server = await site.issuers.confirm(id, given.choice_id, given.issuer)
    details = {"choice": given.choice_id, "issuer": given.issuer}
    await site.changed(visitor, "server.confirm_issuer", id, name=server.name, **details)
    return await _shown(site, visitor, server)


async def _shown(site: Served, visitor: Visitor, server: RegistryServer) -> ServerShown:
    counts = await site.registry.count_instances() if visitor.is_admin else {}
    return server_shown(server, visitor, counts.get(server.id, 0))
