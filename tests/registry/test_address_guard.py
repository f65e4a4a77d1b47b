"""The guard is on for registry servers: at no hop of a sign-in or a call is a private address dialled.

The servers are real and speak TLS; names lead to public addresses by a resolver of the test, and sockets to
those addresses end on this machine. Whatever else would be dialled is noted and refused.
"""

from __future__ import annotations

import json
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import trustme
from aiohttp import web
from tests.fake_dns import FakeResolver
from yarl import URL

from toolyard.auth.errors import AddressNotAllowed
from toolyard.auth.sign_in_flow import AuthorizationResponse, SignInFlow
from toolyard.auth.sign_in_target import ClientIdentity
from toolyard.config.settings.table import Settings
from toolyard.core.composition import Core, build_core
from toolyard.errors import ServerError
from toolyard.net import AddressGuard, OutboundHttp, is_private
from toolyard.registry import ChoiceDraft, InstanceDraft, Registry, ServerDraft
from toolyard.registry.auth_provider_factory import AuthProviderFactory
from toolyard.registry.sign_in import InstanceSignIns
from toolyard.store import Database
from toolyard.types.account import Role, User
from toolyard.types.call import Caller, ToolCall
from toolyard.types.registry import Instance
from toolyard.types.server import Configuration

MCP, AUTH = "mcp.example.org", "auth.example.net"
PUBLIC = {MCP: "93.184.216.34", AUTH: "93.184.216.35"}
EVIL = "evil.example.com"
CALLBACK = "https://yard.example/ui/auth/mcp/callback"
RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"

PRIVATE = [
    "127.0.0.1",
    "10.0.0.5",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "::1",
    "fe80::1",
    "fd00:ec2::254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
]
LITERALS = [
    "169.254.169.254",
    "[fd00:ec2::254]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "127.0.0.1",
    "localhost",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
]


@dataclass
class Internet:
    """What is dialled, and where it really ends."""

    port: int = 0
    dialled: list[str] = field(default_factory=list)

    def socket(self, family: int, kind: int, proto: int) -> socket.socket:
        internet = self

        class RecordingSocket(socket.socket):
            def connect(self, address: Any) -> None:
                internet.dialled.append(str(address[0]))
                if address[0] not in PUBLIC.values():
                    raise ConnectionRefusedError(111, "refused")
                super().connect(("127.0.0.1", internet.port))

        return RecordingSocket(family, kind, proto)


@dataclass
class Servers:
    """A resource and its authorization server; ``say`` changes what they say."""

    say: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(f"{request.host}{request.path}")
        response = await self._answer(request)
        # Every request is a connection of its own, so that every one is judged.
        response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        for place, target in self.say.get("redirects", {}).items():
            if request.path.startswith(place):
                return web.Response(status=307, headers={"Location": target})
        if request.path == "/mcp":
            return await self._mcp(request)
        documents: dict[str, Callable[[], dict[str, Any]]] = {
            RESOURCE: lambda: {
                "resource": f"https://{MCP}/mcp",
                "authorization_servers": [self.say.get("issuer", f"https://{AUTH}")],
            },
            SERVER: lambda: {
                "issuer": f"https://{AUTH}",
                "authorization_endpoint": f"https://{AUTH}/authorize",
                "token_endpoint": f"https://{AUTH}/token",
                "registration_endpoint": f"https://{AUTH}/register",
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
                **self.say.get("metadata", {}),
            },
            "/register": lambda: {"client_id": secrets.token_hex(4), "token_endpoint_auth_method": "none"},
            "/token": lambda: {
                "access_token": "token",
                "token_type": "Bearer",
                "refresh_token": secrets.token_hex(4),
                "expires_in": self.say.get("life", 3600),
            },
        }
        for place, document in documents.items():
            if request.path.startswith(place):
                return web.json_response(document())
        return web.Response(status=404)

    async def _mcp(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Authorization") != self.say.get("accepts", "Bearer token"):
            metadata_url = self.say.get("resource_metadata", f"https://{MCP}{RESOURCE}/mcp")
            return web.Response(
                status=401, headers={"WWW-Authenticate": f'Bearer resource_metadata="{metadata_url}"'}
            )
        if request.method != "POST":
            return web.Response(status=405)
        message = json.loads(await request.read())
        if "id" not in message:
            return web.Response(status=202)
        info = {"name": "x", "version": "1"}
        results: dict[str, dict[str, Any]] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            },
            "tools/list": {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "hello"}]},
        }
        message_result = results.get(message["method"])
        answer = (
            {"result": message_result} if message_result else {"error": {"code": -32601, "message": "no"}}
        )
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], **answer})


