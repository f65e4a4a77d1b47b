"""A registry over a real database, and the program ``tests/oauth/authorization_server.py`` to sign in to."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.conftest import ProgramStarter
from tests.manual_clock import ManualClock
from yarl import URL

from toolyard.auth.sign_in_flow import AuthorizationResponse, SignInFlow
from toolyard.auth.sign_in_target import ClientIdentity
from toolyard.config.settings.table import Settings
from toolyard.net import OutboundHttp
from toolyard.registry import ChoiceDraft, InstanceDraft, Registry, ServerDraft
from toolyard.registry.auth_provider_factory import AuthProviderFactory
from toolyard.registry.sign_in import InstanceSignIns
from toolyard.store import Database
from toolyard.types.account import Principal, Role, User
from toolyard.types.registry import Instance, InstanceState
from toolyard.types.server import Server

ROOT = Path(__file__).parent.parent.parent
BASE = "https://yard.example"
CALLBACK = f"{BASE}/ui/auth/mcp/callback"
OAUTH = ChoiceDraft("oauth")


@dataclass
class OAuthProgram:
    """``tests/oauth/authorization_server.py``, told how to behave."""

    url: str
    session: aiohttp.ClientSession
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"

    async def set(self, **settings: Any) -> None:
        """Forget everything and behave like this."""
        async with self.session.put(f"{self.url}/control", json=settings) as response:
            assert response.status == 200

    async def change(self, **settings: Any) -> None:
        """Behave like this from now on."""
        async with self.session.patch(f"{self.url}/control", json=settings) as response:
            assert response.status == 200

    async def forget(self, kind: str) -> None:
        async with self.session.post(f"{self.url}/forget?what={kind}") as response:
            assert response.status == 200

    async def log(self, kind: str) -> list[dict[str, Any]]:
        async with self.session.get(f"{self.url}/log") as response:
            return [entry for entry in await response.json() if entry["what"] == kind]

    async def refreshes(self) -> list[str]:
        """The refresh tokens that were used, in their order."""
        entries = await self.log("token")
        return [each["refresh_token"] for each in entries if each["grant_type"] == "refresh_token"]

    async def agree(self, url: str) -> AuthorizationResponse:
        """A person who agrees to everything; what they come back with."""
        async with self.session.get(URL(url, encoded=True), allow_redirects=False) as response:
            assert response.status == 302, await response.text()
            return AuthorizationResponse.parse(response.headers["Location"])


@dataclass
class RegistryFixture:
    """A registry, two users, and everything that signing in needs."""

    database: Database
    program: OAuthProgram
    net: OutboundHttp
    registry: Registry
    clock: ManualClock
    ann: User
    bob: User
    sign_ins: InstanceSignIns
    credentials: AuthProviderFactory

    async def instance(self, choice: ChoiceDraft = OAUTH, **draft: Any) -> Instance:
        """An instance of Ann's of a new server at the program."""
        name = f"Server {len(await self.registry.list_servers())}"
        server = await self.registry.add_server(
            ServerDraft(name, self.program.mcp, private_addresses=True, choices=(choice,))
        )
        return await self.registry.create_instance(self.ann.id, InstanceDraft(server.id, **draft))

    async def sign_in(self, instance: Instance, browser: str = "b") -> Instance:
        url = await self.sign_ins.begin(self.ann.id, instance.id, browser)
        return await self.finish(await self.program.agree(url), browser=browser)

    async def finish(
        self, response: AuthorizationResponse, user_id: str | None = None, browser: str = "b"
    ) -> Instance:
        """The browser comes back, by default Ann's."""
        user_id = user_id or self.ann.id
        pending = await self.sign_ins.take_pending(response.params, user_id, browser)
        return await self.sign_ins.complete(pending, response, user_id)

    async def run_out(self, seconds: float) -> None:
        """So much time passes that access tokens have run out, for us and for the server."""
        self.clock.now += seconds
        await self.program.forget("access")

    async def state(self, instance: Instance) -> tuple[InstanceState, str | None]:
        stored_instance, _ = await self.registry.get_instance(self.ann.id, instance.id)
        return stored_instance.state, stored_instance.reason

    async def server(self, instance: Instance) -> Server:
        """As the core knows it now."""
        return self.registry.build_instance_server(
            *await self.registry.get_instance(self.ann.id, instance.id)
        )

    @property
    def principal(self) -> Principal:
        return self.ann.principal


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


@pytest.fixture(scope="module")
def oauth_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """One program for all tests of a file."""
    programs = ProgramStarter()
    yield programs(sys.executable, "-I", ROOT / "tests/oauth/authorization_server.py", "{port}").url
    programs.stop()


@pytest.fixture
async def program(oauth_url: str, no_proxies: None) -> AsyncIterator[OAuthProgram]:
    async with aiohttp.ClientSession() as session:
        oauth_program = OAuthProgram(oauth_url, session)
        async with session.get(f"{oauth_url}/control") as response:
            oauth_program.origins = await response.json()
        await oauth_program.set()
        yield oauth_program


@pytest.fixture
def ourselves() -> ClientIdentity:
    return ClientIdentity(CALLBACK, document_url=f"{BASE}/oauth/client.json")


@pytest.fixture
async def registry_fixture(
    database: Database, program: OAuthProgram, ourselves: ClientIdentity
) -> AsyncIterator[RegistryFixture]:
    net, clock = OutboundHttp(), ManualClock(1_000_000.0)
    registry = Registry(database.registry, Settings(), clock=clock)
    flow = SignInFlow(net, database.auth, ourselves, clock=clock)
    yield RegistryFixture(
        database,
        program,
        net,
        registry,
        clock,
        await database.accounts.add_user("ann", Role.ADMIN),
        await database.accounts.add_user("bob", Role.USER),
        InstanceSignIns(flow, registry, database.auth),
        AuthProviderFactory(registry, database.auth, net, clock=clock),
    )
    await net.close()
