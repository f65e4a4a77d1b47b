"""``/catalog``: well-known servers, and adding one that has an address to the registry."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Response
from pydantic import BaseModel, Field

from toolyard.config.known_servers import KnownServer
from toolyard.registry.errors import Taken
from toolyard.web.api.dependencies import (
    JSON_CONTENT_TYPE,
    AdminUser,
    ApiModel,
    PathId,
    RequestModel,
    UserWithRead,
    problem_responses,
    require_media_types,
)
from toolyard.web.api.record_models import ServerResponse, output_values
from toolyard.web.routes import Routes
from toolyard.web.servers.new_servers import AddedServer, ObstacleKind
from toolyard.web.service_dependencies import NewServersDep, ServerCatalogDep

__all__ = ["router"]

router = Routes(
    prefix="/catalog", tags=["catalog"], dependencies=[Depends(require_media_types(JSON_CONTENT_TYPE))]
)


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


class CatalogServer(ApiModel):
    """A well-known server."""

    id: str
    title: str
    purpose: str
    remote: bool = Field(description="Whether it has an address. Others are programs, added by command.")
    entry: dict[str, Any] = Field(description="Its entry under `mcpServers`, with variables.")
    sign_in: Literal["none", "oauth", "key"]
    variables: list[CatalogVariable]
    documents: str | None
    checked: str | None = Field(description="How its facts were checked: started, package or documents.")
    checked_on: str | None
    added: CatalogAddition | None = Field(description="The server that has the same address or program.")


class CatalogList(ApiModel):
    """Well-known servers."""

    items: list[CatalogServer]


class AddKnownServerRequest(RequestModel):
    """Input for adding a server of the catalogue."""

    values: dict[str, str] = Field(
        default_factory=dict[str, str], description="Values of variables in its address, by name."
    )
    private_addresses: bool = Field(
        default=False, description="Whether the server may have private network addresses."
    )


@router.get("", responses=problem_responses(), summary="List well-known servers")
async def list_catalog(
    catalog: ServerCatalogDep,
    request_user: UserWithRead,
    q: Annotated[str, Query(max_length=500, description="Words of the name or purpose.")] = "",
) -> CatalogList:
    """Return the well-known servers that match, best first, with those that were added already."""
    added = await catalog.find_added()
    return CatalogList(items=[_build_model(each, added.get(each.id)) for each in catalog.search(q)])


@router.post(
    "/{id}",
    status_code=201,
    responses=problem_responses(404, 409, 413, 415, 424, 502, 504),
    summary="Add a well-known server",
)
async def add_known_server(
    catalog: ServerCatalogDep,
    new_servers: NewServersDep,
    request_user: AdminUser,
    id: PathId,
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


def _build_model(server: KnownServer, added: AddedServer | None) -> CatalogServer:
    return CatalogServer(
        id=server.id,
        title=server.title,
        purpose=server.purpose,
        remote=server.is_remote,
        entry=dict(server.entry),
        sign_in=server.sign_in.value,
        variables=[
            CatalogVariable(name=each.name, purpose=each.purpose, secret=each.secret)
            for each in server.variables
        ],
        documents=server.documents,
        checked=server.check_method,
        checked_on=server.checked_on,
        added=None if added is None else CatalogAddition(origin=added.origin, id=added.id, name=added.name),
    )