@dataclass
class RegistryWithInstance:
    """A registry with one instance of a server out there."""

    servers: Servers
    names: FakeResolver
    internet: Internet
    registry: Registry
    sign_ins: InstanceSignIns
    core: Core
    user: User
    instance: Instance

    async def sign_in(self) -> None:
        url = URL(await self.sign_ins.begin(self.user.id, self.instance.id, "b"))
        params = {"state": url.query["state"], "code": "c"}
        response = AuthorizationResponse(url.query["redirect_uri"], params)
        pending = await self.sign_ins.take_pending(response.params, self.user.id, "b")
        await self.sign_ins.complete(pending, response, self.user.id)

    async def call(self) -> str:
        pair = await self.registry.get_instance(self.user.id, self.instance.id)
        await self.core.updates.sync_instances(self.user.id, [self.registry.build_instance_server(*pair)])
        name = f"mcp_{self.instance.slug}__hello"
        return (await self.core.call_path.call(ToolCall(name), Caller(self.user.principal))).text

    async def trouble(self) -> ServerError | None:
        """How signing in, or else the call that follows, fails."""
        try:
            await self.sign_in()
            await self.call()
        except ServerError as error:
            return error
        return None

    def never_private(self) -> bool:
        """Whether everything that was dialled was public; nothing else was even tried."""
        return set(self.internet.dialled) <= set(PUBLIC.values())


@pytest.fixture
def database_url() -> None:
    """SQLite is enough here."""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def net(authority: trustme.CA) -> AsyncIterator[tuple[OutboundHttp, Internet, FakeResolver]]:
    internet, names = Internet(), FakeResolver(PUBLIC)
    net = OutboundHttp(AddressGuard(socket_factory=internet.socket), resolver=names)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    net.set_tls_context(context)
    yield net, internet, names
    await net.close()


