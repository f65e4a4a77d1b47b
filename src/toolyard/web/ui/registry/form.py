"""Form of a registry server, and the page to edit one. It works without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fastapi import Request, Response

from toolyard.errors import ToolyardError
from toolyard.store.repositories.sign_ins import SqlAuthStorage
from toolyard.types.account import RequestUser
from toolyard.types.registry import AuthChoice, AuthKind, ChoiceDraft, RegistryServer, ServerDraft
from toolyard.web import service_dependencies as deps
from toolyard.web.public_urls import PublicUrls
from toolyard.web.routes import Routes
from toolyard.web.servers.new_servers import NewServers, Obstacle, ObstacleKind, fill_draft
from toolyard.web.servers.previews import ServerPreview
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.formatting import extract_host
from toolyard.web.ui.components.forms import (
    FORM_ERRORS,
    SubmittedForm,
    field_errors,
    form_specs,
    read_submitted_form,
)
from toolyard.web.ui.components.render import render_page

__all__ = ["FormNotice", "ServerForms", "read_draft", "router"]

router = Routes()

_SERVER_SPECS = form_specs(RegistryServer)
_CHOICE_SPECS = form_specs(AuthChoice)
_OPTIONS = frozenset(_SERVER_SPECS) - {"name", "url", "choices"}
_ALLOW_PRIVATE, _SKIP_CHECK = "allow-private", "add-anyway"
"""Buttons of notices: accept a private address; save without knowing how to sign in."""
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
class FormNotice:
    """Message above the form, with a button that submits it again with ``do`` as ``button_value``."""

    title: str
    text: str
    hint: str
    button: str = ""
    button_value: str = ""
    kind: str = "warn"


@dataclass(frozen=True, slots=True)
class ServerForm:
    """Content of the form. ``server`` is None for a new server."""

    draft: ServerDraft
    choices: Sequence[ChoiceRow]
    redirect_uri: str
    """Redirect address of a sign-in method that is added."""
    server: RegistryServer | None = None
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    notice: FormNotice | None = None
    carried: Mapping[str, str] = field(default_factory=dict[str, str])
    """Hidden fields."""
    added: bool = False
    """True if a sign-in method was just added, which then gets the focus."""

    specs = _SERVER_SPECS
    choice_specs = _CHOICE_SPECS
    new_choice = ChoiceRow(ChoiceDraft("header"))
    """Sign-in method that the button adds."""

    @property
    def has_options(self) -> bool:
        """True if the part for less common fields is open: they are used, or have errors."""
        used = replace(self.draft, name="", url="", choices=()) != ServerDraft("", "")
        return self.server is not None or used or not _OPTIONS.isdisjoint(self.errors)

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


class ServerForms:
    """Builds the form for one request."""

    def __init__(
        self, request: Request, urls: PublicUrls, auth_storage: SqlAuthStorage, new_servers: NewServers
    ) -> None:
        self._client_identity = urls.build_client_identity(urls.base_url(request))
        self._auth_storage = auth_storage
        self._new_servers = new_servers

    async def build(
        self,
        draft: ServerDraft,
        server: RegistryServer | None = None,
        *,
        error: ToolyardError | None = None,
        notice: FormNotice | None = None,
    ) -> ServerForm:
        """Return the form with the submitted values, without secrets."""
        ids_with_secret = {
            each.id for each in (server.choices if server is not None else ()) if each.client_secret
        }
        rows: list[ChoiceRow] = []
        for each in draft.choices:
            issuer = each.issuer
            # A client id that was used before is bound to the issuer of that time.
            if issuer is None and each.client_id is not None:
                issuer = await self._auth_storage.get_bound_issuer(draft.url, each.client_id)
            identity = self._client_identity
            redirect_uri = identity.redirect_uri if issuer is None else identity.redirect_uri_for(issuer)
            shown = replace(each, client_secret=None)
            rows.append(ChoiceRow(shown, each.id in ids_with_secret, bool(each.client_secret), redirect_uri))
        errors = {} if error is None else field_errors(error, _build_field_labels(len(rows)))
        return ServerForm(draft, rows, self._client_identity.redirect_uri, server, errors, notice)

    async def apply_button(
        self, me: RequestUser, pressed: str, draft: ServerDraft, server: RegistryServer | None = None
    ) -> tuple[ServerDraft, ServerForm | None]:
        """Return the draft to save, and the form if it has to be shown first. Raises Invalid.

        The form is shown after a button that adds or removes a sign-in method, and if something has to be
        decided before the way to sign in is known.
        """
        if pressed == "add":
            draft = replace(draft, choices=(*draft.choices, ServerForm.new_choice.draft))
            return draft, replace(await self.build(draft, server), added=True)
        if pressed.startswith("remove-"):
            removed = pressed.removeprefix("remove-")
            remaining = tuple(each for index, each in enumerate(draft.choices) if str(index) != removed)
            draft = replace(draft, choices=remaining)
            return draft, await self.build(draft, server)
        if pressed == _ALLOW_PRIVATE:
            draft = replace(draft, private_addresses=True)
        elif pressed == _SKIP_CHECK:
            draft = fill_draft(draft, AuthKind.OAUTH, ServerPreview(), server)
        draft, obstacle = await self._new_servers.find_sign_in(me, draft, server)
        if obstacle is None:
            return draft, None
        verb = "add" if server is None else "save"
        return draft, await self.build(draft, server, notice=_build_notice(draft, obstacle, verb))


@router.get("/ui/admin/mcp/{server_id}/edit")
async def show_edit_form(
    request: Request,
    me: deps.AdminUser,
    server_id: str,
    urls: deps.UrlsDep,
    registry: deps.RegistryDep,
    auth_storage: deps.AuthStorageDep,
    new_servers: deps.NewServersDep,
) -> Response:
    """Show the form of an existing server."""
    server = await registry.get_server(server_id)
    page = await ServerForms(request, urls, auth_storage, new_servers).build(server.to_draft(), server)
    return render_page(request, "server_form.html", page=page)


@router.post("/ui/admin/mcp/{server_id}/edit")
async def save_server(
    request: Request,
    me: deps.AdminUser,
    server_id: str,
    audit: deps.AuditDep,
    urls: deps.UrlsDep,
    registry: deps.RegistryDep,
    auth_storage: deps.AuthStorageDep,
    new_servers: deps.NewServersDep,
) -> Response:
    """Save the server. An empty client secret keeps the stored one."""
    form = await read_submitted_form(request)
    old = await registry.get_server(server_id)
    draft, forms = read_draft(form), ServerForms(request, urls, auth_storage, new_servers)
    try:
        draft, shown = await forms.apply_button(me, form.text("do", "save"), draft, old)
        if shown is not None:
            return render_page(request, "server_form.html", page=shown)
        server = await registry.edit_server(server_id, draft)
    except FORM_ERRORS as error:
        page = await forms.build(draft, old, error=error)
        return render_page(request, "server_form.html", status=422, page=page)
    await audit.record_change(me, "server.edit", server.id, name=server.name)
    return redirect_with_message(f"/ui/admin/mcp/{server.id}", f"“{server.name}” is saved.")


def read_draft(form: SubmittedForm) -> ServerDraft:
    """Return the submitted server."""
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


def _build_notice(draft: ServerDraft, obstacle: Obstacle, verb: str) -> FormNotice:
    error = obstacle.error
    if obstacle.kind is ObstacleKind.PRIVATE_ADDRESS:
        return FormNotice(
            f"{extract_host(draft.url)} is a private address",
            "Toolyard connects to servers in your own network only if you allow it for each of them.",
            "Allow it only for a server that you run: it may then refer to private addresses as well.",
            f"Allow and {verb}",
            _ALLOW_PRIVATE,
        )
    if obstacle.kind is ObstacleKind.NEEDS_KEY:
        return FormNotice(
            "The server needs an API key",
            f"It {error.cause}. It does not offer OAuth.",
            "Enter the name of the header or query parameter that carries the key. Each person enters their"
            " own key.",
        )
    return FormNotice(
        "Couldn’t find out how to sign in",
        error.cause,
        error.hint or "",
        f"{verb.capitalize()} anyway",
        _SKIP_CHECK,
    )
