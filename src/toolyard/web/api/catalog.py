"""``/catalog``: well-known servers, which admins add to the registry. ``/proposals``: servers that people ask
for, and the decisions of admins."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import BaseModel, Field, model_validator

from toolyard.accounts.errors import NotAllowed
from toolyard.config.known_servers import KnownServer
from toolyard.registry.errors import Taken
from toolyard.registry.proposals import MAX_REASON_CHARACTERS
from toolyard.types.proposal import Proposal
from toolyard.web import service_dependencies as deps
from toolyard.web.api import base as api
from toolyard.web.api.record_models import output_values
from toolyard.web.api.servers import ServerResponse
from toolyard.web.servers.new_servers import AddedServer, ObstacleKind, read_pasted_draft

__all__ = ["list_proposals", "router"]

router = api.ApiRoutes(tags=["catalog"])

_MAX_ENTRY_CHARACTERS = 20_000


# Known servers.


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


# Proposals.


class ProposalResponse(api.ApiModel):
    """A proposed server, and the decision about it."""

    id: str
    proposed_by: str = Field(description="Name of the person.")
    name: str
    reason: str
    catalog_id: str | None = Field(description="Id in the catalogue, if it is a well-known server.")
    url: str | None
    state: Literal["open", "accepted", "declined"]
    answer: str
    decided_by: str = Field(description="Name of the admin; empty while it is open.")
    server_id: str | None = Field(description="The server that was added for it.")
    created_at: datetime
    decided_at: datetime | None


class ProposalList(api.ItemList[ProposalResponse]):
    """Proposals, open ones first; at most 500."""


class CreateProposalRequest(api.RequestModel):
    """A server to propose: one of the catalogue, or an address."""

    catalog_id: str | None = Field(default=None, max_length=128)
    entry: str | None = Field(
        default=None,
        max_length=_MAX_ENTRY_CHARACTERS,
        description="A URL, or an entry of an `mcp.json` as text. Secrets that are recognised are removed.",
    )
    reason: str = Field(min_length=1, max_length=MAX_REASON_CHARACTERS)

    @model_validator(mode="after")
    def _check_server(self) -> CreateProposalRequest:
        if (self.catalog_id is None) is (self.entry is None):
            raise ValueError("exactly one of catalog_id and entry is required")
        return self


class AcceptProposalRequest(api.RequestModel):
    """The server that was added for a proposal."""

    server_id: str | None = Field(
        default=None, max_length=128, description="Id of the registry server; null for one in a file."
    )


class DeclineProposalRequest(api.RequestModel):
    """Answer for the person."""

    answer: str = Field(default="", max_length=MAX_REASON_CHARACTERS)


@router.get("/proposals", summary="List proposals")
async def list_proposals(
    proposals: deps.ProposalsDep,
    request_user: api.UserWithRead,
    everyone: Annotated[bool, Query(description="Proposals of all users; for admins only.")] = False,
) -> ProposalList:
    """Return your proposals, or those of everyone."""
    if everyone and not request_user.is_admin:
        raise NotAllowed("only admins may see the proposals of others", hint="omit the parameter `everyone`")
    found = await (proposals.list_all() if everyone else proposals.list_own(request_user.user.id))
    return ProposalList(items=[_build_proposal_model(each) for each in found])


@router.post("/proposals", status_code=201, errors=[404, 409, 413, 415], summary="Propose a server")
async def create_proposal(
    audit: deps.AuditDep,
    proposals: deps.ProposalsDep,
    catalog: deps.ServerCatalogDep,
    request_user: api.UserWithManage,
    given: CreateProposalRequest,
) -> ProposalResponse:
    """Propose a server to the admins. Toolyard does not contact its address before an admin adds it."""
    if given.catalog_id is not None:
        known = catalog.get(given.catalog_id)
        made = await proposals.add_known(request_user.user, known.id, known.title, given.reason)
    else:
        found = read_pasted_draft(given.entry or "")
        made = await proposals.add_address(request_user.user, found, given.reason)
    await audit.record_change(request_user, "proposal.add", made.id, name=made.name)
    return _build_proposal_model(made)


@router.delete("/proposals/{id}", status_code=204, errors=[404], summary="Withdraw a proposal")
async def delete_proposal(
    audit: deps.AuditDep, proposals: deps.ProposalsDep, request_user: api.UserWithManage, id: api.PathId
) -> None:
    """Delete one of your proposals, decided or not."""
    await proposals.withdraw(request_user.user.id, id)
    await audit.record_change(request_user, "proposal.withdraw", id)


@router.post("/proposals/{id}/accept", status_code=204, errors=[404, 413, 415], summary="Accept a proposal")
async def accept_proposal(
    audit: deps.AuditDep,
    proposals: deps.ProposalsDep,
    registry: deps.RegistryDep,
    request_user: deps.AdminUser,
    id: api.PathId,
    given: AcceptProposalRequest,
) -> None:
    """Close a proposal whose server you have added, and tell the person which one it is."""
    proposal = await proposals.get_open(id)
    if given.server_id is not None:
        await registry.get_server(given.server_id)
    await proposals.accept(id, request_user.user.name, given.server_id)
    await audit.record_change(request_user, "proposal.accept", id, name=proposal.name)


@router.post("/proposals/{id}/decline", status_code=204, errors=[404, 413, 415], summary="Decline a proposal")
async def decline_proposal(
    audit: deps.AuditDep,
    proposals: deps.ProposalsDep,
    request_user: deps.AdminUser,
    id: api.PathId,
    given: DeclineProposalRequest,
) -> None:
    """Close a proposal with an answer for the person."""
    proposal = await proposals.get_open(id)
    await proposals.decline(id, request_user.user.name, given.answer)
    await audit.record_change(request_user, "proposal.decline", id, name=proposal.name)


def _build_proposal_model(proposal: Proposal) -> ProposalResponse:
    url = None if proposal.entry is None else str(proposal.entry.get("url"))
    return ProposalResponse.of(
        proposal, proposed_by=proposal.user_name, catalog_id=proposal.known_id, url=url
    )
