"""Form of a registry server, to add or to edit one. It works without JavaScript.

By default, the server itself is asked how to sign in. In the mode ``none``, the only user gets an instance of
a new server at once.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from fastapi import Depends, Request, Response

from toolyard.config.settings.table import PeopleMode
from toolyard.errors import ToolyardError
from toolyard.registry.errors import NotFound
from toolyard.types.account import RequestUser
from toolyard.types.registry import AuthChoice, AuthKind, ChoiceDraft, RegistryServer, ServerDraft
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.servers.new_servers import AUTOMATIC, Obstacle, ObstacleKind
from toolyard.web.servers.previews import ServerPreview
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import extract_host

__all__ = [
    "OWN_INSTANCE",
    "PASTED_TEXT_LABELS",
    "FormNotice",
    "NewServerFormDep",
    "pasted_text_errors",
    "router",
]

router = Routes()

PASTED_TEXT_LABELS = {"text": "URL or entry", "reason": "Reason"}
"""Labels of the forms in which a URL or an entry is pasted, by field."""
_SERVER_SPECS = forms.form_specs(RegistryServer)
_CHOICE_SPECS = forms.form_specs(AuthChoice)
_OPTIONS = frozenset(_SERVER_SPECS) - {"name", "url", "choices"}
_ALLOW_PRIVATE, _SKIP_CHECK = "allow-private", "add-anyway"
"""Buttons of notices: accept a private address; save without knowing how to sign in."""
OWN_INSTANCE = "own_instance"
"""Hidden field of forms after which the admin gets an instance, also with accounts."""
_PROPOSAL = "proposal"
"""Hidden field with the id of the proposal that is accepted with the form."""
_CARRIED_FIELDS = (OWN_INSTANCE, _PROPOSAL)
"""Hidden fields that the form keeps while it is shown again."""
_CHOICE_KIND_PATTERN = re.compile(r"choices-(\d{1,4})-kind")


def pasted_text_errors(error: ToolyardError) -> dict[str, str]:
    """Return the error messages of such a form by field. Those about a part of the text are at its field."""
    parts = dict.fromkeys(("entry", "url"), PASTED_TEXT_LABELS["text"])
    errors = forms.field_errors(error, PASTED_TEXT_LABELS | parts)
    return {"text" if name in parts else name: message for name, message in errors.items()}


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """A sign-in method in the form. Client secrets are never sent back to the browser."""

    draft: ChoiceDraft
    has_secret: bool = False
    lost_secret: bool = False
    """True if a secret was entered and must be entered again, because the form is shown again."""
    redirect_uri: str = ""
    """Redirect URI to register for the client id: that of its issuer, or the shared one if the issuer is
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
    """Redirect URI of a sign-in method that is added."""
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


@dataclass(frozen=True, slots=True)
class _ServerForms:
    """Builds the form for one request, and renders it."""

    request: Request
    urls: deps.UrlsDep
    auth_storage: deps.AuthStorageDep
    new_servers: deps.NewServersDep

    async def build(
        self,
        draft: ServerDraft,
        server: RegistryServer | None = None,
        *,
        error: ToolyardError | None = None,
        notice: FormNotice | None = None,
    ) -> ServerForm:
        """Return the form with the submitted values, without secrets."""
        identity = self.urls.build_client_identity(self.urls.base_url(self.request))
        choices = server.choices if server is not None else ()
        ids_with_secret = {each.id for each in choices if each.client_secret}
        rows: list[ChoiceRow] = []
        for each in draft.choices:
            issuer = each.issuer
            # A client id that was used before is bound to the issuer of that time.
            if issuer is None and each.client_id is not None:
                issuer = await self.auth_storage.get_bound_issuer(draft.url, each.client_id, for_secret=False)
            redirect_uri = identity.redirect_uri if issuer is None else identity.redirect_uri_for(issuer)
            shown = replace(each, client_secret=None)
            rows.append(ChoiceRow(shown, each.id in ids_with_secret, bool(each.client_secret), redirect_uri))
        errors = {} if error is None else forms.field_errors(error, _build_field_labels(len(rows)))
        return ServerForm(draft, rows, identity.redirect_uri, server, errors, notice)

    def render(self, page: ServerForm) -> Response:
        """Render the form."""
        status = 422 if page.errors else 200
        return responses.render_page(self.request, "server_form.html", status=status, page=page)

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
            draft = await self.new_servers.fill_draft(draft, AuthKind.OAUTH, ServerPreview(), server)
        draft, obstacle = await self.new_servers.find_sign_in(me, draft, server)
        if obstacle is None:
            return draft, None
        verb = "add" if server is None else "save"
        return draft, await self.build(draft, server, notice=_build_notice(draft, obstacle, verb))


_ServerFormsDep = Annotated[_ServerForms, Depends()]


# Adding a server.


