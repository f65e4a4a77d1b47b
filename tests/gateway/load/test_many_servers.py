"""Lists of many servers: pages that belong together, and work that does not grow with the square."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import aiohttp
import aiohttp.web
import pytest
from tests.gateway.conftest import LONG_LIST_DEADLINE, ModernClient
from tests.meta_tools.scripted_core import server, tool
from tests.web.conftest import InProcessApp

from toolyard.catalog.cache import CatalogueCache
from toolyard.catalog.exposed_names import ExposedNames, NameAssigner, ServerToolNames
from toolyard.catalog.listing_storage import MemoryListingStorage
from toolyard.clients import ConnectionManager
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.gateway.surface.list_repair import PAGE_SIZE
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.tool import RawListing

TOOLS_PER_SERVER = PAGE_SIZE // 4
SERVER_COUNT = 6


@pytest.fixture
async def many_servers() -> AsyncIterator[tuple[dict[str, Any], list[str]]]:
    """Entries of many legacy servers, and a list: tools added to it are part of every server's next list."""
    server_names: list[str] = []

    async def answer(request: aiohttp.web.Request) -> aiohttp.web.Response:
        message = await request.json()
        if "id" not in message:
            return aiohttp.web.Response(status=202)
        result: dict[str, Any] = {"tools": [tool(f"t{n}") for n in range(TOOLS_PER_SERVER)]}
        result["tools"] += map(tool, server_names)
        if message["method"] == "initialize":
            version = message["params"]["protocolVersion"]
            result = {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "many"},
            }
        return aiohttp.web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    app = aiohttp.web.Application()
    app.router.add_post("/{server}/mcp", answer)
    runner = aiohttp.web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    entry = {"protocol": "legacy", "cache": {"ttl": 0}}
    yield {f"s{n}": {"url": f"{url}/s{n}/mcp", **entry} for n in range(SERVER_COUNT)}, server_names
    await runner.cleanup()


async def test_the_pages_of_a_list_belong_to_the_list_of_the_first_page(
    many_servers: tuple[dict[str, Any], list[str]], open_site: Any, http: aiohttp.ClientSession
) -> None:
    entries, server_names = many_servers
    services: InProcessApp = await open_site(entries, list_deadline=LONG_LIST_DEADLINE)
    client = ModernClient(http, f"{services.url}/mcp?mode=direct")
    first = (await client.ask("tools/list")).result
    # These would move the tools after them to other pages.
    server_names.extend(f"a{number}" for number in range(20))
    rest = (await client.ask("tools/list", {"cursor": first["nextCursor"]})).result
    names = [each["name"] for page in (first, rest) for each in page["tools"]]
    own = [name for name in names if name.startswith("s")]
    assert sorted(own) == sorted(f"s{s}_t{t}" for s in range(SERVER_COUNT) for t in range(TOOLS_PER_SERVER))
    again = (await client.ask("tools/list")).result
    assert "s0_a0" in [each["name"] for each in again["tools"]]


async def test_servers_that_arrive_one_by_one_are_named_together() -> None:
    class CountingAssigner(NameAssigner):
        count = 0

        def names(self, groups: Iterable[ServerToolNames]) -> ExposedNames:
            self.count += 1
            return super().names(groups)

    async def fetch(server_id: str, principal: Principal, chat: str | None = None) -> RawListing:
        return RawListing(tools=(tool("search"),))

    assigner = CountingAssigner()
    servers = [server(f"s{number}") for number in range(200)]
    directory = ToolDirectory(
        ConnectionManager(servers),
        CatalogueCache(fetch, MemoryListingStorage()),
        assigner,
        list_deadline=60,
    )
    listing = await directory.refresh_within_deadline(LOCAL_PRINCIPAL)
    assert len(listing.tools) == len(servers)
    assert assigner.count < 5, "names were assigned anew for every server"
