"""``/ui/connect``: configuration for other MCP clients that use the gateway, and a token for them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Request, Response

from toolyard.accounts.errors import Invalid
from toolyard.config.settings.table import PeopleMode
from toolyard.core.current_config import CurrentConfig
from toolyard.gateway import client_snippets as snippets
from toolyard.types.account import ApiToken, Right, TokenScope
from toolyard.web import service_dependencies as deps
from toolyard.web.routes import Routes
from toolyard.web.ui.components import forms, responses

__all__ = ["build_program_words", "router"]

router = Routes()


@dataclass(frozen=True, slots=True)
class GatewayOffer:
    """Scope of a gateway URL: one agent, bundle, server or instance, or everything if ``kind`` is empty."""

    kind: str = ""
    name: str = ""
    label: str = "Everything I can use"

    @property
    def value(self) -> str:
        """Value in the form."""
        return f"{self.kind}/{self.name}" if self.kind else ""

    def address(self, base: str) -> str:
        """Return the gateway URL of this scope."""
        return snippets.gateway_url(base, **({self.kind: self.name} if self.kind else {}))

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
class _ConnectPages:
    """The page, with what its snippets are built from."""

    request: Request
    me: deps.BrowserUser
    config: deps.ConfigDep
    roster: deps.AgentRosterDep
    urls: deps.UrlsDep
    registry: deps.RegistryDep
    settings: deps.SettingsDep

    async def render(
        self,
        client: str,
        offers: Sequence[GatewayOffer],
        offer: GatewayOffer,
        *,
        new_token: ApiToken | None = None,
        secret: str | None = None,
        error: str = "",
    ) -> Response:
        """Render the snippets of one client, with a token that was just created and its secret."""
        mode, program = self.settings.people_mode, build_program_words(self.config)
        url, needs_token = offer.address(self.urls.base_url(self.request)), mode is not PeopleMode.NONE
        method = snippets.ConnectionMethod(url=url, needs_token=needs_token, token=secret)
        local: snippets.Snippet | None = None
        # A local command acts as the local user, so it is only offered if sign-in is off.
        if not needs_token and offer.kind != "instance":
            words = (*program, "stdio", *offer.words)
            local = snippets.build_snippet(client, snippets.ConnectionMethod(words))
        chosen = {"offer": offer.value} if offer.kind else {}
        return responses.render_page(
            self.request,
            "connect.html",
            status=422 if error else 200,
            client=client,
            title=snippets.CLIENT_FORMATS[client].title,
            tabs=[
                (f"/ui/connect?{urlencode({'client': name, **chosen})}", known.title, name == client)
                for name, known in snippets.CLIENT_FORMATS.items()
            ],
            offers=offers,
            offer=offer,
            address=url,
            with_url=_build_url_snippet(client, method),
            with_command=local,
            mode=mode,
            needs_token=needs_token,
            this_program=shlex.join(program),
            made=new_token,
            secret=secret,
            error=error,
        )

    async def list_offers(self) -> list[GatewayOffer]:
        """Return all scopes that have a gateway URL, beginning with everything."""
        configured, user_id = self.config.configuration, self.me.user.id
        agents = await self.roster.list_agents(user_id)
        instances = await self.registry.list_instances(user_id)
        bundles, servers = configured.bundles.values(), configured.servers.values()
        return [
            GatewayOffer(),
            *(GatewayOffer("agent", each.id, f"Agent {each.name}") for each in agents),
            *(GatewayOffer("bundle", each.id, f"Bundle {each.label or each.id}") for each in bundles),
            *(GatewayOffer("server", each.id, f"Server {each.label or each.id}") for each in servers),
            *(GatewayOffer("instance", each.slug, f"My instance {each.name}") for each, _ in instances),
        ]


_ConnectPagesDep = Annotated[_ConnectPages, Depends()]


@router.get("/ui/connect")
async def show_snippets(pages: _ConnectPagesDep, client: str = "", offer: str = "") -> Response:
    """Show the snippets of one client."""
    offers = await pages.list_offers()
    return await pages.render(_resolve_client(client), offers, _find_offer(offers, offer))


@router.post("/ui/connect")
async def make_token(
    me: deps.BrowserUser,
    form: forms.FormDep,
    pages: _ConnectPagesDep,
    audit: deps.AuditDep,
    people: deps.PeopleDep,
) -> Response:
    """Create a token for this client and include it in the snippets. It is shown only in this response."""
    offers = await pages.list_offers()
    client, offer = _resolve_client(form.text("client")), _find_offer(offers, form.text("offer"))
    name = snippets.CLIENT_FORMATS[client].title
    try:
        token, secret = await people.create_token(me.user, name, offer.scope, people.token_lifetime)
    except Invalid as error:
        message = "; ".join(problem.message for problem in error.problems)
        return await pages.render(client, offers, offer, error=message)
    await audit.record_change(me, "token.make", token.id, name=token.name)
    return await pages.render(client, offers, offer, new_token=token, secret=secret)


def build_program_words(config: CurrentConfig) -> tuple[str, ...]:
    """Return the command that runs this Toolyard, with absolute paths, because it may be started in another
    folder and with another environment."""
    folder, file = os.path.abspath(config.data_dir), config.configuration.file
    options = () if file is None else ("--config", os.path.abspath(file))
    return (*snippets.find_program(), "--data-dir", folder, *options)


def _resolve_client(requested: str) -> str:
    return requested if requested in snippets.CLIENT_FORMATS else next(iter(snippets.CLIENT_FORMATS))


def _find_offer(offers: Sequence[GatewayOffer], value: str) -> GatewayOffer:
    return next((each for each in offers if each.value == value), offers[0])


def _build_url_snippet(client: str, method: snippets.ConnectionMethod) -> snippets.Snippet | None:
    try:
        return snippets.build_snippet(client, method)
    # The client's config file does not support URLs.
    except ValueError:
        return None