@dataclass(frozen=True, slots=True)
class NewServerForm:
    """The form to add a server, empty or filled, and the handling of what it submits."""

    me: deps.AdminUser
    server_forms: _ServerFormsDep
    new_servers: deps.NewServersDep
    settings: deps.SettingsDep
    instance_sync: deps.InstanceSyncDep
    proposals: deps.ProposalsDep
    audit: deps.AuditDep

    async def show(
        self, draft: ServerDraft, carried: Mapping[str, str], *, notice: FormNotice | None = None
    ) -> Response:
        """Show the form with these values."""
        page = await self.server_forms.build(draft, notice=notice)
        return self.server_forms.render(replace(page, carried=carried))

    async def submit(self, draft: ServerDraft, carried: Mapping[str, str], pressed: str = "save") -> Response:
        """Add the server, and redirect to its page or to that of the user's instance. If something has to be
        decided or corrected first, show the form."""
        try:
            draft, shown = await self.server_forms.apply_button(self.me, pressed, draft)
            if shown is not None:
                return self.server_forms.render(replace(shown, carried=carried))
            server = await self.new_servers.add(self.me, draft)
        except forms.FORM_ERRORS as error:
            page = await self.server_forms.build(draft, error=error)
            return self.server_forms.render(replace(page, carried=carried))
        if carried.get(_PROPOSAL):
            await self._accept_proposal(carried[_PROPOSAL], server)
        return await self._redirect(server, bool(carried.get(OWN_INSTANCE)))

    async def _accept_proposal(self, proposal_id: str, server: RegistryServer) -> None:
        # The server is added already, so a proposal that was withdrawn meanwhile is no error.
        with contextlib.suppress(NotFound):
            await self.proposals.accept(proposal_id, self.me.user.name, server.id)
            await self.audit.record_change(self.me, "proposal.accept", proposal_id, name=server.name)

    async def _redirect(self, server: RegistryServer, with_instance: bool) -> Response:
        if self.settings.people_mode is not PeopleMode.NONE and not with_instance:
            message = f"“{server.name}” was added to the registry."
            return responses.redirect_to(f"/ui/admin/mcp/{server.id}", message)
        if any(choice.kind is AuthKind.HEADER for choice in server.choices):
            message = f"“{server.name}” was added. Enter your key to use it."
            return responses.redirect_to(f"/ui/mcp/new?server={server.id}", message)
        instance_id = await self.new_servers.create_own_instance(self.me, server)
        await self.instance_sync.sync(self.me.principal)
        return responses.redirect_to(f"/ui/mcp/{instance_id}", f"“{server.name}” was added.")


NewServerFormDep = Annotated[NewServerForm, Depends()]


@router.get("/ui/admin/mcp/new")
async def show_new_server_form(
    me: deps.AdminUser,
    new_server: NewServerFormDep,
    proposals: deps.ProposalsDep,
    catalog: deps.ServerCatalogDep,
    proposal: str = "",
) -> Response:
    """Show an empty form, or one with the values of a proposal."""
    if not proposal:
        return await new_server.show(ServerDraft("", "", choices=(ChoiceDraft(AUTOMATIC),)), {})
    proposed = await proposals.get_open(proposal)
    notice = FormNotice(f"Proposed by {proposed.user_name}", proposed.reason, "", kind="note")
    draft = catalog.build_proposed_draft(proposed)
    return await new_server.show(draft, {_PROPOSAL: proposal}, notice=notice)


@router.post("/ui/admin/mcp/new")
async def add_server(me: deps.AdminUser, form: forms.FormDep, new_server: NewServerFormDep) -> Response:
    """Add the server of the form."""
    carried = {name: form.text(name) for name in _CARRIED_FIELDS if form.text(name)}
    return await new_server.submit(_read_draft(form), carried, form.text("do", "save"))


# Editing one.


@router.get("/ui/admin/mcp/{server_id}/edit")
async def show_edit_form(
    me: deps.AdminUser, server_id: str, registry: deps.RegistryDep, server_forms: _ServerFormsDep
) -> Response:
    """Show the form of an existing server."""
    server = await registry.get_server(server_id)
    return server_forms.render(await server_forms.build(server.to_draft(), server))


@router.post("/ui/admin/mcp/{server_id}/edit")
async def save_server(
    me: deps.AdminUser,
    server_id: str,
    form: forms.FormDep,
    audit: deps.AuditDep,
    registry: deps.RegistryDep,
    server_forms: _ServerFormsDep,
) -> Response:
    """Save the server. An empty client secret keeps the stored one."""
    draft, old = _read_draft(form), await registry.get_server(server_id)
    try:
        draft, shown = await server_forms.apply_button(me, form.text("do", "save"), draft, old)
        if shown is not None:
            return server_forms.render(shown)
        server = await registry.edit_server(server_id, draft)
    except forms.FORM_ERRORS as error:
        return server_forms.render(await server_forms.build(draft, old, error=error))
    await audit.record_change(me, "server.edit", server.id, name=server.name)
    return responses.redirect_to(f"/ui/admin/mcp/{server.id}", f"“{server.name}” was saved.")


def _read_draft(form: forms.SubmittedForm) -> ServerDraft:
    """Return the submitted server."""
    numbers = sorted(
        int(found[1]) for name in form.names() if (found := _CHOICE_KIND_PATTERN.fullmatch(name))
    )
    values = form.read_fields(RegistryServer)
    values["description"] = values["description"].replace("\r\n", "\n")
    values["allow_tools"] = values["allow_tools"] or None
    values["choices"] = tuple(_read_choice(form, f"choices-{number}-") for number in numbers)
    return ServerDraft(**values)


def _read_choice(form: forms.SubmittedForm, prefix: str) -> ChoiceDraft:
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
