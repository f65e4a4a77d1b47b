"""``/proposals``: servers that people propose, and the decisions of admins."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field, model_validator

from toolyard.accounts.errors import NotAllowed
from toolyard.registry.proposals import MAX_REASON_CHARACTERS
from toolyard.types.proposal import Proposal
from toolyard.web import service_dependencies as deps
from toolyard.web.api import base as api
from toolyard.web.servers.new_servers import read_pasted_draft

__all__ = ["router"]

router = api.ApiRoutes(tags=["catalog"])

_MAX_ENTRY_CHARACTERS = 20_000


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
            raise ValueError("give either catalog_id or entry")
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
