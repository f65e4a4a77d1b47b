"""``/ui/connect``: configuration for other MCP clients that use the gateway, and a token for them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from fastapi import Request, Response

from toolyard.accounts.errors import Invalid
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.core.agents import AgentRoster
from toolyard.core.current_config import CurrentConfig
from toolyard.gateway.client_snippets import (
    CLIENT_FORMATS,
    ConnectionMethod,
    Snippet,
    build_snippet,
    find_program,
    gateway_url,
)
from toolyard.registry import Registry
from toolyard.types.account import ApiToken, RequestUser, Right, TokenScope
from toolyard.web import service_dependencies as deps
from toolyard.web.public_urls import PublicUrls
from toolyard.web.routes import Routes
from toolyard.web.ui.components.forms import read_submitted_form
from toolyard.web.ui.components.render import render_page

__all__ = ["build_program_words", "router"]

router = Routes()

_EVERYTHING_LABEL = "Everything I can use"


@dataclass(frozen=True, slots=True)
class GatewayOffer:
    """Scope of a gateway URL: one agent, bundle, server or instance, or everything if ``kind`` is empty."""

    kind: str = ""
    name: str = ""
    label: str = _EVERYTHING_LABEL

    @property
    def value(self) -> str:
        """Value in the form."""
        return f"{self.kind}/{self.name}" if self.kind else ""

    def address(self, base: str) -> str:
        """Return the gateway URL of this scope."""
        return gateway_url(base, **({self.kind: self.name} if self.kind else {}))

    @property
    def words(self) -> list[str]:
        """Options of ``toolyard stdio`` for this scope. That command does not support instances."""
        return [f"--{self.kind}", self.name] if self.kind not in ("", "instance") else []

    @property
    def scope(self) -> TokenScope:
        """Scope of a token for this URL."""
        rights = frozenset({Right.CALL})
        if self.kind in ("server", "instance"):
            return TokenScope(rights, servers=(self.name,))
        # Tokens cannot be limited to bundles.
        return TokenScope(rights, agents=(self.name,) if self.kind == "agent" else None)


@dataclass(frozen=True, slots=True)
class ConnectPage:
    """Content of the page for one client. ``text`` is the secret of a token that was just created; the
    snippets include it."""

    client: str
    offers: Sequence[GatewayOffer]
    offer: GatewayOffer
    address: str
    here: Snippet | None
    """Snippet with the URL; None if the client's config file does not support URLs."""
    program: Snippet | None
    """Snippet with a local command; None if clients run on other machines."""
    mode: PeopleMode
    this_program: str
    """Command that runs this Toolyard, with the options for its data directory and configuration."""
    made: ApiToken | None = None
    text: str | None = field(default=None, repr=False)
    error: str = ""

    @property
    def title(self) -> str:
        """Name of the client for people."""
        return CLIENT_FORMATS[self.client].title

    @property
    def needs_token(self) -> bool:
        """True if the gateway requires authentication."""
        return self.mode is not PeopleMode.NONE

    @property
    def tabs(self) -> list[tuple[str, str, bool]]:
        """Links to the pages of all clients: URL, title, and True for the current one."""
        chosen = {"offer": self.offer.value} if self.offer.kind else {}
        return [
            (f"/ui/connect?{urlencode({'client': name, **chosen})}", known.title, name == self.client)
            for name, known in CLIENT_FORMATS.items()
        ]


@router.get("/ui/connect")
async def show_snippets(
    request: Request,
    me: deps.BrowserUser,
    config: deps.ConfigDep,
    roster: deps.AgentRosterDep,
    urls: deps.UrlsDep,
    registry: deps.RegistryDep,
    settings: deps.SettingsDep,
    client: str = "",
    offer: str = "",
) -> Response:
    """Show the snippets of one client."""
    return await _render_connect_page(request, config, roster, urls, registry, settings, me, client, offer)


