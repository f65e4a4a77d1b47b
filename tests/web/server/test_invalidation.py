"""What another process changes in the database counts here at once, and what time changes soon."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.web.conftest import HttpClient, InProcessApp, Opening

from toolyard.gateway.http.exchange import HttpRequestRejected, ListenRequests
from toolyard.store import Database
from toolyard.types.account import Right, TokenScope
from toolyard.types.registry import InstanceDraft, RegistryServer, ServerDraft
from toolyard.web.app import AppTimeouts
from toolyard.web.gateway_mount import GatewayMount
from toolyard.web.http_server.invalidation import recheck_listeners_periodically
from toolyard.web.servers.live_updates import LiveUpdate, LiveUpdates

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/list",
}


async def list_status(client: HttpClient) -> int:
    """The status of a request to the gateway."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    return (await client.post("/mcp", body, headers=HEADERS)).status


@contextlib.asynccontextmanager
async def open_stream(local: InProcessApp, token: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """A stream of the gateway that was opened with a token, and has begun."""
    client = local.client(Authorization=f"Bearer {token}")
    params = {"_meta": META, "notifications": {"toolsListChanged": True}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    headers = {**client.headers, **HEADERS, "Mcp-Method": "subscriptions/listen"}
    async with client.session.post(f"{local.url}/mcp", json=body, headers=headers) as stream:
        assert stream.status == 200
        await asyncio.wait_for(stream.content.readline(), 30)
        yield stream


@pytest.fixture
async def password_site(open_site: Opening, tmp_path: Path) -> InProcessApp:
    """It would believe a token for an hour, if it did not hear."""
    timeouts = AppTimeouts(admission=3_600.0)
    local = await open_site({}, data=tmp_path / "data", people_mode="password", timeouts=timeouts)
    async with asyncio.timeout(30):
        while not local.services.database.signals.is_listening:
            await asyncio.sleep(0.01)
    return local


@pytest.fixture
async def elsewhere(password_site: InProcessApp, tmp_path: Path) -> AsyncIterator[Database]:
    """The same database, as another process has it."""
    database = await Database.open(tmp_path / "data", url=None, secret_key=None)
    yield database
    await database.close()


async def wait_until_refused(client: HttpClient) -> None:
    async with asyncio.timeout(30):
        while await list_status(client) != 401:
            await asyncio.sleep(0.02)


async def test_a_token_that_is_revoked_anywhere_opens_nothing_any_more(
    password_site: InProcessApp, elsewhere: Database
) -> None:
    ann, bob = await password_site.person("ann"), await password_site.person("bob")
    for person in (ann, bob, ann, bob):
        assert await list_status(person.token) == 200
    assert password_site.part(GatewayMount).admission_count == 2
    for person, database in ((ann, password_site.services.database), (bob, elsewhere)):
        (token,) = await database.accounts.list_tokens(person.user.id)
        assert await database.accounts.delete_token(person.user.id, token.id)
        await wait_until_refused(person.token)


async def test_a_long_address_is_not_remembered(password_site: InProcessApp) -> None:
    ann = await password_site.person("ann")
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    for number in range(3):
        answer = await ann.token.post(f"/mcp?n={number}&mode=meta&x={'y' * 9_000}", body, headers=HEADERS)
        assert answer.status == 200
    assert password_site.part(GatewayMount).admission_count == 0


async def test_a_user_disabled_on_any_replica_is_refused(
    password_site: InProcessApp, elsewhere: Database
) -> None:
    ann = await password_site.person("ann")
    assert await list_status(ann.token) == 200
    await elsewhere.accounts.set_disabled(ann.user.id, True)
    await wait_until_refused(ann.token)


async def test_a_change_of_the_registry_reaches_authenticated_clients(
    password_site: InProcessApp, elsewhere: Database, wait_until: Callable[..., Awaitable[None]]
) -> None:
    ann = await password_site.person("ann")
    assert await list_status(ann.token) == 200
    await elsewhere.registry.add_server(RegistryServer("S", "https://s.example/mcp", id="s"))
    await wait_until(lambda: password_site.part(GatewayMount).admission_count == 0)


async def test_an_instance_that_another_process_deletes_is_gone_here(
    password_site: InProcessApp, elsewhere: Database
) -> None:
    services, ann = password_site.services, (await password_site.person("ann")).user.principal
    services.instances.max_read_age_seconds = 3_600.0
    server = await services.registry.add_server(ServerDraft("S", "https://s.example/mcp"))
    made = await services.registry.create_instance(ann.id, InstanceDraft(server.id, slug="one"))
    assert await services.instances.sync(ann)
    assert await elsewhere.registry.delete_instance(ann.id, made.id)
    async with asyncio.timeout(30):
        while await services.instances.sync(ann):
            await asyncio.sleep(0.02)
    assert services.core.manager.find(made.core_id, ann) is None


async def test_a_change_of_an_agent_counts_before_its_version_is_read(
    password_site: InProcessApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, reading = await password_site.person("ann"), asyncio.Event()
    response = await ann.token.post("/api/v1/agents", {"name": "Reader", "tools": ["a_*"]})
    assert await list_status(ann.token) == 200
    assert password_site.part(GatewayMount).admission_count == 1

    async def never() -> frozenset[tuple[str, int]]:
        await reading.wait()
        return frozenset()

    monkeypatch.setattr(password_site.services.database.agents, "read_versions", never)
    body = {"name": "Reader", "tools": ["b_*"], "version": response.json["version"]}
    changed_response = await ann.token.patch(f"/api/v1/agents/{response.json['stored_id']}", body)
    assert changed_response.status == 200
    assert password_site.part(GatewayMount).admission_count == 0
    reading.set()


async def test_lookups_before_a_change_are_not_cached_after_it(
    password_site: InProcessApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = await password_site.person("ann")
    enter, looked_up, go_on = password_site.services.instances.sync, asyncio.Event(), asyncio.Event()

    async def slowly(principal: Any) -> Any:
        await enter(principal)
        looked_up.set()
        await go_on.wait()

    monkeypatch.setattr(password_site.services.instances, "sync", slowly)
    first = asyncio.create_task(list_status(ann.token))
    await asyncio.wait_for(looked_up.wait(), 30)
    password_site.part(GatewayMount).clear_admissions()
    go_on.set()
    assert await first == 200
    assert password_site.part(GatewayMount).admission_count == 0


async def test_a_listener_is_disconnected_when_its_token_expires(open_site: Opening) -> None:
    local = await open_site({}, people_mode="password")
    name = recheck_listeners_periodically.__name__
    assert name in [getattr(task.get_coro(), "__name__", "") for task in asyncio.all_tasks()]
    # One more, with an interval that a test can wait for.
    local.services.tasks.spawn(recheck_listeners_periodically(local.part(GatewayMount), 0.05))
    now = time.time()
    local.services.people.clock = lambda: now
    ann = await local.person("ann")
    scope = TokenScope(frozenset({Right.CALL}))
    _, lasting = await local.services.people.create_token(ann.user, "lasting", scope, None)
    _, brief = await local.services.people.create_token(ann.user, "brief", scope, 3_600.0)
    async with open_stream(local, lasting) as stream, open_stream(local, brief) as last_stream:
        now += 3_601.0
        async with asyncio.timeout(30):
            await last_stream.content.read()
        await local.part(GatewayMount).http_gateway.listeners.reauthorize()
        assert not stream.content.at_eof()


async def test_a_listener_stays_connected_while_its_token_cannot_be_checked() -> None:
    away, ended_streams = [503, 401], list[str]()

    async def admit(scope: Any) -> None:
        raise HttpRequestRejected(away.pop(0), "no")

    listeners = ListenRequests(admit)
    with listeners.track({}, lambda: ended_streams.append("it")):
        await listeners.reauthorize()
        assert ended_streams == []
        await listeners.reauthorize()
        assert ended_streams == ["it"]


# Pages.


async def test_listeners_are_notified_soon_of_known_changes() -> None:
    seen_versions = {"one": 1}

    async def look(key: str) -> dict[str, int]:
        return dict(seen_versions)

    live_updates: LiveUpdates[str, int] = LiveUpdates(
        look, interval_seconds=3_600.0, min_interval_fraction=0.0
    )
    stream = live_updates.subscribe("ada", heartbeat_seconds=600)
    assert await anext(stream) == LiveUpdate("one", 1)
    seen_versions["one"] = 2
    live_updates.request_poll()
    async with asyncio.timeout(30):
        assert await anext(stream) == LiveUpdate("one", 2)
    await stream.aclose()
    live_updates.close()
