"""Forms to add and edit servers of the registry. They work without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.registry.form_input import ChoiceDraft, ServerDraft
from toolyard.types.registry import AuthChoice, RegistryServer
from toolyard.web.access.dependencies import RequestUser, require_admin
from toolyard.web.services import Services
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.forms import FORM_ERRORS, SubmittedForm, field_errors, read_submitted_form
from toolyard.web.ui.components.render import render_page

__all__ = ["router"]

router = APIRouter()

AdminUser = Annotated[RequestUser, Depends(require_admin)]

_FIELD_LABELS = {
    "name": "Name",
    "url": "URL",
    "transport": "Transport",
    "trust": "Trust",
    "description": "Description",
    "allow_tools": "Allowed tools",
    "deny_tools": "Denied tools",
    "choices": "Sign-in methods",
}
_CHOICE_FIELD_LABELS = {
    "kind": "Kind",
    "label": "Label",
    "place": "Place",
    "key": "Header or parameter name",
    "registration": "Registration",
    "client_id": "Client id",
    "client_secret": "Client secret",
    "scopes": "Scopes",
    "resource": "Resource",
    "issuer": "Issuer",
    "id": "Choice",
}
_CHOICE_KIND_PATTERN = re.compile(r"choices-(\d{1,4})-kind")


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """A sign-in method in the form. Client secrets are never sent back to the browser."""

    draft: ChoiceDraft
    has_secret: bool = False
    lost_secret: bool = False
    """True if a secret was entered and must be entered again, because the form is shown again."""
    redirect_uri: str = ""
    """Redirect address to register for the client id: that of its issuer, or the shared one if the issuer is
    unknown."""


@dataclass(frozen=True, slots=True)
class ServerForm:
    """Content of the form. ``server`` is None for a new server."""

    draft: ServerDraft
    choices: Sequence[ChoiceRow]
    server: RegistryServer | None = None
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    added: bool = False
    """True if a sign-in method was just added, which then gets the focus."""

    @property
    def action(self) -> str:
        """URL that receives the form."""
        return "/ui/admin/mcp/new" if self.server is None else f"/ui/admin/mcp/{self.server.id}/edit"

    @property
    def back(self) -> str:
        """Target of Cancel."""
        return "/ui/admin/mcp" if self.server is None else f"/ui/admin/mcp/{self.server.id}"

    @property
    def labels(self) -> dict[str, str]:
        """Labels by field name."""
        return _build_field_labels(len(self.choices))


@router.get("/ui/admin/mcp/new")
async def show_new_server_form(request: Request, me: AdminUser) -> Response:
    """Show an empty form."""
    draft = ServerDraft("", "", choices=(ChoiceDraft("oauth"),))
    return render_page(request, "server_form.html", page=await _build_form(request, draft, None, {}))


@router.post("/ui/admin/mcp/new")
async def add_server(request: Request, me: AdminUser) -> Response:
    """Add the server and redirect to its page, which lists its capabilities."""
    services: Services = request.app.state.services
    form = await read_submitted_form(request)
    draft = _read_draft(form)
    changed = await _apply_choice_button(request, form, draft, None)
    if changed is not None:
        return render_page(request, "server_form.html", page=changed)
    try:
        server = await services.registry.add_server(draft)
    except FORM_ERRORS as error:
        page = await _build_form(
            request, draft, None, field_errors(error, _build_field_labels(len(draft.choices)))
        )
        return render_page(request, "server_form.html", status=422, page=page)
    await services.record_change(me, "server.add", server.id, name=server.name, url=server.url)
    return redirect_with_message(f"/ui/admin/mcp/{server.id}", f"“{server.name}” was added to the registry.")


@router.get("/ui/admin/mcp/{server_id}/edit")
async def show_edit_form(request: Request, me: AdminUser, server_id: str) -> Response:
    """Show the form of an existing server."""
    services: Services = request.app.state.services
    server = await services.registry.get_server(server_id)
    draft = _create_server_draft(server)
    return render_page(request, "server_form.html", page=await _build_form(request, draft, server, {}))


@router.post("/ui/admin/mcp/{server_id}/edit")
async def save_server(request: Request, me: AdminUser, server_id: str) -> Response:
    """Save the server. An empty client secret keeps the stored one."""
    services: Services = request.app.state.services
    form = await read_submitted_form(request)
    old = await services.registry.get_server(server_id)
    draft = _read_draft(form)
    changed = await _apply_choice_button(request, form, draft, old)
    if changed is not None:
        return render_page(request, "server_form.html", page=changed)
    try:
        server = await services.registry.edit_server(server_id, draft)
    except FORM_ERRORS as error:
        page = await _build_form(
            request, draft, old, field_errors(error, _build_field_labels(len(draft.choices)))
        )
        return render_page(request, "server_form.html", status=422, page=page)
    await services.record_change(me, "server.edit", server.id, name=server.name)
    return redirect_with_message(f"/ui/admin/mcp/{server.id}", f"“{server.name}” is saved.")


async def _apply_choice_button(
    request: Request, form: SubmittedForm, draft: ServerDraft, old: RegistryServer | None
) -> ServerForm | None:
    """Return the form after a button that adds or removes a sign-in method; None if Save was pressed."""
    pressed = form.text("do", "save")
    if pressed == "add":
        more = replace(draft, choices=(*draft.choices, ChoiceDraft("header")))
        return replace(await _build_form(request, more, old, {}), added=True)
    if pressed.startswith("remove-"):
        removed = pressed.removeprefix("remove-")
        remaining = tuple(each for index, each in enumerate(draft.choices) if str(index) != removed)
        return await _build_form(request, replace(draft, choices=remaining), old, {})
    return None


async def _build_form(
    request: Request, draft: ServerDraft, old: RegistryServer | None, errors: Mapping[str, str]
) -> ServerForm:
    """Return the form with the submitted values, without secrets."""
    services: Services = request.app.state.services
    client_identity = services.build_client_identity(services.base_url(request))
    ids_with_secret = (
        {each.id for each in old.choices if each.client_secret} if old is not None else set[str]()
    )
    rows: list[ChoiceRow] = []
    for each in draft.choices:
        issuer = each.issuer
        # A client id that was used before is bound to the issuer of that time.
        if issuer is None and each.client_id is not None:
            issuer = await services.database.auth.get_bound_issuer(draft.url, each.client_id)
        redirect_uri = (
            client_identity.redirect_uri if issuer is None else client_identity.redirect_uri_for(issuer)
        )
        shown = replace(each, client_secret=None)
        rows.append(ChoiceRow(shown, each.id in ids_with_secret, bool(each.client_secret), redirect_uri))
    return ServerForm(draft, rows, old, errors)


def _read_draft(form: SubmittedForm) -> ServerDraft:
    numbers = sorted(
        int(found[1]) for name in form.names() if (found := _CHOICE_KIND_PATTERN.fullmatch(name))
    )
    allowed = form.words("allow_tools")
    return ServerDraft(
        name=form.text("name"),
        url=form.text("url"),
        transport=form.text("transport", "http"),
        trust=form.text("trust", "trusted"),
        description=form.text("description").replace("\r\n", "\n"),
        private_addresses=form.is_checked("private_addresses"),
        allow_tools=allowed or None,
        deny_tools=form.words("deny_tools"),
        choices=tuple(_read_choice(form, f"choices-{number}-") for number in numbers),
    )


def _read_choice(form: SubmittedForm, prefix: str) -> ChoiceDraft:
    # An empty field keeps the stored secret (None); the checkbox removes it (empty text).
    secret = form.text(f"{prefix}client_secret")
    return ChoiceDraft(
        kind=form.text(f"{prefix}kind"),
        label=form.text(f"{prefix}label"),
        id=form.text(f"{prefix}id") or None,
        place=form.text(f"{prefix}place", "header"),
        key=form.text(f"{prefix}key").strip() or None,
        registration=form.text(f"{prefix}registration", "auto"),
        client_id=form.text(f"{prefix}client_id").strip() or None,
        client_secret=secret or ("" if form.is_checked(f"{prefix}drop_secret") else None),
        scopes=tuple(form.text(f"{prefix}scopes").split()),
        resource=form.text(f"{prefix}resource").strip() or None,
        legacy_discovery=form.is_checked(f"{prefix}legacy_discovery"),
        issuer=form.text(f"{prefix}issuer").strip() or None,
        issuer_redirect=form.is_checked(f"{prefix}issuer_redirect"),
    )


def _create_server_draft(server: RegistryServer) -> ServerDraft:
    return ServerDraft(
        name=server.name,
        url=server.url,
        transport=server.transport,
        trust=server.trust.value,
        description=server.description,
        private_addresses=server.private_addresses,
        allow_tools=server.allow_tools,
        deny_tools=server.deny_tools,
        choices=tuple(_create_choice_draft(each) for each in server.choices),
    )


def _create_choice_draft(choice: AuthChoice) -> ChoiceDraft:
    return ChoiceDraft(
        kind=choice.kind.value,
        label=choice.label,
        id=choice.id,
        place=choice.place,
        key=choice.key,
        registration=choice.registration.value,
        client_id=choice.client_id,
        scopes=choice.scopes,
        resource=choice.resource,
        legacy_discovery=choice.legacy_discovery,
        issuer=choice.issuer,
        issuer_redirect=choice.issuer_redirect,
    )


def _build_field_labels(choices: int) -> dict[str, str]:
    numbered = {
        f"choices-{index}-{name}": text
        for index in range(choices)
        for name, text in _CHOICE_FIELD_LABELS.items()
    }
    return _FIELD_LABELS | numbered