@router.post("/ui/connect")
async def make_token(
    request: Request,
    me: deps.BrowserUser,
    audit: deps.AuditDep,
    config: deps.ConfigDep,
    roster: deps.AgentRosterDep,
    urls: deps.UrlsDep,
    registry: deps.RegistryDep,
    settings: deps.SettingsDep,
    people: deps.PeopleDep,
) -> Response:
    """Create a token for this client and include it in the snippets. It is shown only in this response."""
    form = await read_submitted_form(request)
    client = _resolve_client(form.text("client"))
    chosen = _find_offer(await _list_offers(config, roster, registry, me), form.text("offer"))
    try:
        made, text = await people.create_token(
            me.user, CLIENT_FORMATS[client].title, chosen.scope, people.token_lifetime
        )
    except Invalid as error:
        words = "; ".join(problem.message for problem in error.problems)
        return await _render_connect_page(
            request,
            config,
            roster,
            urls,
            registry,
            settings,
            me,
            client,
            chosen.value,
            status=422,
            error=words,
        )
    await audit.record_change(me, "token.make", made.id, name=made.name)
    return await _render_connect_page(
        request,
        config,
        roster,
        urls,
        registry,
        settings,
        me,
        client,
        chosen.value,
        new_token=made,
        secret=text,
    )


async def _render_connect_page(
    request: Request,
    config: CurrentConfig,
    roster: AgentRoster,
    urls: PublicUrls,
    registry: Registry,
    settings: Settings,
    me: RequestUser,
    client: str,
    offer: str,
    *,
    status: int = 200,
    new_token: ApiToken | None = None,
    secret: str | None = None,
    error: str = "",
) -> Response:
    client, offers, mode = (
        _resolve_client(client),
        await _list_offers(config, roster, registry, me),
        settings.people_mode,
    )
    chosen = _find_offer(offers, offer)
    url = chosen.address(urls.base_url(request))
    # A local command acts as the local user, so it is only offered if sign-in is off.
    program = None
    if mode is PeopleMode.NONE and chosen.kind != "instance":
        program = build_snippet(
            client,
            ConnectionMethod((*build_program_words(config), "stdio", *chosen.words)),
        )
    here = _build_url_snippet(
        client, ConnectionMethod(url=url, needs_token=mode is not PeopleMode.NONE, token=secret)
    )
    here_too = shlex.join(build_program_words(config))
    page = ConnectPage(client, offers, chosen, url, here, program, mode, here_too, new_token, secret, error)
    return render_page(request, "connect.html", status=status, page=page)


def build_program_words(config: CurrentConfig) -> tuple[str, ...]:
    """Return the command that runs this Toolyard, with absolute paths, because it may be started in another
    folder and with another environment."""
    folder, file = os.path.abspath(config.data_dir), config.configuration.file
    options = () if file is None else ("--config", os.path.abspath(file))
    return (*find_program(), "--data-dir", folder, *options)


def _resolve_client(requested: str) -> str:
    return requested if requested in CLIENT_FORMATS else next(iter(CLIENT_FORMATS))


def _find_offer(offers: Sequence[GatewayOffer], value: str) -> GatewayOffer:
    return next((each for each in offers if each.value == value), offers[0])


def _build_url_snippet(client: str, method: ConnectionMethod) -> Snippet | None:
    try:
        return build_snippet(client, method)
    # The client's config file does not support URLs.
    except ValueError:
        return None


async def _list_offers(
    config: CurrentConfig, roster: AgentRoster, registry: Registry, me: RequestUser
) -> list[GatewayOffer]:
    """Return all scopes that have a gateway URL, beginning with everything."""
    configured, own = config.configuration, await registry.list_instances(me.user.id)
    agents = await roster.list_agents(me.user.id)
    return [
        GatewayOffer(),
        *(GatewayOffer("agent", each.id, f"Agent {each.name}") for each in agents),
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
