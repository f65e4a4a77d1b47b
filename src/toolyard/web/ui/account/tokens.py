"""``/ui/tokens``: a person's API tokens. The text of one is shown once, when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.accounts.api_tokens import expires_soon
from toolyard.accounts.errors import Invalid, NotAllowed
from toolyard.errors import ToolyardError
from toolyard.registry.errors import NotFound
from toolyard.types.account import ApiToken, Right, TokenScope
from toolyard.web.access.dependencies import Visitor, person
from toolyard.web.services import Site
from toolyard.web.ui.components.confirm import Confirm, confirm_page
from toolyard.web.ui.components.flash import go
from toolyard.web.ui.components.forms import Posted, field_errors, posted
from toolyard.web.ui.components.render import render

__all__ = ["router"]

router = APIRouter()

Me = Annotated[Visitor, Depends(person)]

_DAY = 86_400.0
_LIVES = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "a year", "never": "never"}
_RIGHTS = {
    Right.READ: "See servers, instances and tools",
    Right.CALL: "Call tools",
    Right.APPROVE: "Say yes for you where a call needs an approval",
    Right.MANAGE: "Create, change and delete your instances",
    Right.ADMIN: "Do what only admins may",
}
_LABELS = {
    "name": "Name",
    "rights": "Rights",
    "servers": "Servers",
    "tools": "Tools",
    "expires": "Expiry",
}
_FIELDS = {
    "scope.rights": "rights",
    "scope.servers": "servers",
    "scope.tools": "tools",
    "expires_in": "expires",
}


@dataclass(frozen=True, slots=True)
class TokenForm:
    """What was entered."""

    name: str = ""
    rights: frozenset[str] = frozenset({"read", "call"})
    servers: tuple[str, ...] = ()
    tools: str = ""
    expires: str = "90"


@dataclass(frozen=True, slots=True)
class TokensPage:
    """The tokens, and the form for a new one. ``text`` is the secret of the one that was just made."""

    tokens: Sequence[ApiToken]
    offered: Sequence[tuple[str, str]]
    """Ids and slugs to choose from, each with what people call it."""
    rights: Sequence[tuple[str, str]]
    now: float
    form: TokenForm = TokenForm()
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    made: ApiToken | None = None
    text: str | None = field(default=None, repr=False)

    labels = _LABELS

    @property
    def lives(self) -> Sequence[tuple[str, str]]:
        """The times to choose from, with the one of the settings among them."""
        days = self.form.expires
        return tuple(({days: f"{days} days"} | _LIVES).items())

    def expires_soon(self, token: ApiToken) -> bool:
        """Tell whether a token needs to be replaced within the next days."""
        return expires_soon(token, self.now)


@router.get("/ui/tokens")
async def list_tokens(request: Request, me: Me) -> Response:
    """All that this person has."""
    return await _tokens(request, me)


@router.post("/ui/tokens")
async def make_token(request: Request, me: Me) -> Response:
    """Make one. Its text is in the answer, and nowhere else."""
    site: Site = request.app.state.site
    form = await posted(request)
    entered = _entered(form, _default_life(site))
    tools = tuple(form.words("tools")) or None
    rights = frozenset(right for right in Right if right.value in entered.rights)
    scope = TokenScope(rights, entered.servers or None, tools)
    lives = None if entered.expires == "never" else float(entered.expires) * _DAY
    try:
        made, text = await site.people.make_token(me.user, entered.name, scope, lives)
    except (Invalid, NotAllowed) as error:
        return await _tokens(request, me, status=422, form=entered, errors=_errors(error))
    await site.changed(me, "token.make", made.id, name=made.name)
    return await _tokens(request, me, made=made, text=text)


@router.get("/ui/tokens/{token_id}/delete")
async def ask_to_delete(request: Request, me: Me, token_id: str) -> Response:
    """Ask again: programs may use it."""
    token = await _token(request.app.state.site, me, token_id)
    page = Confirm(
        title=f"Revoke “{token.name}”?",
        text="Programs that use it are refused from now on.",
        action=f"/ui/tokens/{token.id}/delete",
        back="/ui/tokens",
        verb="Revoke",
    )
    return confirm_page(request, page)


@router.post("/ui/tokens/{token_id}/delete")
async def delete(request: Request, me: Me, token_id: str) -> Response:
    """It opens nothing any more."""
    site: Site = request.app.state.site
    token = await _token(site, me, token_id)
    await site.database.people.delete_token(me.user.id, token.id)
    await site.changed(me, "token.delete", token.id, name=token.name)
    return go("/ui/tokens", f"“{token.name}” is revoked.")


async def _token(site: Site, me: Visitor, token_id: str) -> ApiToken:
    for token in await site.database.people.tokens(me.user.id):
        if token.id == token_id:
            return token
    raise NotFound("there is no such token", hint="it may have been revoked")


async def _tokens(
    request: Request,
    me: Visitor,
    *,
    status: int = 200,
    form: TokenForm | None = None,
    errors: Mapping[str, str] | None = None,
    made: ApiToken | None = None,
    text: str | None = None,
) -> Response:
    site: Site = request.app.state.site
    configured = [(each.id, each.label or each.id) for each in site.configuration.servers.values()]
    own = [(instance.slug, instance.name) for instance, _ in await site.registry.instances(me.user.id)]
    rights = [
        (right.value, said) for right, said in _RIGHTS.items() if right is not Right.ADMIN or me.is_admin
    ]
    page = TokensPage(
        await site.database.people.tokens(me.user.id),
        [*configured, *own],
        rights,
        site.clock(),
        form or TokenForm(expires=_default_life(site)),
        errors or {},
        made,
        text,
    )
    return render(request, "tokens.html", status=status, page=page)


def _default_life(site: Site) -> str:
    return str(site.settings.token_lifetime) if site.settings.token_lifetime else "never"


def _entered(form: Posted, default: str) -> TokenForm:
    expires = form.text("expires", default)
    return TokenForm(
        name=form.text("name"),
        rights=frozenset(form.all("rights")),
        servers=form.all("servers") if form.text("which") == "some" else (),
        tools=form.text("tools"),
        expires=expires if expires in _LIVES else default,
    )


def _errors(error: ToolyardError) -> dict[str, str]:
    if isinstance(error, NotAllowed):
        return {"rights": f"{error.cause[:1].upper()}{error.cause[1:]}."}
    renamed = {_name(name): label for name, label in _LABELS.items()}
    found = field_errors(error, renamed)
    back = {_name(name): name for name in _LABELS}
    return {back.get(name, name): text for name, text in found.items()}


def _name(field_name: str) -> str:
    """What the service calls a field of the form, as ``field_errors`` writes it."""
    named = {mine: theirs for theirs, mine in _FIELDS.items()}
    return named.get(field_name, field_name).replace(".", "-")
