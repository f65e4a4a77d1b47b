"""``/ui/connect``: what to put into another client so that it uses the gateway here, and a token for it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from toolyard.accounts.errors import Invalid
from toolyard.config.settings.choices import PeopleMode
from toolyard.gateway.client_snippets import (
    CLIENT_FORMATS,
    ConnectionMethod,
    Snippet,
    build_snippet,
    gateway_url,
)
from toolyard.types.account import ApiToken, Right, TokenScope
from toolyard.web.access.dependencies import RequestUser, require_browser_user
from toolyard.web.services import Services
from toolyard.web.ui.components.forms import read_submitted_form
from toolyard.web.ui.components.render import render_page

__all__ = ["router"]

router = APIRouter()

BrowserUser = Annotated[RequestUser, Depends(require_browser_user)]

_EVERYTHING_LABEL = "Everything I can use"


@dataclass(frozen=True, slots=True)
class GatewayOffer:
    """What an address of the gateway offers: one ``kind`` of thing by its name, or everything."""

    kind: str = ""
    name: str = ""
    label: str = _EVERYTHING_LABEL

    @property
    def value(self) -> str:
        """How a form names it."""
        return f"{self.kind}/{self.name}" if self.kind else ""

    def address(self, base: str) -> str:
        """Where it is."""
        return gateway_url(base, **({self.kind: self.name} if self.kind else {}))

    @property
    def words(self) -> list[str]:
        """The same for ``toolyard stdio``, which knows no instances."""
        return [f"--{self.kind}", self.name] if self.kind not in ("", "instance") else []

    @property
    def scope(self) -> TokenScope:
        """What a token for it is limited to."""
        rights = frozenset({Right.CALL})
        if self.kind in ("server", "instance"):
            return TokenScope(rights, servers=(self.name,))
        return TokenScope(rights, agents=(self.name,) if self.kind == "agent" else None)


@dataclass(frozen=True, slots=True)
class ConnectPage:
    """One client's snippets. ``text`` is the secret of a token that was just made, and stands in them."""

    client: str
    offers: Sequence[GatewayOffer]
    offer: GatewayOffer
    address: str
    here: Snippet | None
    """For the address; None: this client cannot be told one in its file."""
    program: Snippet | None
    """For a client on this machine that starts a program; None: this is somebody else's machine."""
    mode: PeopleMode
    here_too: str
    """How a command is told to use what this Toolyard uses."""
    made: ApiToken | None = None
    text: str | None = field(default=None, repr=False)
    error: str = ""

    @property
    def title(self) -> str:
        """What people call the client."""
        return CLIENT_FORMATS[self.client].title

    @property
    def needs_token(self) -> bool:
        """Whether a client has to prove who it acts for."""
        return self.mode is not PeopleMode.NONE

    @property
    def tabs(self) -> list[tuple[str, str, bool]]:
        """A way to each client's snippets."""
        chosen = {"offer": self.offer.value} if self.offer.kind else {}
        return [
            (f"/ui/connect?{urlencode({'client': name, **chosen})}", known.title, name == self.client)
            for name, known in CLIENT_FORMATS.items()
        ]


@router.get("/ui/connect")
async def show_snippets(request: Request, me: BrowserUser, client: str = "", offer: str = "") -> Response:
    """The snippets of one client."""
    return await _render_connect_page(request, me, client, offer)


@router.post("/ui/connect")
async def make_token(request: Request, me: BrowserUser) -> Response:
    """Make a token for this client, and put it into the snippets. Its text is in the answer alone."""
    site: Services = request.app.state.site
    form = await read_submitted_form(request)
    client = _resolve_client(form.text("client"))
    wanted = _find_offer(await _list_offers(site, me), form.text("offer"))
    try:
        made, text = await site.people.make_token(
            me.user, CLIENT_FORMATS[client].title, wanted.scope, site.people.token_lifetime
        )
    except Invalid as error:
        words = "; ".join(problem.message for problem in error.problems)
        return await _render_connect_page(request, me, client, wanted.value, status=422, error=words)
    await site.changed(me, "token.make", made.id, name=made.name)
    return await _render_connect_page(request, me, client, wanted.value, new_token=made, secret=text)


async def _render_connect_page(
    request: Request,
    me: RequestUser,
    client: str,
    offer: str,
    *,
    status: int = 200,
    new_token: ApiToken | None = None,
    secret: str | None = None,
    error: str = "",
) -> Response:
    site: Services = request.app.state.site
    client, offers, mode = _resolve_client(client), await _list_offers(site, me), site.settings.people_mode
    wanted = _find_offer(offers, offer)
    url = wanted.address(site.base_url(request))
    program = None
    if mode is PeopleMode.NONE and wanted.kind != "instance":
        program = build_snippet(
            client, ConnectionMethod(("toolyard", *_build_location_options(site), "stdio", *wanted.words))
        )
    here = _build_url_snippet(
        client, ConnectionMethod(url=url, needs_token=mode is not PeopleMode.NONE, token=secret)
    )
    here_too = shlex.join(_build_location_options(site))
    page = ConnectPage(client, offers, wanted, url, here, program, mode, here_too, new_token, secret, error)
    return render_page(request, "connect.html", status=status, page=page)


def _build_location_options(site: Services) -> tuple[str, ...]:
    """What this Toolyard uses, for one that a client starts: in another folder, with other variables."""
    folder, file = os.path.abspath(site.data_dir), site.configuration.file
    return ("--data-dir", folder, *(() if file is None else ("--config", os.path.abspath(file))))


def _resolve_client(wanted: str) -> str:
    return wanted if wanted in CLIENT_FORMATS else next(iter(CLIENT_FORMATS))


def _find_offer(offers: Sequence[GatewayOffer], value: str) -> GatewayOffer:
    return next((each for each in offers if each.value == value), offers[0])


def _build_url_snippet(client: str, way: ConnectionMethod) -> Snippet | None:
    try:
        return build_snippet(client, way)
    except ValueError:
        return None


async def _list_offers(site: Services, me: RequestUser) -> list[GatewayOffer]:
    """Everything, and each thing that has an address of its own."""
    configured, own = site.configuration, await site.registry.instances(me.user.id)
    return [
        GatewayOffer(),
        *(GatewayOffer("agent", each.id, f"Agent {each.name}") for each in site.agents.values()),
        *(
            GatewayOffer("bundle", each.id, f"Bundle {each.label or each.id}")
            for each in configured.bundles.values()
        ),
        *(
            GatewayOffer("server", each.id, f"Server {each.label or each.id}")
            for each in configured.servers.values()
        ),
        *(GatewayOffer("instance", each.slug, f"My instance {each.name}") for each, _ in own),
    ]
