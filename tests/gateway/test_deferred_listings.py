"""A list of many servers is not held up by one that is slow or dead, and what is missing is told."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import aiohttp
import aiohttp.web
import pytest
from tests.gateway.conftest import (
    LONG_LIST_DEADLINE,
    LegacyClient,
    ModernClient,
    next_message,
    passthrough_entry,
)
from tests.gateway.test_list_changed import open_listener, tools, wait_for_list_changes
from tests.web.conftest import InProcessApp

from toolyard.gateway.endpoint import MISSING_SERVERS_META_KEY
from toolyard.types.account import LOCAL_PRINCIPAL, Right, TokenScope
from toolyard.web.gateway_mount import GatewayMount

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LIST_DEADLINE_SECONDS = 0.3
"""A list deadline in seconds. The servers of these tests answer long after it, or were listed before."""
OFFERS = {"tools": {}, "prompts": {}, "resources": {}}
LISTS = {
    "tools/list": {"tools": [{"name": "late", "inputSchema": {"type": "object"}}]},
    "prompts/list": {"prompts": [{"name": "late"}]},
    "resources/list": {"resources": [{"uri": "late://a", "name": "a"}]},
    "resources/templates/list": {"resourceTemplates": []},
}


class BlockedLegacyServer:
    """A legacy server that does not answer what it shall not yet."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.changed = asyncio.Condition()

    async def hold(self, *methods: str) -> None:
        """From now on only these are not answered."""
        async with self.changed:
            self.held = set(methods)
            self.changed.notify_all()

    async def answer(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        message = await request.json()
        method = message["method"]
        async with self.changed:
            await self.changed.wait_for(lambda: method not in self.held)
        if "id" not in message:
            return aiohttp.web.Response(status=202)
        result: dict[str, Any] = LISTS.get(method, {})
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": OFFERS, "serverInfo": {"name": "slow"}}
        elif method == "prompts/get":
            result = {"messages": []}
        elif method == "resources/read":
            result = {"contents": [{"uri": "late://a", "text": "read"}]}
        return aiohttp.web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


@pytest.fixture
async def slow() -> AsyncIterator[tuple[BlockedLegacyServer, dict[str, Any]]]:
    """The server, and its entry: its timeouts are longer than any test."""
    server, app = BlockedLegacyServer(), aiohttp.web.Application()
    app.router.add_post("/mcp", server.answer)
    runner = aiohttp.web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    timeouts = {"connect": 300, "silence": 300, "call": 300}
    yield server, {"url": url, "protocol": "legacy", "timeouts": timeouts}
    await runner.cleanup()


async def warm(services: InProcessApp, http: aiohttp.ClientSession, *servers: str) -> None:
    """Let these be listed, however long that takes."""
    for server in servers:
        client = ModernClient(http, f"{services.url}/mcp/servers/{server}")
        for method in LISTS if server == "one" else ("tools/list",):
            assert (await client.ask(method)).result


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_tools_of_the_others_are_listed_and_the_rest_is_announced(
    slow: tuple[BlockedLegacyServer, Any], open_site: Any, http: aiohttp.ClientSession, era: str
) -> None:
    server, entry = slow
    await server.hold("initialize")
    services: InProcessApp = await open_site(
        {"one": passthrough_entry("one"), "slow": entry}, list_deadline=LIST_DEADLINE_SECONDS
    )
    await warm(services, http, "one")
    async with open_listener(http, f"{services.url}/mcp", "", era) as (client, stream):
        for _ in range(2):
            reply = await client.ask("tools/list")
            names = {tool["name"] for tool in reply.result["tools"]}
            assert "one_odd" in names
            assert "slow_late" not in names
            assert reply.result["_meta"][MISSING_SERVERS_META_KEY] == {"slow": "has not answered yet"}
            if era == "modern":
                assert reply.result["ttlMs"] <= 10_000
        await server.hold()
        await wait_for_list_changes(stream)
        reply = await client.ask("tools/list")
        assert {"one_odd", "slow_late"} <= {tool["name"] for tool in reply.result["tools"]}
        assert MISSING_SERVERS_META_KEY not in reply.result.get("_meta", {})


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_lists_once_gets_tools_although_all_servers_are_slow(
    slow: tuple[BlockedLegacyServer, Any], open_site: Any, http: aiohttp.ClientSession, era: str
) -> None:
    server, entry = slow
    await server.hold("initialize")
    services: InProcessApp = await open_site({"slow": entry}, list_deadline=1.0, warm=False)
    client = (LegacyClient if era == "legacy" else ModernClient)(http, f"{services.url}/mcp")
    listing = asyncio.ensure_future(client.ask("tools/list"))
    # Longer than the list deadline, and shorter than the time for the first tools.
    await asyncio.wait([listing], timeout=1.5)
    await server.hold()
    assert [tool["name"] for tool in (await listing).result["tools"]] == ["slow_late"]


async def test_a_list_of_servers_that_never_answer_ends(
    slow: tuple[BlockedLegacyServer, Any], open_site: Any, http: aiohttp.ClientSession
) -> None:
    server, entry = slow
    await server.hold("initialize")
    services: InProcessApp = await open_site({"slow": entry}, list_deadline=0.1, warm=False)
    reply = await ModernClient(http, f"{services.url}/mcp").ask("tools/list")
    assert reply.result["tools"] == []
    assert reply.result["_meta"][MISSING_SERVERS_META_KEY] == {"slow": "has not answered yet"}


async def test_the_meta_tools_find_late_tools(
    slow: tuple[BlockedLegacyServer, Any],
    open_site: Any,
    http: aiohttp.ClientSession,
    wait_until: Callable[..., Awaitable[None]],
) -> None:
    server, entry = slow
    await server.hold("initialize")
    services: InProcessApp = await open_site(
        {"one": passthrough_entry("one"), "slow": {**entry, "trust": "trusted"}},
        list_deadline=LIST_DEADLINE_SECONDS,
    )
    await warm(services, http, "one")
    client = ModernClient(http, f"{services.url}/mcp?mode=meta")

    async def search_tools() -> dict[str, Any]:
        reply = await client.call("tools_search", {"query": "late odd"})
        return reply.result["structuredContent"]

    async with asyncio.timeout(60):
        for _ in range(2):
            answer = await search_tools()
            assert "one_odd" in answer["tools"]
            assert "slow_late" not in answer["tools"]
            assert answer["not_listed"].startswith("slow (has not answered yet)")
        await server.hold()
        # It was being listed all the while: nobody needs to ask for that.
        await wait_until(
            lambda: "slow" in services.services.core.tool_directory.known_listing(LOCAL_PRINCIPAL).catalogues,
            30,
        )
        answer = await search_tools()
        assert {"one_odd", "slow_late"} <= answer["tools"].keys()
        assert "not_listed" not in answer


async def test_a_resource_of_a_server_with_a_late_list_is_not_requested_from_another(
    slow: tuple[BlockedLegacyServer, Any], open_site: Any, http: aiohttp.ClientSession
) -> None:
    server, entry = slow
    services: InProcessApp = await open_site(
        {"one": passthrough_entry("one"), "slow": {**entry, "cache_ttl": 0}},
        list_deadline=LIST_DEADLINE_SECONDS,
    )
    await warm(services, http, "one", "slow")
    await server.hold("resources/list", "resources/templates/list")
    client = ModernClient(http, f"{services.url}/mcp")
    async with asyncio.timeout(60):
        # The list is without it; whoever reads what it knows of waits for the one who may have it.
        resources = (await client.ask("resources/list")).result["resources"]
        assert "late://a" not in {each["uri"] for each in resources}
        reading = asyncio.ensure_future(client.ask("resources/read", {"uri": "late://a"}))
        for _ in range(3):
            assert (await client.ask("resources/list")).result["resources"] == resources
        assert not reading.done()
        await server.hold()
        assert (await reading).result["contents"][0]["text"] == "read"


async def test_a_server_that_cannot_be_reached_is_named_with_the_reason(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    services: InProcessApp = await open_site(
        {"one": passthrough_entry("one"), "dead": {"url": "http://127.0.0.1:9/mcp"}},
        list_deadline=LONG_LIST_DEADLINE,
    )
    await warm(services, http, "one")
    reply = await ModernClient(http, f"{services.url}/mcp").ask("tools/list")
    missing = reply.result["_meta"][MISSING_SERVERS_META_KEY]
    assert list(missing) == ["dead"]
    assert "9" in missing["dead"]


async def test_a_server_that_a_token_is_not_for_is_not_named(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    servers = {"one": passthrough_entry("one"), "dead": {"url": "http://127.0.0.1:9/mcp"}}
    services: InProcessApp = await open_site(
        servers, people_mode="password", list_deadline=LIST_DEADLINE_SECONDS
    )
    person = await services.person("ann", scope=TokenScope(frozenset({Right.CALL}), servers=("one",)))
    head = {"Authorization": f"Bearer {person.secret}"}
    reply = await ModernClient(http, f"{services.url}/mcp", {}, head).ask("tools/list")
    assert b"dead" not in reply.body


async def test_tools_listed_once_are_listed_while_the_server_hangs(
    slow: tuple[BlockedLegacyServer, Any], open_site: Any, http: aiohttp.ClientSession
) -> None:
    server, entry = slow
    services: InProcessApp = await open_site(
        {"one": passthrough_entry("one"), "slow": entry}, list_deadline=LIST_DEADLINE_SECONDS
    )
    await warm(services, http, "one", "slow")
    client = ModernClient(http, f"{services.url}/mcp")
    assert "slow_late" in await tools(client)
    await server.hold("tools/list")
    # It is connected, and what it had is old.
    await services.services.core.updates.handle_list_changed("slow")
    services.part(GatewayMount).gateway.tools_changed_at["slow"] = time.time()
    assert "slow_late" in await tools(client)
    # Another process knows it from the database.
    await server.hold("initialize")
    other: InProcessApp = await open_site(
        {"one": passthrough_entry("one"), "slow": entry},
        data=services.services.data_dir,
        list_deadline=LIST_DEADLINE_SECONDS,
    )
    assert "slow_late" in await tools(ModernClient(http, f"{other.url}/mcp"))
    await server.hold()


KINDS = {
    "prompts": ("prompts/list", ["one_hello"], "prompts/get", {"name": "slow_late"}, "messages"),
    "resources": ("resources/list", ["same", "one"], "resources/read", {"uri": "late://a"}, "contents"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_other_lists_are_not_held_up_either(
    slow: tuple[BlockedLegacyServer, Any], open_site: Any, http: aiohttp.ClientSession, kind: str
) -> None:
    server, entry = slow
    listing, names, using, params, key = KINDS[kind]
    services: InProcessApp = await open_site(
        {"one": passthrough_entry("one"), "slow": entry}, list_deadline=LIST_DEADLINE_SECONDS
    )
    await warm(services, http, "one", "slow")
    async with open_listener(http, f"{services.url}/mcp", "", "modern") as (client, stream):
        await server.hold(listing)
        reply = await client.ask(listing)
        assert [each["name"] for each in reply.result[kind]] == names
        assert reply.result["_meta"][MISSING_SERVERS_META_KEY] == {"slow": "has not answered yet"}
        # What is wanted by its name is waited for.
        response_task = asyncio.create_task(client.ask(using, params))
        await server.hold()
        assert key in (await response_task).result
        assert (await next_message(stream))["method"] == f"notifications/{kind}/list_changed"
        reply = await client.ask(listing)
        assert "late" in json.dumps(reply.result[kind])
        assert MISSING_SERVERS_META_KEY not in reply.result["_meta"]


async def test_the_address_of_one_server_waits_for_it(
    slow: tuple[BlockedLegacyServer, Any], open_site: Any, http: aiohttp.ClientSession
) -> None:
    server, entry = slow
    await server.hold("initialize")
    services: InProcessApp = await open_site({"slow": entry}, list_deadline=LIST_DEADLINE_SECONDS)
    everything = ModernClient(http, f"{services.url}/mcp")
    assert await tools(everything) == set()
    task = asyncio.create_task(tools(ModernClient(http, f"{services.url}/mcp/servers/slow")))
    # Its patience is over, and it still waits.
    assert await tools(everything) == set()
    assert not task.done()
    await server.hold()
    assert await task == {"late"}
    assert "late" in services.services.core.tool_directory.known_listing(LOCAL_PRINCIPAL).names.exposed_name(
        "slow", "late"
    )  # type: ignore[operator]
