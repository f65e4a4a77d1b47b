"""``/ui/tokens``: API tokens. The text of a token is shown once, when it is created."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Response

from toolyard.accounts.errors import Invalid, NotAllowed
from toolyard.accounts.random_secrets import expires_soon
from toolyard.errors import ToolyardError
from toolyard.registry.errors import NotFound
from toolyard.types.account import ApiToken, Right, TokenScope
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.ui.components import forms, responses
from toolyard.web.ui.components.formatting import sentence

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
_SERVICE_FIELDS = {
    "rights": "scope-rights",
    "servers": "scope-servers",
    "tools": "scope-tools",
    "expires": "expires_in",
}
"""Names that ``field_errors`` returns for errors of the service, where the form has other names."""


@dataclass(frozen=True, slots=True)
class TokenForm:
    """Values entered in the form for a new token."""

    name: str = ""
    rights: frozenset[str] = frozenset({"read", "call"})
    servers: tuple[str, ...] = ()
    tools: str = ""
    expires: str = "90"


@dataclass(frozen=True, slots=True)
class _TokensPage:
    """The page of the person's tokens."""

    request: Request
    me: deps.BrowserUser
    config: deps.ConfigDep
    registry: deps.RegistryDep
    accounts: deps.AccountsDep
    settings: deps.SettingsDep

    @property
    def default_lifetime(self) -> str:
        """Lifetime of a new token in days, by the settings."""
        return str(self.settings.token_lifetime) if self.settings.token_lifetime else "never"

    async def render(
        self,
        form: TokenForm | None = None,
        errors: Mapping[str, str] | None = None,
        *,
        made: ApiToken | None = None,
        secret: str | None = None,
    ) -> Response:
        """Render the page, with a token that was just created and its secret."""
        form = form or TokenForm(expires=self.default_lifetime)
        servers = self.config.configuration.servers.values()
        instances = await self.registry.list_instances(self.me.user.id)
        return responses.render_page(
            self.request,
            "tokens.html",
            tokens=await self.accounts.list_tokens(self.me.user.id),
            # Servers and instances to choose from: id or slug, and label.
            offered=[
                *((each.id, each.label or each.id) for each in servers),
                *((instance.slug, instance.name) for instance, _ in instances),
            ],
            rights=[
                (right.value, label)
                for right, label in _RIGHT_LABELS.items()
                if right is not Right.ADMIN or self.me.is_admin
            ],
            # The default of the settings is one of them.
            lifetimes=(
                {form.expires: "1 day" if form.expires == "1" else f"{form.expires} days"} | _LIFETIME_LABELS
            ).items(),
            expires_soon=expires_soon,
            now=time.time(),
            form=form,
            errors=errors,
            labels=_FIELD_LABELS,
            made=made,
            secret=secret,
        )


_TokensPageDep = Annotated[_TokensPage, Depends()]


@router.get("/ui/tokens")
async def list_tokens(page: _TokensPageDep) -> Response:
    """Show the person's tokens."""
    return await page.render()


@router.post("/ui/tokens")
async def make_token(
    me: deps.BrowserUser,
    form: forms.FormDep,
    page: _TokensPageDep,
    audit: deps.AuditDep,
    people: deps.PeopleDep,
) -> Response:
    """Create a token. Its text is shown only in this response, because only its hash is stored."""
    entered = _read_token_form(form, page.default_lifetime)
    tools = tuple(form.words("tools")) or None
    rights = frozenset(right for right in Right if right.value in entered.rights)
    scope = TokenScope(rights, entered.servers or None, tools)
    lifetime = None if entered.expires == "never" else float(entered.expires) * _DAY_SECONDS
    try:
        # The service checks names, rights and lifetime, for the API as well.
        made, secret = await people.create_token(me.user, entered.name, scope, lifetime)
    except (Invalid, NotAllowed) as error:
        return await page.render(entered, _map_field_errors(error))
    await audit.record_change(me, "token.make", made.id, name=made.name)
    return await page.render(made=made, secret=secret)


async def _find_token(me: deps.BrowserUser, token_id: str, accounts: deps.AccountsDep) -> ApiToken:
    for token in await accounts.list_tokens(me.user.id):
        if token.id == token_id:
            return token
    raise NotFound("token not found", hint="it may have been revoked")


_TokenDep = Annotated[ApiToken, Depends(_find_token)]


@router.get("/ui/tokens/{token_id}/delete")
async def show_revoke_confirmation(request: Request, me: deps.BrowserUser, token: _TokenDep) -> Response:
    """Show the confirmation page."""
    return responses.render_confirmation(
        request,
        title=f"Revoke “{token.name}”?",
        text="Programs that use it will lose access.",
        action=f"/ui/tokens/{token.id}/delete",
        back="/ui/tokens",
        verb="Revoke",
    )


@router.post("/ui/tokens/{token_id}/delete")
async def revoke_token(
    me: deps.BrowserUser, token: _TokenDep, audit: deps.AuditDep, accounts: deps.AccountsDep
) -> Response:
    """Revoke a token."""
    await accounts.delete_token(me.user.id, token.id)
    await audit.record_change(me, "token.delete", token.id, name=token.name)
    return responses.redirect_to("/ui/tokens", f"“{token.name}” was revoked.")


def _read_token_form(form: forms.SubmittedForm, default: str) -> TokenForm:
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
    # The errors name the fields of the service, some of which have other names in the form.
    service_labels = {_SERVICE_FIELDS.get(name, name): label for name, label in _FIELD_LABELS.items()}
    found = forms.field_errors(error, service_labels)
    form_names = {service: name for name, service in _SERVICE_FIELDS.items()}
    return {form_names.get(name, name): text for name, text in found.items()}