@pytest.fixture
async def yard(
    database: Database, authority: trustme.CA, net: tuple[OutboundHttp, Internet, FakeResolver]
) -> AsyncIterator[RegistryWithInstance]:
    servers, (created_servers, internet, names) = Servers(), net
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(MCP, AUTH, EVIL).configure_cert(context)
    runner = web.ServerRunner(web.Server(servers.answer), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    internet.port = runner.addresses[0][1]
    registry = Registry(database.registry, Settings())
    user = await database.accounts.add_user("ann", Role.USER)
    server = await registry.add_server(
        ServerDraft("x", f"https://{MCP}/mcp", choices=(ChoiceDraft("oauth"),))
    )
    core = build_core(
        Configuration(),
        Settings(),
        data_dir=None,
        auth_provider_for=AuthProviderFactory(registry, database.auth, created_servers).auth_provider_for,
        net=created_servers,
    )
    flow = SignInFlow(created_servers, database.auth, ClientIdentity(CALLBACK))
    yield RegistryWithInstance(
        servers,
        names,
        internet,
        registry,
        InstanceSignIns(flow, registry, database.auth),
        core,
        user,
        await registry.create_instance(user.id, InstanceDraft(server.id)),
    )
    await core.close()
    await runner.cleanup()


async def test_public_addresses_are_dialled_and_everything_works(yard: RegistryWithInstance) -> None:
    await yard.sign_in()
    assert await yard.call() == "hello"
    assert set(yard.internet.dialled) == set(PUBLIC.values())
    paths = {place.partition("/")[2] for place in yard.servers.asked}
    assert {"mcp", "register", "token"} <= paths


def at(hop: str, host: str) -> dict[str, Any]:
    """What the servers say, so that one hop leads to a host."""
    url = f"https://{host}"
    return {
        "resource metadata": {"resource_metadata": f"{url}{RESOURCE}"},
        "authorization server": {"issuer": url},
        "registration": {"metadata": {"registration_endpoint": f"{url}/register"}},
        "token": {"metadata": {"token_endpoint": f"{url}/token"}},
        "redirect of the resource": {"redirects": {"/mcp": f"{url}/mcp"}},
        "redirect of the resource metadata": {"redirects": {RESOURCE: f"{url}{RESOURCE}"}},
        "redirect of the server metadata": {"redirects": {SERVER: f"{url}{SERVER}"}},
        "redirect of the registration": {"redirects": {"/register": f"{url}/register"}},
        "redirect of the token": {"redirects": {"/token": f"{url}/token"}},
    }[hop]


HOPS = [
    "resource metadata",
    "authorization server",
    "registration",
    "token",
    "redirect of the resource",
    "redirect of the resource metadata",
    "redirect of the server metadata",
    "redirect of the registration",
    "redirect of the token",
]
FALLS_BACK = {"resource metadata", "redirect of the resource metadata"}
"""Another well-known place is asked then, and may answer."""


@pytest.mark.parametrize("hop", HOPS)
async def test_no_hop_leads_to_a_private_address_by_name(yard: RegistryWithInstance, hop: str) -> None:
    for address in PRIVATE:
        assert is_private(address)
        yard.names.table[EVIL] = [address]
        yard.servers.say = at(hop, EVIL)
        assert await yard.trouble() is not None or hop in FALLS_BACK, address
        assert yard.never_private(), address


@pytest.mark.parametrize("hop", HOPS)
async def test_no_hop_leads_to_a_private_address_written_out(yard: RegistryWithInstance, hop: str) -> None:
    for host in LITERALS:
        yard.servers.say = at(hop, host)
        assert await yard.trouble() is not None or hop in FALLS_BACK, host
        assert yard.never_private(), host


async def test_a_server_at_a_private_address_is_not_dialled(yard: RegistryWithInstance) -> None:
    for address in PRIVATE:
        yard.names.table[MCP] = [address]
        assert "private" in str(await yard.trouble()), address
        with pytest.raises(ServerError, match="private"):
            await yard.call()
    assert yard.internet.dialled == []


async def test_sign_in_at_a_private_address_is_refused(yard: RegistryWithInstance) -> None:
    for host in LITERALS:
        yard.servers.say = {"metadata": {"authorization_endpoint": f"https://{host}/authorize"}}
        with pytest.raises(AddressNotAllowed):
            await yard.sign_ins.begin(yard.user.id, yard.instance.id, "b")
    assert yard.never_private()


@pytest.mark.parametrize("after", range(1, 6))
@pytest.mark.parametrize("name", [MCP, AUTH])
async def test_a_name_that_turns_private_is_not_dialled_any_more(
    yard: RegistryWithInstance, name: str, after: int
) -> None:
    """Rebinding: the first lookups are honest. Whichever request comes next, its socket is judged anew."""
    for address in ("127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1"):
        yard.names.table[name] = [*[PUBLIC[name]] * after, address]
        yard.internet.dialled.clear()
        if await yard.trouble() is None:
            await yard.trouble()
        assert yard.never_private()
        assert yard.internet.dialled.count(PUBLIC[name]) <= after


async def test_a_refresh_is_judged_too(yard: RegistryWithInstance) -> None:
    yard.servers.say = {"life": 0, "accepts": "Bearer another"}
    for address in PRIVATE:
        yard.names.table[AUTH] = [PUBLIC[AUTH]]
        await yard.sign_in()
        yard.names.table[AUTH] = [address]
        before = len(yard.internet.dialled)
        # The token is too old for us, and for the server.
        with pytest.raises(ServerError):
            await yard.call()
        assert yard.never_private(), address
        assert PUBLIC[AUTH] not in yard.internet.dialled[before:]
