"""Many principals in one manager: ownership of connections, and their end after a change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.tool_calls import call_tool
from yarl import URL

from toolyard.auth.errors import NeverSignedIn, SignInEnded
from toolyard.auth.provider import Challenge
from toolyard.clients import ConnectionManager
from toolyard.clients.connector import ConnectionManagerLimits
from toolyard.errors import ServerError, Unreachable
from toolyard.net import OutboundHttp
from toolyard.net.http1.pool import OriginPool
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.server import HttpSpec, InstanceRef, Provenance, Server, State, StdioSpec

if TYPE_CHECKING:
    from tests.clients.conftest import Accounts

Until = Callable[..., Awaitable[None]]

ANN = Principal("ann")
BOB = Principal("bob")


def text_of(result: Mapping[str, Any]) -> str:
    return result["content"][0]["text"]


async def call_whoami(manager: ConnectionManager, server_id: str, principal: Principal) -> str:
    return text_of(await call_tool(manager, server_id, "whoami", principal=principal))


async def use(manager: ConnectionManager, server_id: str, principals: Iterable[Principal]) -> None:
    await asyncio.gather(*(call_tool(manager, server_id, "whoami", principal=each) for each in principals))


# Ownership of connections.


async def test_a_server_has_a_connection_for_each_principal(accounts: Accounts) -> None:
    async with ConnectionManager([accounts.server("one")]) as manager:
        await use(manager, "one", [LOCAL_PRINCIPAL, ANN, BOB, ANN])
        assert len(accounts.opened("common")) == 3
        assert {status.principal for status in manager.statuses()} == {"local", "ann", "bob"}
    assert accounts.sessions == {}


async def test_a_shared_server_has_one_connection_for_all(accounts: Accounts) -> None:
    async with ConnectionManager([accounts.server("one", shared=True)]) as manager:
        await use(manager, "one", [ANN, BOB])
        await use(manager, "one", [LOCAL_PRINCIPAL])
        assert len(accounts.opened("common")) == 1
        assert [status.principal for status in manager.statuses()] == ["local"]
        assert [status.state for status in manager.statuses(ANN)] == [State.READY]
        assert manager.state("one", BOB) is State.READY


async def test_two_instances_of_the_same_slug_have_their_own_credentials(accounts: Accounts) -> None:
    async with ConnectionManager([accounts.instance("ann"), accounts.instance("bob")]) as manager:
        assert await call_whoami(manager, "@ann/desk", ANN) == "ann whoami"
        assert await call_whoami(manager, "@bob/desk", BOB) == "bob whoami"
        assert set(accounts.methods) == {"ann", "bob"}


@pytest.mark.parametrize("principal", [LOCAL_PRINCIPAL, BOB])
async def test_for_others_an_instance_is_a_server_that_does_not_exist(
    accounts: Accounts, principal: Principal
) -> None:
    async with ConnectionManager([accounts.server("one"), accounts.instance("ann")]) as manager:
        await call_whoami(manager, "@ann/desk", ANN)
        for use_it in (
            lambda id: call_tool(manager, id, "whoami", principal=principal),
            lambda id: manager.ensure_connected(id, principal=principal),
            lambda id: manager.list_tools(id, principal=principal),
            lambda id: manager.restart(id, principal),
            lambda id: asyncio.to_thread(manager.status, id, principal=principal),
        ):
            with pytest.raises(Unreachable) as foreign:
                await use_it("@ann/desk")
            with pytest.raises(Unreachable) as unknown:
                await use_it("@ann/nope")
            assert str(foreign.value) == str(unknown.value).replace("nope", "desk")
        assert manager.state("@ann/desk", principal) is manager.state("@ann/nope", principal)
        assert manager.find("@ann/desk", principal) is None
        assert [status.server for status in manager.statuses(principal)] == ["one"]
        assert [status.server for status in await manager.connect(principal=principal)] == ["one"]
        assert await manager.connect(["@ann/desk"], principal=principal) == []
        assert list(manager.visible_servers(principal)) == ["one"]
        assert manager.state("@ann/desk", ANN) is State.READY


async def test_statuses_of_a_principal_are_those_of_their_own_connections(accounts: Accounts) -> None:
    off = accounts.server("off", enabled=False, disabled_reason="a variable is missing")
    servers = [accounts.server("one"), off, accounts.instance("ann"), accounts.instance("bob")]
    async with ConnectionManager(servers) as manager:
        await use(manager, "one", [BOB])
        await call_whoami(manager, "@bob/desk", BOB)
        status_by_server = {status.server: status for status in manager.statuses(ANN)}
        assert {id: status.state for id, status in status_by_server.items()} == {
            "@ann/desk": State.IDLE,
            "off": State.DISABLED,
            "one": State.IDLE,
        }
        assert {status.principal for status in status_by_server.values()} == {"ann"}
        assert (status_by_server["off"].cause, status_by_server["off"].reason) == (
            "a variable is missing",
            "disabled",
        )
        assert len(manager.statuses(ANN)) == 3
        everyone = [(status.server, status.principal) for status in manager.statuses()]
        assert everyone == [("@bob/desk", "bob"), ("off", "local"), ("one", "bob")]


@pytest.mark.parametrize(("id", "slug"), [("@ann/desk", "door"), ("desk", "desk"), ("@bob/desk", "desk")])
def test_an_instance_has_the_id_of_its_owner_and_slug(id: str, slug: str) -> None:
    with pytest.raises(ValueError, match="the id of this instance must be '@ann/"):
        Server(id, HttpSpec("http://a/"), instance=InstanceRef("ann", slug))


@pytest.mark.parametrize("slug", ["", "a/b"])
def test_a_slug_cannot_make_two_ids_the_same(slug: str) -> None:
    with pytest.raises(ValueError, match="slug"):
        InstanceRef("ann", slug)


# Changes.


async def test_sync_closes_only_changed_connections_of_the_owner(accounts: Accounts) -> None:
    ann = [accounts.instance("ann", slug) for slug in ("same", "other", "gone")]
    bob = accounts.instance("bob", "same")
    async with ConnectionManager([accounts.server("one"), *ann, bob]) as manager:
        await use(manager, "one", [ANN, BOB])
        for server in ann:
            await call_whoami(manager, server.id, ANN)
        await call_whoami(manager, bob.id, BOB)
        before = dict(accounts.sessions)
        assert len(before) == 6

        changed_server = replace(ann[1], transport=HttpSpec(accounts.url, {"X-Key": accounts.key("ann2")}))
        changed_count = await manager.sync_instances(
            "ann", [replace(ann[0]), changed_server, accounts.instance("ann", "new")]
        )

        assert changed_count == {"@ann/other", "@ann/gone", "@ann/new"}
        assert manager.servers["@ann/same"] is ann[0]
        assert len(accounts.opened("ann")) == 1
        assert accounts.opened("bob") == [id for id, name in before.items() if name == "bob"]
        assert len(accounts.opened("common")) == 2
        assert await call_whoami(manager, "@ann/other", ANN) == "ann2 whoami"
        assert await call_whoami(manager, "@ann/new", ANN) == "ann whoami"
        with pytest.raises(Unreachable, match="not configured"):
            await call_whoami(manager, "@ann/gone", ANN)
        assert set(manager.visible_servers(ANN)) == {"one", "@ann/same", "@ann/other", "@ann/new"}
        assert await manager.sync_instances(
            "ann", [manager.servers[id] for id in manager.visible_servers(ANN) if id != "one"]
        ) == (set())
        assert await manager.sync_instances("ann", []) == {"@ann/same", "@ann/other", "@ann/new"}
        assert set(manager.servers) == {"one", "@bob/same"}
        assert accounts.opened("ann") == accounts.opened("ann2") == []


async def test_sync_takes_instances_of_that_owner_only(accounts: Accounts) -> None:
    async with ConnectionManager([accounts.server("one")]) as manager:
        for server in (accounts.instance("bob"), accounts.server("two")):
            with pytest.raises(ValueError, match="does not belong to 'ann'"):
                await manager.sync_instances("ann", [accounts.instance("ann"), server])
        assert set(manager.servers) == {"one"}


async def test_an_update_leaves_instances_alone_and_closes_only_affected_connections(
    accounts: Accounts,
) -> None:
    one, two = accounts.server("one"), accounts.server("two")
    three, four = accounts.server("three"), accounts.server("four")
    async with ConnectionManager([one, two, three, four, accounts.instance("ann")]) as manager:
        await call_whoami(manager, "@ann/desk", ANN)
        for server_id in ("one", "two", "three", "four"):
            await use(manager, server_id, [LOCAL_PRINCIPAL, ANN])
        changed_count = await manager.update(
            [
                replace(one, provenance=Provenance("file", "mcp.json", 7)),
                replace(two, deny_tools=("x",), label="Two"),
                replace(three, transport=HttpSpec(accounts.url, {"X-Key": accounts.key("three")})),
            ]
        )
        assert changed_count == {"two", "three", "four"}
        assert manager.servers["one"].provenance.line == 7
        assert len(accounts.opened("common")) == 4
        assert len(accounts.opened("ann")) == 1
        assert manager.connection("two", ANN).server.label == "Two"
        assert await call_whoami(manager, "three", ANN) == "three whoami"
        with pytest.raises(ValueError, match="sync"):
            await manager.update([accounts.instance("ann")])


async def test_another_tool_filter_leaves_the_connection_open(accounts: Accounts) -> None:
    server = accounts.instance("ann")
    async with ConnectionManager([server]) as manager:
        await call_whoami(manager, server.id, ANN)
        assert server.instance is not None
        filtered_server = replace(server, instance=replace(server.instance, tool_filter=("whoami",)))
        assert await manager.sync_instances("ann", [filtered_server]) == {server.id}
        assert await call_whoami(manager, server.id, ANN) == "ann whoami"
        assert accounts.count("ann", "initialize") == 1


async def test_one_principal_leaves_and_the_others_stay(accounts: Accounts) -> None:
    servers = [accounts.server("one"), accounts.server("all", shared=True), accounts.instance("ann")]
    async with ConnectionManager(servers, limits=ConnectionManagerLimits(idle_seconds=0.2)) as manager:
        await use(manager, "one", [LOCAL_PRINCIPAL, ANN, BOB])
        await use(manager, "all", [ANN])
        await call_whoami(manager, "@ann/desk", ANN)
        await manager.close_principal("ann")
        assert accounts.opened("ann") == []
        assert len(accounts.opened("common")) == 3
        assert {status.principal for status in manager.statuses()} == {"local", "bob"}
        assert await call_whoami(manager, "@ann/desk", ANN) == "ann whoami"


async def test_a_restart_may_be_for_one_principal_alone(accounts: Accounts) -> None:
    async with ConnectionManager([accounts.server("one")]) as manager:
        await use(manager, "one", [ANN, BOB])
        await manager.restart("one", ANN)
        assert (manager.state("one", ANN), manager.state("one", BOB)) == (State.IDLE, State.READY)
        await manager.restart("one")
        assert accounts.sessions == {}


# Limited lifetime.


async def test_unused_connections_of_others_are_closed(accounts: Accounts, wait_until: Until) -> None:
    servers = [accounts.server("one"), accounts.server("long", stop_when_idle=60), accounts.instance("ann")]
    async with ConnectionManager(servers, limits=ConnectionManagerLimits(idle_seconds=0.2)) as manager:
        await use(manager, "one", [LOCAL_PRINCIPAL, ANN, BOB])
        await use(manager, "long", [ANN])
        await call_whoami(manager, "@ann/desk", ANN)
        await wait_until(lambda: len(accounts.sessions) == 3)
        assert manager.state("one", LOCAL_PRINCIPAL) is State.READY
        assert manager.state("long", ANN) is State.READY
        assert manager.state("@ann/desk", ANN) is State.READY
        assert manager.state("one", ANN) is manager.state("one", BOB) is State.IDLE
        assert await call_whoami(manager, "one", ANN) == "common whoami"


async def test_a_connection_that_is_used_again_and_again_stays(accounts: Accounts) -> None:
    late = 0
    limits = ConnectionManagerLimits(idle_seconds=0.4)
    async with ConnectionManager([accounts.server("one")], limits=limits) as manager:
        for _ in range(12):
            await use(manager, "one", [ANN])
            start = time.monotonic()
            await asyncio.sleep(0.1)
            # On a machine that was busy meanwhile, it was idle for too long.
            late += time.monotonic() - start > 0.3
        assert accounts.count("common", "initialize") <= 1 + late


async def test_idle_connections_make_room_for_others(accounts: Accounts, wait_until: Until) -> None:
    limits = ConnectionManagerLimits(connections=8)
    keys = KeyPerPrincipal(accounts)
    open_server = Server("one", HttpSpec(accounts.url))
    async with ConnectionManager([open_server], auth_provider_for=keys, limits=limits) as manager:
        await use(manager, "one", [LOCAL_PRINCIPAL, ANN])
        for number in range(40):
            principal = Principal(f"p{number}")
            await use(manager, "one", [principal])
            await manager.restart("one", principal)
        principals = {status.principal for status in manager.statuses()}
        assert len(principals) <= 8
        assert {"local", "ann", "p39"} <= principals
        assert manager.state("one", ANN) is State.READY
        await wait_until(lambda: keys.open() == ["ann", "local"])
        assert await call_whoami(manager, "one", Principal("p0")) == "p0 whoami"
    assert keys.open() == []


# Credentials.


class Key:
    """An auth provider with one key, which records that it was closed."""

    def __init__(self, name: str, key: str) -> None:
        self.name, self.key, self.closed = name, key, 0

    async def headers(self) -> Mapping[str, str]:
        return {"X-Key": self.key}

    async def challenged(self, challenge: Challenge) -> bool:
        return False

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


class KeyPerPrincipal:
    """``auth_for``: a key of its own for each principal."""

    def __init__(self, accounts: Any) -> None:
        self.accounts = accounts
        self.asked: list[tuple[str, str]] = []
        self.given: list[Key] = []

    def __call__(self, server: Server, principal: Principal) -> Key:
        self.asked.append((server.id, principal.id))
        self.given.append(Key(principal.id, self.accounts.key(principal.id)))
        return self.given[-1]

    def open(self) -> list[str]:
        assert all(key.closed <= 1 for key in self.given)
        return sorted(key.name for key in self.given if not key.closed)


async def test_each_principal_is_asked_for_once_and_closed_with_the_connection(accounts: Accounts) -> None:
    keys = KeyPerPrincipal(accounts)
    instance = replace(accounts.instance("ann"), transport=HttpSpec(accounts.url))
    servers = [Server("one", HttpSpec(accounts.url)), Server("all", HttpSpec(accounts.url), shared=True)]
    async with ConnectionManager([*servers, instance], auth_provider_for=keys) as manager:
        assert await call_whoami(manager, "one", ANN) == "ann whoami"
        assert await call_whoami(manager, "one", BOB) == "bob whoami"
        assert await call_whoami(manager, "all", BOB) == "local whoami"
        assert await call_whoami(manager, "@ann/desk", ANN) == "ann whoami"
        assert keys.asked == [("one", "ann"), ("one", "bob"), ("all", "local"), ("@ann/desk", "ann")]
        accounts.sessions.clear()
        assert await call_whoami(manager, "one", ANN) == "ann whoami"
        assert accounts.count("ann", "initialize") == 3
        assert len(keys.asked) == 4
        await manager.restart("one", ANN)
        assert keys.open() == ["ann", "bob", "local"]
        assert await call_whoami(manager, "one", ANN) == "ann whoami"
        assert keys.asked[4:] == [("one", "ann")]
        await manager.sync_instances("ann", [])
        assert keys.open() == ["ann", "bob", "local"]
        await manager.close_principal("bob")
        assert keys.open() == ["ann", "local"]
    assert keys.open() == []


async def test_servers_with_a_provider_or_without_a_url_ask_for_no_key(
    accounts: Accounts, hostile_stdio: str, good: Server
) -> None:
    keys = KeyPerPrincipal(accounts)
    key = Key("named", accounts.key("named"))
    server = Server("one", HttpSpec(accounts.url, auth_provider_id="named"))
    assert isinstance(good.transport, StdioSpec)
    async with ConnectionManager(
        [server, good], auth_provider_for=keys, auth_providers={"named": key}
    ) as manager:
        assert await call_whoami(manager, "one", ANN) == "named whoami"
        await call_tool(manager, "good", "echo", {"text": "x"}, principal=ANN)
    assert keys.asked == []
    assert key.closed == 0


class CountingNet(OutboundHttp):
    """Counts how often it is used."""

    used = 0

    def origin_pool(self, url: URL, *, guarded: bool) -> OriginPool:
        self.used += 1
        return super().origin_pool(url, guarded=guarded)


async def test_a_net_that_is_given_is_used_and_stays_open(accounts: Accounts) -> None:
    net = CountingNet()
    try:
        async with ConnectionManager([accounts.server("one")], net=net) as manager:
            await use(manager, "one", [ANN])
            assert net.used
            session = net.session(guarded=False)
        assert not session.closed
        assert net.session(guarded=False) is session
    finally:
        await net.close()


class MissingSignIn(Key):
    """A provider with a missing or expired sign-in."""

    def __init__(self, error: ServerError) -> None:
        super().__init__("nobody", "wrong")
        self.error = error

    async def challenged(self, challenge: Challenge) -> bool:
        raise self.error


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (NeverSignedIn("the server requires a sign-in"), State.NEEDS_AUTH, "never_signed_in"),
        (SignInEnded("the sign-in has run out"), State.NEEDS_AUTH, "sign_in_ended"),
        (Unreachable("no way"), State.FAILED, "unreachable"),
    ],
)
async def test_a_record_has_a_word_for_why(
    accounts: Accounts, error: ServerError, state: State, reason: str
) -> None:
    server = Server("one", HttpSpec(accounts.url))
    async with ConnectionManager([server], auth_provider_for=lambda *_: MissingSignIn(error)) as manager:
        (status,) = await manager.connect(principal=ANN)
        assert (status.state, status.reason, status.cause) == (state, reason, error.cause)
        assert manager.status("one", principal=BOB).reason is None
        await manager.restart("one", ANN)
        assert manager.status("one", principal=ANN).reason is None


async def test_a_wrong_key_needs_a_sign_in(accounts: Accounts) -> None:
    server = Server("one", HttpSpec(accounts.url, {"X-Key": "a-wrong-key"}))
    async with ConnectionManager([server]) as manager:
        (status,) = await manager.connect()
        assert (status.state, status.reason) == (State.NEEDS_AUTH, "sign_in_needed")
        assert "a-wrong-key" not in repr(status)
