"""Clients that only listen: for as long as they may, whatever others do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from tests.gateway.conftest import LegacyClient, ModernClient, next_message, passthrough_entry
from tests.web.conftest import InProcessApp, SignedInUser

from toolyard.gateway.http.event_streams import StreamLimits
from toolyard.gateway.surface.resources import ResourceMap
from toolyard.web.gateway_mount import GatewayMount


@pytest.fixture
async def password_site(open_site: Any) -> InProcessApp:
    return await open_site({"one": passthrough_entry("one")}, people_mode="password")


def bearer(person: SignedInUser) -> dict[str, str]:
    return {"Authorization": f"Bearer {person.secret}"}


async def listen(client: ModernClient) -> aiohttp.ClientResponse:
    """A stream of the modern era, acknowledged."""
    message = client.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    head = client.head("subscriptions/listen")
    response = await client.session.post(client.url, data=json.dumps(message).encode(), headers=head)
    assert (await next_message(response))["method"] == "notifications/subscriptions/acknowledged"
    return response


async def get(client: LegacyClient) -> aiohttp.ClientResponse:
    """The stream of a session, which has begun."""
    head = {**client.head(""), "Accept": "text/event-stream"}
    response = await client.session.get(client.url, headers=head)
    assert (await response.content.readline()).startswith(b"id: own/")
    return response


async def test_a_user_that_lost_access_gets_no_more_notifications(
    password_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    url, ann, ben = (
        f"{password_site.url}/mcp",
        await password_site.person("ann"),
        await password_site.person("ben"),
    )
    session = LegacyClient(http, url, headers=bearer(ann))
    await session.begin()
    hers = [await listen(ModernClient(http, url, headers=bearer(ann))), await get(session)]
    his = await listen(ModernClient(http, url, headers=bearer(ben)))
    people = password_site.services.database.accounts
    [token] = await people.list_tokens(ann.user.id)
    assert await people.delete_token(ann.user.id, token.id)
    async with asyncio.timeout(30):
        for stream in hers:
            await stream.read()
    password_site.part(GatewayMount).gateway.client_subscriptions.notify_tools_changed()
    assert (await next_message(his))["method"] == "notifications/tools/list_changed"
    his.close()


async def test_a_pure_listener_that_lost_access_gets_no_more_notifications(
    password_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    url, ann, ben = (
        f"{password_site.url}/mcp",
        await password_site.person("ann"),
        await password_site.person("ben"),
    )
    hers = await listen(ModernClient(http, url, headers=bearer(ann)))
    his = await listen(ModernClient(http, url, headers=ben.browser.headers))
    people = password_site.services.database.accounts
    [token] = await people.list_tokens(ann.user.id)
    assert await people.delete_token(ann.user.id, token.id)
    async with asyncio.timeout(30):
        await hers.read()
    await password_site.services.people.sign_out_everywhere(ben.user)
    async with asyncio.timeout(30):
        await his.read()


async def test_listeners_do_not_delay_the_shutdown(serve: Any, http: aiohttp.ClientSession) -> None:
    site = await serve({"one": passthrough_entry("one")})
    client = LegacyClient(http, f"{site.url}/mcp")
    await client.begin()
    streams = [await get(client), await listen(ModernClient(http, client.url))]
    site.signal()
    assert await site.ended() == 0
    assert "did not end in time" not in site.errors
    for stream in streams:
        stream.close()


async def test_a_session_lasts_as_long_as_its_stream(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    listeners, silent, new = (LegacyClient(http, f"{two_server_site.url}/mcp") for _ in range(3))
    await listeners.begin()
    await silent.begin()
    stream = await get(listeners)
    two_server_site.part(GatewayMount).http_gateway.sessions.max_idle_seconds = 0.0
    await new.begin()
    assert (await listeners.ask("ping")).result == {}
    assert (await silent.ask("ping")).status == 404
    stream.close()


async def test_a_client_with_very_many_sessions_loses_its_own(
    password_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    password_site.part(GatewayMount).http_gateway.sessions.max_sessions = 3
    url, ann, ben = (
        f"{password_site.url}/mcp",
        await password_site.person("ann"),
        await password_site.person("ben"),
    )
    his = LegacyClient(http, url, headers=bearer(ben))
    await his.begin()
    hers = [LegacyClient(http, url, headers=bearer(ann)) for _ in range(5)]
    for each in hers:
        await each.begin()
    assert (await his.ask("ping")).result == {}
    assert [(await each.ask("ping")).status for each in hers] == [404, 404, 404, 200, 200]


async def test_sessions_that_rest_keep_no_server_from_others(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    # Each session has a process of its own: together more than may run.
    one = passthrough_entry("one", sessions="per-client")
    services = await open_site({"one": one}, people_mode="password", max_stdio_servers=3)
    url, ann, ben = f"{services.url}/mcp", await services.person("ann"), await services.person("ben")
    hers = [LegacyClient(http, url, {"elicitation": {"form": {}}}, bearer(ann)) for _ in range(4)]
    for each in hers:
        await each.begin()
        assert "elicitation" in (await each.call("one_told")).text
    assert (await ModernClient(http, url, headers=bearer(ben)).call("one_told")).text == "{}"
    assert "elicitation" in (await hers[0].call("one_told")).text


async def test_where_resources_are_is_found_out_once(
    two_server_site: InProcessApp, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource_maps: list[ResourceMap] = []
    of = ResourceMap.from_listings

    def count_maps(*lists: Any) -> ResourceMap:
        resource_maps.append(of(*lists))
        return resource_maps[-1]

    monkeypatch.setattr(ResourceMap, "from_listings", count_maps)
    client = ModernClient(http, f"{two_server_site.url}/mcp")
    for name in ("one", "two", "one"):
        read = await client.ask("resources/read", {"uri": f"odd://{name}"})
        assert read.result["contents"][0]["text"] == f"odd://{name} of {name}"
    assert len(resource_maps) == 1
    two_server_site.part(GatewayMount).gateway.listing_cache.invalidate(
        "one", "notifications/resources/list_changed"
    )
    await client.ask("resources/list")
    assert len(resource_maps) == 2


async def open_stream(client: Any, path: str) -> aiohttp.ClientResponse:
    """A stream of the API or of a page, which has begun."""
    response = await client.session.get(f"{client.url}{path}", headers=client.headers)
    assert (await response.content.readline()).startswith(b"retry:")
    return response


async def test_open_event_streams_are_limited_per_person_over_all_interfaces(
    open_site: Any, http: aiohttp.ClientSession, wait_until: Callable[..., Awaitable[None]]
) -> None:
    team = await open_site(
        {"one": passthrough_entry("one")}, people_mode="password", max_streams_per_person=5
    )
    url, ann, ben = f"{team.url}/mcp", await team.person("ann"), await team.person("ben")
    chat = (await ann.token.post("/api/v1/chats", {})).json["id"]
    session = LegacyClient(http, url, headers=bearer(ann))
    await session.begin()
    hers = [
        await listen(ModernClient(http, url, headers=bearer(ann))),
        await get(session),
        await open_stream(ann.token, "/api/v1/events"),
        await open_stream(ann.token, f"/api/v1/chats/{chat}/stream"),
        await open_stream(ann.browser, f"/ui/chat/{chat}/stream"),
    ]
    response = await ann.token.get("/api/v1/events")
    assert (response.status, response.headers["Retry-After"]) == (429, "5")
    assert response.json["type"] == "urn:toolyard:problem:too-many-streams"
    assert response.json["detail"] == "the limit of 5 open event streams per person is reached"
    assert "max_streams_per_person" in response.json["hint"]
    assert (await ann.token.get(f"/api/v1/chats/{chat}/stream")).status == 429
    assert (await ann.browser.get(f"/ui/chat/{chat}/stream")).status == 429
    listen_response = await ModernClient(http, url, headers=bearer(ann)).ask(
        "subscriptions/listen", {"notifications": {}}
    )
    assert listen_response.status == 429
    assert "max_streams_per_person" in listen_response.answer["error"]["message"]
    head = {**session.head(""), "Accept": "text/event-stream"}
    assert (await http.get(url, headers=head)).status == 429
    # Everything else goes on, for her and for others.
    assert (await session.ask("ping")).result == {}
    his = await open_stream(ben.token, "/api/v1/events")
    hers.pop().close()
    await wait_until(lambda: team.part(StreamLimits).open_streams == 5)
    hers.append(await open_stream(ann.token, "/api/v1/events"))
    for stream in (*hers, his):
        stream.close()
    await wait_until(lambda: team.part(StreamLimits).open_streams == 0)


async def test_open_event_streams_are_limited_in_total(open_site: Any) -> None:
    team = await open_site({}, people_mode="password", max_streams=1)
    ann, ben = await team.person("ann"), await team.person("ben")
    hers = await open_stream(ann.token, "/api/v1/events")
    response = await ben.token.get("/api/v1/events")
    assert (response.status, "max_streams" in response.json["hint"]) == (429, True)
    hers.close()
