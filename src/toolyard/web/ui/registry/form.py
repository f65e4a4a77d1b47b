"""Forms to add and edit servers of the registry. They work without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.store.repositories.sign_ins import SqlAuthStorage
from toolyard.types.registry import AuthChoice, ChoiceDraft, RegistryServer, ServerDraft
from toolyard.web.access.dependencies import RequestUser, require_admin
from toolyard.web.public_urls import PublicUrls
from toolyard.web.service_dependencies import AuditDep, AuthStorageDep, RegistryDep, UrlsDep
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.forms import (
    FORM_ERRORS,
    SubmittedForm,
    field_errors,
    form_specs,
    read_submitted_form,
)
from toolyard.web.ui.components.render import render_page

__all__ = ["router"]

router = APIRouter()

AdminUser = Annotated[RequestUser, Depends(require_admin)]

_SERVER_SPECS = form_specs(RegistryServer)
_CHOICE_SPECS = form_specs(AuthChoice)
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

    specs = _SERVER_SPECS
    choice_specs = _CHOICE_SPECS
    new_choice = ChoiceDraft("header")
    """Sign-in method that the button adds."""

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
async def show_new_server_form(
    request: Request, me: AdminUser, urls: UrlsDep, auth_storage: AuthStorageDep
) -> Response:
    """Show an empty form."""
    draft = ServerDraft("", "", choices=(ChoiceDraft("oauth"),))
    return render_page(
        request, "server_form.html", page=await _build_form(request, urls, auth_storage, draft, None, {})
    )


@router.post("/ui/admin/mcp/new")
async def add_server(
    request: Request,
    me: AdminUser,
    audit: AuditDep,
    urls: UrlsDep,
    registry: RegistryDep,
    auth_storage: AuthStorageDep,
) -> Response:
    """Add the server and redirect to its page, which lists its capabilities."""
    form = await read_submitted_form(request)
    draft = _read_draft(form)
    changed = await _apply_choice_button(request, urls, auth_storage, form, draft, None)
    if changed is not None:
        return render_page(request, "server_form.html", page=changed)
    try:
        server = await registry.add_server(draft)
    except FORM_ERRORS as error:
        page = await _build_form(
            request,
            urls,
            auth_storage,
            draft,
            None,
            field_errors(error, _build_field_labels(len(draft.choices))),
        )
        return render_page(request, "server_form.html", status=422, page=page)
    await audit.record_change(me, "server.add", server.id, name=server.name, url=server.url)
    return redirect_with_message(f"/ui/admin/mcp/{server.id}", f"“{server.name}” was added to the registry.")


@router.get("/ui/admin/mcp/{server_id}/edit")
async def show_edit_form(
    request: Request,
    me: AdminUser,
    server_id: str,
    urls: UrlsDep,
    registry: RegistryDep,
    auth_storage: AuthStorageDep,
) -> Response:
    """Show the form of an existing server."""
    server = await registry.get_server(server_id)
    page = await _build_form(request, urls, auth_storage, server.to_draft(), server, {})
    return render_page(request, "server_form.html", page=page)


@router.post("/ui/admin/mcp/{server_id}/edit")
async def save_server(
    request: Request,
    me: AdminUser,
    server_id: str,
    audit: AuditDep,
    urls: UrlsDep,
    registry: RegistryDep,
    auth_storage: AuthStorageDep,
) -> Response:
    """Save the server. An empty client secret keeps the stored one."""
    form = await read_submitted_form(request)
    old = await registry.get_server(server_id)
    draft = _read_draft(form)
    changed = await _apply_choice_button(request, urls, auth_storage, form, draft, old)
    if changed is not None:
        return render_page(request, "server_form.html", page=changed)
    try:
        server = await registry.edit_server(server_id, draft)
    except FORM_ERRORS as error:
        page = await _build_form(
            request,
            urls,
            auth_storage,
            draft,
            old,
            field_errors(error, _build_field_labels(len(draft.choices))),
        )
        return render_page(request, "server_form.html", status=422, page=page)
    await audit.record_change(me, "server.edit", server.id, name=server.name)
    return redirect_with_message(f"/ui/admin/mcp/{server.id}", f"“{server.name}” is saved.")


async def _apply_choice_button(
    request: Request,
    urls: PublicUrls,
    auth_storage: SqlAuthStorage,
    form: SubmittedForm,
    draft: ServerDraft,
    old: RegistryServer | None,
) -> ServerForm | None:
    """Return the form after a button that adds or removes a sign-in method; None if Save was pressed."""
    pressed = form.text("do", "save")
    if pressed == "add":
        more = replace(draft, choices=(*draft.choices, ServerForm.new_choice))
        return replace(await _build_form(request, urls, auth_storage, more, old, {}), added=True)
    if pressed.startswith("remove-"):
        removed = pressed.removeprefix("remove-")
        remaining = tuple(each for index, each in enumerate(draft.choices) if str(index) != removed)
        return await _build_form(request, urls, auth_storage, replace(draft, choices=remaining), old, {})
    return None


async def _build_form(
    request: Request,
    urls: PublicUrls,
    auth_storage: SqlAuthStorage,
    draft: ServerDraft,
    old: RegistryServer | None,
    errors: Mapping[str, str],
) -> ServerForm:
    """Return the form with the submitted values, without secrets."""
    client_identity = urls.build_client_identity(urls.base_url(request))
    ids_with_secret = (
        {each.id for each in old.choices if each.client_secret} if old is not None else set[str]()
    )
    rows: list[ChoiceRow] = []
    for each in draft.choices:
        issuer = each.issuer
        # A client id that was used before is bound to the issuer of that time.
        if issuer is None and each.client_id is not None:
            issuer = await auth_storage.get_bound_issuer(draft.url, each.client_id)
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
    values = form.read_fields(RegistryServer)
    values["description"] = values["description"].replace("\r\n", "\n")
    values["allow_tools"] = values["allow_tools"] or None
    values["choices"] = tuple(_read_choice(form, f"choices-{number}-") for number in numbers)
    return ServerDraft(**values)


def _read_choice(form: SubmittedForm, prefix: str) -> ChoiceDraft:
    values = form.read_fields(AuthChoice, prefix)
    # An empty field keeps the stored secret (None); the checkbox removes it (empty text).
    secret = form.text(f"{prefix}client_secret")
    values["client_secret"] = secret or ("" if form.is_checked(f"{prefix}drop_secret") else None)
    values["id"] = values["id"] or None
    values["scopes"] = tuple(form.text(f"{prefix}scopes").split())
    return ChoiceDraft(**values)


def _build_field_labels(choices: int) -> dict[str, str]:
    numbered = {
        f"choices-{index}-{name}": spec.label
        for index in range(choices)
        for name, spec in _CHOICE_SPECS.items()
    }
    return {name: spec.label for name, spec in _SERVER_SPECS.items()} | numbered
