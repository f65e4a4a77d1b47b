"""``/ui/proposals`` has servers that people propose, and ``/ui/admin/proposals`` those of everyone.

To accept a proposal, the admin submits the form to add a server, filled with its values.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from fastapi import Request, Response

from toolyard.config.known_servers import KnownServer
from toolyard.registry.errors import NotFound
from toolyard.registry.proposals import MAX_REASON_CHARACTERS
from toolyard.types.proposal import Proposal
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.new_servers import ServerCatalog, read_pasted_draft
from toolyard.web.ui.account.connect import build_program_words
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.registry.form import PASTED_TEXT_LABELS, pasted_text_errors

__all__ = ["router"]

router = Routes()


@router.get("/ui/proposals")
async def list_own_proposals(
    request: Request, me: deps.BrowserUser, proposals: deps.ProposalsDep, catalog: deps.ServerCatalogDep
) -> Response:
    """Show the person's proposals, with the decisions about them."""
    own = await proposals.list_own(me.user.id)
    await proposals.mark_seen(me.user.id)
    return responses.render_page(
        request, "proposals.html", proposals=own, for_admin=False, known_servers=catalog.known, program=""
    )


@router.get("/ui/proposals/new")
async def show_proposal_form(
    request: Request, me: deps.BrowserUser, catalog: deps.ServerCatalogDep, known: str = "", text: str = ""
) -> Response:
    """Show the form, for a server of the catalogue or for an address."""
    return _render_proposal_form(request, catalog.known.get(known), text)


@router.post("/ui/proposals/new")
async def propose_server(
    request: Request,
    me: deps.BrowserUser,
    form: forms.FormDep,
    audit: deps.AuditDep,
    proposals: deps.ProposalsDep,
    catalog: deps.ServerCatalogDep,
) -> Response:
    """Store a proposal. Its address is not contacted."""
    known, text, reason = catalog.known.get(form.text("known")), form.text("text"), form.text("reason")
    notes: Sequence[str] = ()
    try:
        if known is not None:
            made = await proposals.add_known(me.user, known.id, known.title, reason)
        else:
            found = read_pasted_draft(text)
            notes = found.notes
            made = await proposals.add_address(me.user, found, reason)
    except forms.FORM_ERRORS as error:
        return _render_proposal_form(request, known, text, reason, pasted_text_errors(error))
    await audit.record_change(me, "proposal.add", made.id, name=made.name)
    return responses.redirect_to("/ui/proposals", f"“{made.name}” was proposed.", hint=" ".join(notes))


@router.post("/ui/proposals/{proposal_id}/withdraw")
async def withdraw_proposal(
    me: deps.BrowserUser, proposal_id: str, audit: deps.AuditDep, proposals: deps.ProposalsDep
) -> Response:
    """Delete one of the person's proposals."""
    await proposals.withdraw(me.user.id, proposal_id)
    await audit.record_change(me, "proposal.withdraw", proposal_id)
    return responses.redirect_to("/ui/proposals", "The proposal was removed.")


@router.get("/ui/admin/proposals")
async def list_all_proposals(
    request: Request,
    me: deps.AdminUser,
    config: deps.ConfigDep,
    proposals: deps.ProposalsDep,
    catalog: deps.ServerCatalogDep,
) -> Response:
    """Show the proposals of everyone."""
    return responses.render_page(
        request,
        "proposals.html",
        proposals=await proposals.list_all(),
        for_admin=True,
        known_servers=catalog.known,
        program=shlex.join(build_program_words(config)),
    )


@router.post("/ui/admin/proposals/{proposal_id}/accept")
async def accept_local_proposal(
    me: deps.AdminUser,
    proposal_id: str,
    audit: deps.AuditDep,
    proposals: deps.ProposalsDep,
    catalog: deps.ServerCatalogDep,
) -> Response:
    """Close the proposal of a program after the admin added it by command."""
    proposal = await proposals.get_open(proposal_id)
    if not _is_program(catalog, proposal):
        raise NotFound("this proposal has an address", hint="add it with the form")
    await proposals.accept(proposal_id, me.user.name, None)
    await audit.record_change(me, "proposal.accept", proposal_id, name=proposal.name)
    return responses.redirect_to("/ui/admin/proposals", f"“{proposal.name}” was accepted.")


@router.post("/ui/admin/proposals/{proposal_id}/decline")
async def decline_proposal(
    me: deps.AdminUser,
    proposal_id: str,
    form: forms.FormDep,
    audit: deps.AuditDep,
    proposals: deps.ProposalsDep,
) -> Response:
    """Close a proposal with an answer for the person."""
    proposal = await proposals.get_open(proposal_id)
    await proposals.decline(proposal_id, me.user.name, form.text("answer"))
    await audit.record_change(me, "proposal.decline", proposal_id, name=proposal.name)
    return responses.redirect_to("/ui/admin/proposals", f"“{proposal.name}” was declined.")


def _render_proposal_form(
    request: Request,
    known: KnownServer | None,
    text: str,
    reason: str = "",
    errors: Mapping[str, str] | None = None,
) -> Response:
    """Render the form. ``known`` is the server of the catalogue that is proposed, if it is one."""
    return responses.render_page(
        request,
        "proposal_form.html",
        known=known,
        text=text,
        reason=reason,
        errors=errors,
        labels=PASTED_TEXT_LABELS,
        max_reason=MAX_REASON_CHARACTERS,
    )


def _is_program(catalog: ServerCatalog, proposal: Proposal) -> bool:
    known = catalog.known.get(proposal.known_id or "")
    return proposal.entry is None and (known is None or not known.is_remote)
