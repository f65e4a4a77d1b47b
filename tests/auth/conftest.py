from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from tests.conftest import ROOT, ProgramStarter
from tests.manual_clock import ManualClock
from yarl import URL

from toolyard.auth.oauth_provider import OAuthProvider
from toolyard.auth.sign_in_flow import AuthorizationResponse, SignInFlow
from toolyard.auth.sign_in_target import ClientIdentity, SignInTarget
from toolyard.auth.storage import MemoryAuthStorage
from toolyard.errors import ServerError
from toolyard.net import OutboundHttp
from toolyard.transports.http_requests import ServerHttpClient, read_body_excerpt, read_error_response
from toolyard.types.server import HttpSpec, OAuthSpec

REDIRECT = "http://127.0.0.1:4999/callback"


@dataclass
class OAuthFixture:
    """The program ``tests/oauth/authorization_server.py``, and one client of it."""

    url: str
    origins: Mapping[str, str]
    session: aiohttp.ClientSession
    net: OutboundHttp
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_000_000.0))
    storage: MemoryAuthStorage = field(default_factory=MemoryAuthStorage)
    providers: list[OAuthProvider] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)

    # The program.

    async def set(self, **settings: Any) -> None:
        """Reset the program and set this behaviour."""
        async with self.session.put(f"{self.url}/control", json=settings) as response:
            assert response.status == 200

    async def change(self, **settings: Any) -> None:
        """Change the behaviour from now on."""
        async with self.session.patch(f"{self.url}/control", json=settings) as response:
            assert response.status == 200

    async def forget(self, kind: str) -> None:
        async with self.session.post(f"{self.url}/forget?what={kind}") as response:
            assert response.status == 200

    async def run_out(self, seconds: float) -> None:
        """Advance the time so far that access tokens have expired, for us and for the server."""
        self.clock.now += seconds
        await self.forget("access")

    async def log(self, kind: str, client_id: str | None = None) -> list[dict[str, Any]]:
        async with self.session.get(f"{self.url}/log") as response:
            entries = await response.json()
        return [entry for entry in entries if entry["what"] == kind and client_id in (None, entry["who"])]

    # The client.

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"

    def target(self, private_addresses: bool | None = None, **oauth: Any) -> SignInTarget:
        key = oauth.pop("private_key", None)
        if key is not None or "client_secret" in oauth:
            oauth.setdefault("issuer", self.origins["as1"])
        return SignInTarget(self.mcp, OAuthSpec(**oauth), private_addresses, key)

    async def browse(self, url: str) -> AuthorizationResponse:
        """Act as a person who consents to everything."""
        self.urls.append(url)
        async with self.session.get(URL(url, encoded=True), allow_redirects=False) as response:
            assert response.status == 302, await response.text()
            return AuthorizationResponse.parse(response.headers["Location"])

    def ourselves(self, **more: Any) -> ClientIdentity:
        return ClientIdentity(**{"redirect_uri": REDIRECT, **more})

    def provider(
        self,
        target: SignInTarget | None = None,
        *,
        person: bool = True,
        identity: ClientIdentity | None = None,
        authorize: Callable[[str], Awaitable[AuthorizationResponse]] | None = None,
    ) -> OAuthProvider:
        oauth_provider = OAuthProvider(
            target or self.target(),
            net=self.net,
            storage=self.storage,
            client_identity=identity or self.ourselves(),
            authorize=authorize or (self.browse if person else None),
            clock=self.clock,
        )
        self.providers.append(oauth_provider)
        return oauth_provider

    def flow(self, **more: Any) -> SignInFlow:
        return SignInFlow(self.net, self.storage, self.ourselves(**more), clock=self.clock)

    async def call(self, provider: OAuthProvider) -> dict[str, Any]:
        """Make one request as connections do; return the response of the resource, or the error."""
        requests = ServerHttpClient(HttpSpec(self.mcp), self.net, provider)
        response = await requests.send("POST", requests.url, {}, b"{}")
        if response.status != 200:
            raise await read_error_response(response)
        return json.loads(await read_body_excerpt(response))

    async def failure(self, provider: OAuthProvider) -> ServerError:
        """Return the error with which a request ends."""
        with pytest.raises(ServerError) as exc_info:
            await self.call(provider)
        return exc_info.value


@pytest.fixture(scope="session")
def oauth_program() -> Iterator[str]:
    """The address of the program's resource; one program for all tests of a worker."""
    programs = ProgramStarter()
    yield programs(sys.executable, "-I", ROOT / "tests/oauth/authorization_server.py", "{port}").url
    programs.stop()


@pytest.fixture
async def oauth_fixture(oauth_program: str, no_proxies: None) -> AsyncIterator[OAuthFixture]:
    net = OutboundHttp()
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{oauth_program}/control") as response:
            origins = await response.json()
        oauth_fixture = OAuthFixture(oauth_program, origins, session, net)
        await oauth_fixture.set()
        yield oauth_fixture
        for provider in oauth_fixture.providers:
            await provider.close()
    await net.close()


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


@pytest.fixture
def query() -> Callable[[str], dict[str, str]]:
    """The query parameters of a URL."""
    return lambda url: dict(URL(url, encoded=True).query)
