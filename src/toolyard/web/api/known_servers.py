"""``/catalog``: well-known servers, which admins add to the registry."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import BaseModel, Field

from toolyard.config.known_servers import KnownServer
from toolyard.registry.errors import Taken
from toolyard.web import service_dependencies as deps
from toolyard.web.api import base as api
from toolyard.web.api.record_models import output_values
from toolyard.web.api.servers import ServerResponse
from toolyard.web.servers.new_servers import AddedServer, ObstacleKind

__all__ = ["router"]

router = api.ApiRoutes(tags=["catalog"])


class CatalogVariable(BaseModel):
    """A value that a server requires."""

    name: str
    purpose: str
    secret: bool


class CatalogAddition(BaseModel):
    """The server that was added for an entry of the catalogue."""

    origin: Literal["registry", "file"]
    id: str
    name: str


class CatalogServer(api.ApiModel):
    """A well-known server."""

    id: str
    title: str
    purpose: str
    remote: bool = Field(
        description="Whether it has a URL. Others are local commands, which `toolyard add` configures."
    )
    entry: dict[str, Any] = Field(description="Its entry under `mcpServers`, with variables.")
    sign_in: Literal["none", "oauth", "key"]
    variables: list[CatalogVariable]
    documents: str | None
    checked: str | None = Field(description="How its facts were checked: started, package or documents.")
    checked_on: str | None
    added: CatalogAddition | None = Field(description="The server that has the same address or program.")


class CatalogList(api.ItemList[CatalogServer]):
    """Well-known servers."""


class AddKnownServerRequest(api.RequestModel):
    """Input for adding a server of the catalogue."""

    values: dict[str, str] = Field(
        default_factory=dict[str, str], description="Values of variables in its address, by name."
    )
    private_addresses: bool = Field(
        default=False, description="Whether the server may have private network addresses."
    )


@router.get("/catalog", summary="List well-known servers")
async def list_catalog(
    catalog: deps.ServerCatalogDep,
    request_user: api.UserWithRead,
    q: Annotated[str, Query(max_length=500, description="Words of the name or purpose.")] = "",
) -> CatalogList:
    """Return the well-known servers that match, best first, with those that were added already."""
    added = await catalog.find_added()
    return CatalogList(items=[_build_server_model(each, added.get(each.id)) for each in catalog.search(q)])


@router.post(
    "/catalog/{id}",
    status_code=201,
    errors=[404, 409, 413, 415, 424, 502, 504],
    summary="Add a well-known server",
)
async def add_known_server(
    catalog: deps.ServerCatalogDep,
    new_servers: deps.NewServersDep,
    request_user: deps.AdminUser,
    id: api.PathId,
    given: AddKnownServerRequest,
    response: Response,
) -> ServerResponse:
    """Add a server that has an address to the registry. Toolyard connects to it to find out how to sign in,
    and adds nothing if it does not answer."""
    known = catalog.get(id)
    added = (await catalog.find_added()).get(id)
    if added is not None:
        raise Taken(f"'{known.title}' is already there as '{added.name}'", field="id")
    draft = replace(catalog.build_draft(known, given.values), private_addresses=given.private_addresses)
    draft, obstacle = await new_servers.find_sign_in(request_user, draft)
    if obstacle is not None and obstacle.kind is not ObstacleKind.NEEDS_KEY:
        raise obstacle.error
    server = await new_servers.add(request_user, draft)
    response.headers["Location"] = f"/api/v1/servers/{server.id}"
    return ServerResponse(**output_values(server, is_admin=True), instance_count=0)


def _build_server_model(server: KnownServer, added: AddedServer | None) -> CatalogServer:
    return CatalogServer.of(server, remote=server.is_remote, checked=server.check_method, added=added)
