"""``/ui/tokens``: API tokens. The text of a token is shown once, when it is created."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import Request, Response

from toolyard.accounts.errors import Invalid, NotAllowed
from toolyard.accounts.random_secrets import expires_soon
from toolyard.config.settings.table import Settings
from toolyard.core.current_config import CurrentConfig
from toolyard.errors import ToolyardError
from toolyard.registry import Registry
from toolyard.registry.errors import NotFound
from toolyard.store.repositories.accounts import SqlAccountStorage
from toolyard.types.account import ApiToken, RequestUser, Right, TokenScope
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.ui.components.flash import redirect_with_message
from toolyard.web.ui.components.formatting import sentence
from toolyard.web.ui.components.forms import (
    ConfirmPage,
    SubmittedForm,
    field_errors,
    read_submitted_form,
    render_confirm_page,
)
from toolyard.web.ui.components.render import render_page

__all__ = ["router"]

router = Routes()

_DAY_SECONDS = 86_400.0
_LIFETIME_LABELS = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "1 year", "never": "Never"}
_RIGHT_LABELS = {
    Right.READ: "See servers, instances and tools",
    Right.CALL: "Call tools",
    Right.APPROVE: "Approve calls on your behalf",
    Right.MANAGE: "Create, change and delete your instances and agents",
    Right.ADMIN: "Admin rights",
}
_FIELD_LABELS = {
    "name": "Name",
    "rights": "Rights",
    "servers": "Servers",
    "tools": "Tools",
    "expires": "Expiry",
}
_FORM_FIELD_BY_SERVICE_FIELD = {
    "scope.rights": "rights",
    "scope.servers": "servers",
    "scope.tools": "tools",
    "expires_in": "expires",
}


@dataclass(frozen=True, slots=True)
class TokenForm:
    """Values entered in the form for a new token."""

    name: str = ""
    rights: frozenset[str] = frozenset({"read", "call"})
    servers: tuple[str, ...] = ()
    tools: str = ""
    expires: str = "90"


@dataclass(frozen=True, slots=True)
class TokensPage:
    """Content of the tokens page. ``made`` and ``text`` are a token that was just created, and its secret."""

    tokens: Sequence[ApiToken]
    offered: Sequence[tuple[str, str]]
    """Servers and instances to choose from: id or slug, and label."""
    rights: Sequence[tuple[str, str]]
    now: float
    form: TokenForm = TokenForm()
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    made: ApiToken | None = None
    text: str | None = field(default=None, repr=False)

    labels = _FIELD_LABELS

    @property
    def lives(self) -> Sequence[tuple[str, str]]:
        """Lifetimes to choose from, including the default of the settings."""
        days = self.form.expires
        return tuple(({days: f"{days} days"} | _LIFETIME_LABELS).items())

    def expires_soon(self, token: ApiToken) -> bool:
        """Return True if a token expires within the next days."""
        return expires_soon(token, self.now)


@router.get("/ui/tokens")
async def list_tokens(
    request: Request,
    me: deps.BrowserUser,
    config: deps.ConfigDep,
    registry: deps.RegistryDep,
    accounts: deps.AccountsDep,
    settings: deps.SettingsDep,
) -> Response:
    """Show the person's tokens."""
    return await _render_tokens_page(request, config, registry, accounts, settings, me)


@router.post("/ui/tokens")
async def make_token(
    request: Request,
    me: deps.BrowserUser,
    audit: deps.AuditDep,
    config: deps.ConfigDep,
    registry: deps.RegistryDep,
    accounts: deps.AccountsDep,
    settings: deps.SettingsDep,
    people: deps.PeopleDep,
) -> Response:
    """Create a token. Its text is shown only in this response, because only its hash is stored."""
    form = await read_submitted_form(request)
    entered = _read_token_form(form, _get_default_lifetime(settings))
    tools = tuple(form.words("tools")) or None
    rights = frozenset(right for right in Right if right.value in entered.rights)
    scope = TokenScope(rights, entered.servers or None, tools)
    lifetime = None if entered.expires == "never" else float(entered.expires) * _DAY_SECONDS
    try:
        # The service checks names, rights and lifetime, for the API as well.
        made, text = await people.create_token(me.user, entered.name, scope, lifetime)
    except (Invalid, NotAllowed) as error:
        return await _render_tokens_page(
            request,
            config,
            registry,
            accounts,
            settings,
            me,
            status=422,
            form=entered,
            errors=_map_field_errors(error),
        )
    await audit.record_change(me, "token.make", made.id, name=made.name)
    return await _render_tokens_page(
        request, config, registry, accounts, settings, me, new_token=made, secret=text
    )


