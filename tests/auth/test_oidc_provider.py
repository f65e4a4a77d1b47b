"""Against a third-party authorization server: its registration, pages, consent and rotation."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from tests.oauth.scripted_user import agree

from toolyard.auth.oauth_provider import OAuthProvider
from toolyard.auth.sign_in_flow import AuthorizationResponse
from toolyard.auth.sign_in_target import ClientIdentity, SignInTarget
from toolyard.auth.storage import MemoryAuthStorage
from toolyard.net import OutboundHttp
from toolyard.transports.http_requests import ServerHttpClient, read_body_excerpt
from toolyard.types.server import HttpSpec, OAuthSpec

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter

ROOT = Path(__file__).parent.parent.parent
MODULES = ROOT / ".envs/node/node_modules"
RESOURCE = "/.well-known/oauth-protected-resource"


@dataclass
class ScopedResourceServer:
    """A server that accepts the tokens of one issuer, within their scopes."""

    needs: str = "read"
    issuer: str = ""
    url: str = ""
    tokens: set[str] = field(default_factory=set)

    async def answer(self, request: web.BaseRequest) -> web.Response:
        if request.path.startswith(RESOURCE):
            metadata = {"authorization_servers": [self.issuer], "scopes_supported": ["read"]}
            return web.json_response({"resource": self.url, **metadata})
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not token:
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        self.tokens.add(token)
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        assert (claims["aud"], claims["iss"]) == (self.url, self.issuer)
        if self.needs not in claims["scope"].split():
            challenge = f'Bearer error="insufficient_scope", scope="{self.needs}"'
            return web.Response(status=403, headers={"WWW-Authenticate": challenge})
        return web.json_response(claims)


@pytest.fixture
async def resource(start_program: ProgramStarter, no_proxies: None) -> AsyncIterator[ScopedResourceServer]:
    if not (MODULES / "oidc-provider").exists():
        pytest.skip("oidc-provider is not installed; make unit installs it")
    scoped_resource_server = ScopedResourceServer()
    runner = web.ServerRunner(web.Server(scoped_resource_server.answer), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    scoped_resource_server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    scoped_resource_server.issuer = start_program(
        "node", ROOT / "tests/oauth/oidc.mjs", "{port}", MODULES, scoped_resource_server.url
    ).url
    yield scoped_resource_server
    await runner.cleanup()


@pytest.fixture
async def net() -> AsyncIterator[OutboundHttp]:
    net = OutboundHttp()
    yield net
    await net.close()


async def person(url: str) -> AuthorizationResponse:
    """Complete the forms of the provider with consent."""
    return AuthorizationResponse.parse(str(await agree(url, lambda at: at.path.startswith("/callback"))))


async def call(resource: ScopedResourceServer, net: OutboundHttp, provider: OAuthProvider) -> dict[str, Any]:
    requests = ServerHttpClient(HttpSpec(resource.url), net, provider)
    response = await requests.send("POST", requests.url, {}, b"{}")
    assert response.status == 200
    return json.loads(await read_body_excerpt(response))


@pytest.mark.slow
@pytest.mark.parametrize("redirect", ["http://127.0.0.1:3999/callback", "http://localhost:3999/callback"])
async def test_a_person_signs_in_refreshes_and_steps_up(
    resource: ScopedResourceServer, net: OutboundHttp, redirect: str
) -> None:
    now, storage = [time.time()], MemoryAuthStorage()
    provider = OAuthProvider(
        SignInTarget(resource.url),
        net=net,
        storage=storage,
        client_identity=ClientIdentity(redirect),
        authorize=person,
        clock=lambda: now[0],
    )
    assert (await call(resource, net, provider))["scope"] == "read"
    for round_ in range(3):
        now[0] += 28
        await asyncio.gather(*(call(resource, net, provider) for _ in range(20)))
        assert len(resource.tokens) == 2 + round_
    now[0] = time.time()
    resource.needs = "write"
    assert (await call(resource, net, provider))["scope"] == "read write"
    grant = await storage.get_grant(resource.url)
    assert grant is not None
    assert grant.refresh_token
    await provider.close()


@pytest.mark.slow
async def test_a_program_signs_in_by_itself(resource: ScopedResourceServer, net: OutboundHttp) -> None:
    oauth = OAuthSpec(
        client_id="robot",
        client_secret="robot-secret",
        grant="client_credentials",
        issuer=resource.issuer,
    )
    provider = OAuthProvider(
        SignInTarget(resource.url, oauth),
        net=net,
        storage=MemoryAuthStorage(),
        client_identity=ClientIdentity("http://127.0.0.1:3999/callback"),
    )
    assert (await call(resource, net, provider))["sub"] == "robot"
    await provider.close()
