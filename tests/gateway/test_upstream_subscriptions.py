"""Resources that clients watch through us, while their servers come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.gateway.conftest import LegacyClient, ModernClient, next_message
from tests.gateway.resource_updates_server import ResourceUpdatesServer
from tests.web.conftest import InProcessApp

from toolyard.web.gateway_mount import GatewayMount

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

A, B = "watched://a", "watched://b"


@pytest.fixture(params=["legacy", "sessionless", "modern"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ResourceUpdatesServer]:
    resource_updates_server = ResourceUpdatesServer(
        modern=request.param == "modern", sessions=request.param != "sessionless"
    )
    await resource_updates_server.start()
    yield resource_updates_server
    await resource_updates_server.stop()
    resource_updates_server.close()


@pytest.fixture
async def services(server: ResourceUpdatesServer, open_site: Any) -> InProcessApp:
    services: InProcessApp = await open_site({"watched": {"url": server.url, "shared": True}})
    upstream = services.part(GatewayMount).gateway.client_subscriptions.upstream
    upstream.retry_seconds = upstream.ping_interval_seconds = 0.05
    return services


async def updates(response: aiohttp.ClientResponse) -> Any:
    """The URI of the next resource that is said to have changed."""
    while (note := await next_message(response))["method"] != "notifications/resources/updated":
        pass
    return note["params"]["uri"]


async def test_a_legacy_session_goes_on_hearing_after_the_server_was_restarted(
    server: ResourceUpdatesServer,
    services: InProcessApp,
    http: aiohttp.ClientSession,
    wait_until: Callable[..., Awaitable[None]],
) -> None:
    client = LegacyClient(http, f"{services.url}/mcp")
    await client.begin()
    for uri in (A, B):
        assert (await client.ask("resources/subscribe", {"uri": uri})).result == {}
    async with http.get(client.url, headers={**client.head(""), "Accept": "text/event-stream"}) as own:
        await wait_until(lambda: server.watching(A, B), 30)
        server.update(A)
        assert await updates(own) == A
        await server.stop()
        await server.start()
        # What changed meanwhile nobody heard.
        assert {await updates(own), await updates(own)} == {A, B}
        await wait_until(lambda: server.watching(A, B), 30)
        server.update(B)
        assert await updates(own) == B


async def test_a_modern_client_goes_on_hearing_after_the_server_was_restarted(
    server: ResourceUpdatesServer,
    services: InProcessApp,
    http: aiohttp.ClientSession,
    wait_until: Callable[..., Awaitable[None]],
) -> None:
    client = ModernClient(http, f"{services.url}/mcp")
    message = client.message("subscriptions/listen", {"notifications": {"resourceSubscriptions": [A]}})
    async with http.post(client.url, json=message, headers=client.head("subscriptions/listen")) as stream:
        assert (await next_message(stream))["method"] == "notifications/subscriptions/acknowledged"
        for _ in range(2):
            await wait_until(lambda: server.watching(A), 30)
            server.update(A)
            assert await updates(stream) == A
            await server.stop()
            await server.start()
            assert await updates(stream) == A
    await wait_until(lambda: not server.watching(A), 30)


async def test_a_shared_subscription_ends_with_its_last_subscriber(
    server: ResourceUpdatesServer,
    open_site: Any,
    http: aiohttp.ClientSession,
    wait_until: Callable[..., Awaitable[None]],
) -> None:
    services = await open_site({"watched": {"url": server.url, "shared": True}}, people_mode="password")
    clients: list[LegacyClient] = []
    for name in ("ann", "bob"):
        person = await services.person(name)
        head = {"Authorization": f"Bearer {person.secret}"}
        clients.append(LegacyClient(http, f"{services.url}/mcp", {}, head))
        await clients[-1].begin()
        await clients[-1].ask("resources/subscribe", {"uri": A})
    ann, bob = clients
    await wait_until(lambda: server.watching(A), 30)
    await ann.ask("resources/subscribe", {"uri": B})
    await wait_until(lambda: server.watching(A, B), 30)
    for uri in (A, B):
        assert (await ann.ask("resources/unsubscribe", {"uri": uri})).result == {}
    await wait_until(lambda: server.watching(A), 30)
    async with http.get(bob.url, headers={**bob.head(""), "Accept": "text/event-stream"}) as own:
        server.update(A)
        assert await updates(own) == A
    await bob.ask("resources/unsubscribe", {"uri": A})
    await wait_until(lambda: not server.watching(A), 30)


@pytest.mark.parametrize("server", ["sessionless"], indirect=True)
async def test_a_stream_that_was_there_is_waited_for_while_others_answer_in_its_place(
    server: ResourceUpdatesServer,
    services: InProcessApp,
    http: aiohttp.ClientSession,
    wait_until: Callable[..., Awaitable[None]],
) -> None:
    client = LegacyClient(http, f"{services.url}/mcp")
    await client.begin()
    assert (await client.ask("resources/subscribe", {"uri": A})).result == {}
    async with http.get(client.url, headers={**client.head(""), "Accept": "text/event-stream"}) as own:
        await wait_until(lambda: server.watching(A), 30)
        # A proxy answers first, then a server that is not ready, then one that knows nobody.
        server.refusals = [502, 404]
        await server.stop()
        await server.start()
        assert await updates(own) == A
        assert server.refusals == []
        await wait_until(lambda: server.watching(A), 30)
        server.update(A)
        assert await updates(own) == A
