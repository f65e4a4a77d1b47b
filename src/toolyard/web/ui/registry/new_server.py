"""``/ui/admin/mcp/new``: adding a server. By default, the server itself is asked how to sign in.

In the mode ``none``, the server's only user gets an instance of it at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from fastapi import Request, Response

from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.core.audit import AuditRecorder
from toolyard.core.instances import InstanceSync
from toolyard.registry.errors import NotFound
from toolyard.registry.proposals import Proposals
from toolyard.store.repositories.sign_ins import SqlAuthStorage
from toolyard.types.account import RequestUser
from toolyard.types.registry import AuthKind, ChoiceDraft, RegistryServer, ServerDraft
from toolyard.web import service_dependencies as deps
from toolyard.web.access.services import uses
from toolyard.web.public_urls import PublicUrls
from toolyard.web.routes import Routes
from toolyard.web.servers.new_servers import AUTOMATIC, NewServers
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.forms import FORM_ERRORS, read_submitted_form
from toolyard.web.ui.components.render import render_page
from toolyard.web.ui.registry.form import FormNotice, ServerForms, read_draft

__all__ = ["OWN_INSTANCE", "NewServerForm", "NewServerFormDep", "router"]

router = Routes()

OWN_INSTANCE = "own_instance"
"""Hidden field of forms after which the admin gets an instance, also with accounts."""
_PROPOSAL = "proposal"
"""Hidden field with the id of the proposal that is accepted with the form."""
_CARRIED_FIELDS = (OWN_INSTANCE, _PROPOSAL)
"""Hidden fields that the form keeps while it is shown again."""


class NewServerForm:
    """The form to add a server, empty or filled, and the handling of what it submits."""

    def __init__(
        self,
        new_servers: NewServers,
        settings: Settings,
        urls: PublicUrls,
        auth_storage: SqlAuthStorage,
        instance_sync: InstanceSync,
        proposals: Proposals,
        audit: AuditRecorder,
    ) -> None:
        self._new_servers = new_servers
        self._settings = settings
        self._urls = urls
        self._auth_storage = auth_storage
        self._instance_sync = instance_sync
        self._proposals = proposals
        self._audit = audit

    async def show(
        self,
        request: Request,
        draft: ServerDraft,
        carried: Mapping[str, str],
        *,
        notice: FormNotice | None = None,
    ) -> Response:
        """Show the form with these values."""
        page = replace(await self._forms(request).build(draft, notice=notice), carried=carried)
        return render_page(request, "server_form.html", page=page)

    async def submit(
        self,
        request: Request,
        me: RequestUser,
        draft: ServerDraft,
        carried: Mapping[str, str],
        pressed: str = "save",
    ) -> Response:
        """Add the server, and redirect to its page or to that of the user's instance. If something has to be
        decided or corrected first, show the form."""
        forms = self._forms(request)
        try:
            draft, shown = await forms.apply_button(me, pressed, draft)
            if shown is not None:
                return render_page(request, "server_form.html", page=replace(shown, carried=carried))
            server = await self._new_servers.add(me, draft)
        except FORM_ERRORS as error:
            page = replace(await forms.build(draft, error=error), carried=carried)
            return render_page(request, "server_form.html", status=422, page=page)
        if carried.get(_PROPOSAL):
            await self._accept_proposal(me, carried[_PROPOSAL], server)
        return await self._redirect(me, server, bool(carried.get(OWN_INSTANCE)))

    def _forms(self, request: Request) -> ServerForms:
        return ServerForms(request, self._urls, self._auth_storage, self._new_servers)

    async def _accept_proposal(self, me: RequestUser, proposal_id: str, server: RegistryServer) -> None:
        # The server is added already, so that a proposal that was withdrawn meanwhile is no error.
        with contextlib.suppress(NotFound):
            await self._proposals.accept(proposal_id, me.user.name, server.id)
            await self._audit.record_change(me, "proposal.accept", proposal_id, name=server.name)

    async def _redirect(self, me: RequestUser, server: RegistryServer, with_instance: bool) -> Response:
        if self._settings.people_mode is not PeopleMode.NONE and not with_instance:
            message = f"“{server.name}” was added to the registry."
            return redirect_with_message(f"/ui/admin/mcp/{server.id}", message)
        if any(choice.kind is AuthKind.HEADER for choice in server.choices):
            message = f"“{server.name}” was added. Enter your key to use it."
            return redirect_with_message(f"/ui/mcp/new?server={server.id}", message)
        instance_id = await self._new_servers.create_own_instance(me, server)
        await self._instance_sync.sync(me.principal)
        return redirect_with_message(f"/ui/mcp/{instance_id}", f"“{server.name}” was added.")


NewServerFormDep = Annotated[NewServerForm, uses(NewServerForm)]


@router.get("/ui/admin/mcp/new")
async def show_new_server_form(
    request: Request,
    me: deps.AdminUser,
    new_server: NewServerFormDep,
    proposals: deps.ProposalsDep,
    catalog: deps.ServerCatalogDep,
    proposal: str = "",
) -> Response:
    """Show an empty form, or one with the values of a proposal."""
    if not proposal:
        return await new_server.show(request, ServerDraft("", "", choices=(ChoiceDraft(AUTOMATIC),)), {})
    proposed = await proposals.get_open(proposal)
    notice = FormNotice(f"Proposed by {proposed.user_name}", proposed.reason, "", kind="note")
    draft = catalog.build_proposed_draft(proposed)
    return await new_server.show(request, draft, {_PROPOSAL: proposal}, notice=notice)


@router.post("/ui/admin/mcp/new")
async def add_server(request: Request, me: deps.AdminUser, new_server: NewServerFormDep) -> Response:
    """Add the server of the form."""
    form = await read_submitted_form(request)
    carried = {name: form.text(name) for name in _CARRIED_FIELDS if form.text(name)}
    return await new_server.submit(request, me, read_draft(form), carried, form.text("do", "save"))