@router.get("/ui/tokens/{token_id}/delete")
async def show_revoke_confirmation(
    request: Request, me: deps.BrowserUser, token_id: str, accounts: deps.AccountsDep
) -> Response:
    """Show the confirmation page."""
    token = await _find_token(accounts, me, token_id)
    page = ConfirmPage(
        title=f"Revoke “{token.name}”?",
        text="Programs that use it will lose access.",
        action=f"/ui/tokens/{token.id}/delete",
        back="/ui/tokens",
        verb="Revoke",
    )
    return render_confirm_page(request, page)


@router.post("/ui/tokens/{token_id}/delete")
async def revoke_token(
    request: Request, me: deps.BrowserUser, token_id: str, audit: deps.AuditDep, accounts: deps.AccountsDep
) -> Response:
    """Revoke a token."""
    token = await _find_token(accounts, me, token_id)
    await accounts.delete_token(me.user.id, token.id)
    await audit.record_change(me, "token.delete", token.id, name=token.name)
    return redirect_with_message("/ui/tokens", f"“{token.name}” is revoked.")


async def _find_token(accounts: SqlAccountStorage, me: RequestUser, token_id: str) -> ApiToken:
    for token in await accounts.list_tokens(me.user.id):
        if token.id == token_id:
            return token
    raise NotFound("token not found", hint="it may have been revoked")


async def _render_tokens_page(
    request: Request,
    config: CurrentConfig,
    registry: Registry,
    accounts: SqlAccountStorage,
    settings: Settings,
    me: RequestUser,
    *,
    status: int = 200,
    form: TokenForm | None = None,
    errors: Mapping[str, str] | None = None,
    new_token: ApiToken | None = None,
    secret: str | None = None,
) -> Response:
    configured = [(each.id, each.label or each.id) for each in config.configuration.servers.values()]
    own = [(instance.slug, instance.name) for instance, _ in await registry.list_instances(me.user.id)]
    rights = [
        (right.value, label)
        for right, label in _RIGHT_LABELS.items()
        if right is not Right.ADMIN or me.is_admin
    ]
    page = TokensPage(
        await accounts.list_tokens(me.user.id),
        [*configured, *own],
        rights,
        time.time(),
        form or TokenForm(expires=_get_default_lifetime(settings)),
        errors or {},
        new_token,
        secret,
    )
    return render_page(request, "tokens.html", status=status, page=page)


def _get_default_lifetime(settings: Settings) -> str:
    return str(settings.token_lifetime) if settings.token_lifetime else "never"


def _read_token_form(form: SubmittedForm, default: str) -> TokenForm:
    expires = form.text("expires", default)
    return TokenForm(
        name=form.text("name"),
        rights=frozenset(form.all_values("rights")),
        servers=form.all_values("servers") if form.text("which") == "some" else (),
        tools=form.text("tools"),
        expires=expires if expires in _LIFETIME_LABELS else default,
    )


def _map_field_errors(error: ToolyardError) -> dict[str, str]:
    # Refused rights are shown at the checkboxes instead of on an error page.
    if isinstance(error, NotAllowed):
        return {"rights": sentence(error.cause)}
    renamed = {_to_service_field(name): label for name, label in _FIELD_LABELS.items()}
    found = field_errors(error, renamed)
    back = {_to_service_field(name): name for name in _FIELD_LABELS}
    return {back.get(name, name): text for name, text in found.items()}


def _to_service_field(field_name: str) -> str:
    """Return the name that ``field_errors`` derives from the service's field for a form field."""
    service_fields = {form_field: name for name, form_field in _FORM_FIELD_BY_SERVICE_FIELD.items()}
    return service_fields.get(field_name, field_name).replace(".", "-")
