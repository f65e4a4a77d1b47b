"""Clients that watch hear of servers that an admin or they themselves changed, at this replica or another."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.gateway.conftest import (
    LONG_LIST_DEADLINE,
    LegacyClient,
    ModernClient,
    next_message,
    passthrough_entry,
)
from tests.gateway.resource_updates_server import ResourceUpdatesServer
from tests.web.conftest import HttpClient, InProcessApp, write_config

from toolyard.catalog.lock.storage import PinKey
from toolyard.config import load_config
from toolyard.core.server_updates import ServerUpdates
from toolyard.web.gateway_mount import GatewayMount

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram

KEY = "a key that both replicas have"
LISTS = {f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")}
DRAFT = {"name": "Tracker", "private_addresses": True, "choices": [{"kind": "public"}]}


@pytest.fixture
async def replicas(postgres_url: str, open_site: Any) -> list[InProcessApp]:
    return [
        await open_site(
            {},
            people_mode="password",
            database_url=postgres_url,
            secret_key=KEY,
            list_deadline=LONG_LIST_DEADLINE,
        )
        for _ in range(2)
    ]


@asynccontextmanager
async def open_listener(
    http: aiohttp.ClientSession, url: str, secret: str, era: str
) -> AsyncIterator[tuple[ModernClient, aiohttp.ClientResponse]]:
    """A client that hears of changed lists, once it does."""
    head = {"Authorization": f"Bearer {secret}"} if secret else {}
    if era == "legacy":
        old = LegacyClient(http, url, {}, head)
        await old.begin()
        async with http.get(url, headers={**old.head(""), "Accept": "text/event-stream"}) as own:
            yield old, own
        return
    modern = ModernClient(http, url, {}, head)
    notification_filter = {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}
    message = modern.message("subscriptions/listen", {"notifications": notification_filter})
    async with http.post(url, json=message, headers=modern.head("subscriptions/listen")) as stream:
        assert (await next_message(stream))["method"] == "notifications/subscriptions/acknowledged"
        yield modern, stream


async def wait_for_list_changes(stream: aiohttp.ClientResponse) -> None:
    notified_kinds: set[str] = set()
    while notified_kinds != LISTS:
        notified_kinds.add((await next_message(stream))["method"])


async def tools(client: ModernClient) -> set[str]:
    return {tool["name"] for tool in (await client.ask("tools/list")).result["tools"]}


async def create_record(client: HttpClient, path: str, body: Any) -> Any:
    answer = await client.post(f"/api/v1/{path}", body)
    assert answer.status == 201, answer.text
    return answer.json


async def test_a_list_that_changed_while_it_was_fetched_is_not_cached(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    words = ["-I", "-S", str(Path(__file__).with_name("paged_prompts_server.py"))]
    paged_server = {"command": sys.executable, "args": words}
    local = await open_site({"paged": paged_server}, list_deadline=LONG_LIST_DEADLINE)
    client = ModernClient(http, f"{local.url}/mcp/servers/paged")
    prompt_names = [
        [prompt["name"] for prompt in (await client.ask("prompts/list")).result["prompts"]] for _ in range(2)
    ]
    assert prompt_names == [["before", "last"], ["after", "last"]]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("place", [0, 1], ids=["this replica", "another"])
async def test_a_client_hears_of_the_registry_and_of_its_owners_instances(
    replicas: list[InProcessApp],
    http: aiohttp.ClientSession,
    hostile_http: ListeningProgram,
    era: str,
    place: int,
) -> None:
    here, replica = replicas[0], replicas[place]
    ann, bob = await here.person("ann", "admin"), await here.person("bob")
    by_ann = replica.client(Authorization=f"Bearer {ann.secret}")
    server = await create_record(by_ann, "servers", {**DRAFT, "url": f"{hostile_http.url}/good-tools/x"})
    async with (
        open_listener(http, f"{here.url}/mcp", ann.secret, era) as (client, stream),
        open_listener(http, f"{here.url}/mcp", bob.secret, era) as (_, nothing),
    ):
        assert await tools(client) == set()
        own_instance = await create_record(by_ann, "instances", {"server_id": server["id"], "slug": "work"})
        await wait_for_list_changes(stream)
        assert "mcp_work__echo" in await tools(client)
        # An admin takes a tool away from everyone.
        answer = await by_ann.patch(f"/api/v1/servers/{server['id']}", {"deny_tools": ["echo"]})
        assert answer.status == 200, answer.text
        await wait_for_list_changes(stream)
        remaining_tools = await tools(client)
        assert remaining_tools
        assert "mcp_work__echo" not in remaining_tools
        assert (await by_ann.delete(f"/api/v1/instances/{own_instance['id']}")).status == 204
        await wait_for_list_changes(stream)
        assert await tools(client) == set()
        # It was nothing to do with anybody else.
        await create_record(
            replica.client(Authorization=f"Bearer {bob.secret}"),
            "instances",
            {"server_id": server["id"], "slug": "first"},
        )
        await wait_for_list_changes(nothing)
        assert b"list_changed" not in nothing.content.read_nowait()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_hears_of_a_changed_configuration(
    open_site: Any, http: aiohttp.ClientSession, era: str
) -> None:
    services: InProcessApp = await open_site(
        {"one": passthrough_entry("one")}, list_deadline=LONG_LIST_DEADLINE
    )
    async with open_listener(http, f"{services.url}/mcp", "", era) as (client, stream):
        assert "one_odd" in await tools(client)
        await configure(services, one=passthrough_entry("one"), two=passthrough_entry("two"))
        await wait_for_list_changes(stream)
        assert {"one_odd", "two_odd"} <= await tools(client)
        await configure(services, one=passthrough_entry("one", denyTools=["odd"]))
        await wait_for_list_changes(stream)
        assert not {"one_odd", "two_odd"} & await tools(client)


async def test_the_address_of_one_server_ignores_others(open_site: Any, http: aiohttp.ClientSession) -> None:
    services: InProcessApp = await open_site(
        {"one": passthrough_entry("one")}, list_deadline=LONG_LIST_DEADLINE
    )
    async with open_listener(http, f"{services.url}/mcp/servers/one", "", "legacy") as (client, stream):
        assert "odd" in await tools(client)
        await configure(services, one=passthrough_entry("one"), two=passthrough_entry("two"))
        await configure(
            services, one=passthrough_entry("one", denyTools=["odd"]), two=passthrough_entry("two")
        )
        await wait_for_list_changes(stream)
        assert b"list_changed" not in stream.content.read_nowait()
        assert "odd" not in await tools(client)


async def configure(services: InProcessApp, **servers: Any) -> None:
    folder = services.services.data_dir
    write_config(folder, servers)
    configuration = load_config(data_dir=folder, cwd=folder, env=dict(os.environ))
    await services.services.configured_servers.apply_configuration(configuration)


async def test_a_client_hears_that_a_changed_tool_was_accepted(
    replicas: list[InProcessApp], http: aiohttp.ClientSession
) -> None:
    server = ResourceUpdatesServer(modern=True)
    server.tools = [{"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}}]
    await server.start()
    here, other_replica = replicas
    ann = await here.person("ann", "admin")
    new_server = await create_record(ann.token, "servers", {**DRAFT, "url": server.url})
    await create_record(ann.token, "instances", {"server_id": new_server["id"], "slug": "work"})
    async with open_listener(http, f"{here.url}/mcp", ann.secret, "modern") as (client, stream):
        assert await tools(client) == {"mcp_work__look"}
        server.tools[0]["description"] = "Looks away."
        await here.services.core.catalogues.list_changed(f"@{ann.user.id}/work")
        here.part(GatewayMount).gateway.tools_changed_at[f"@{ann.user.id}/work"] = time.time()
        assert await tools(client) == set()
        lock = other_replica.services.core.locks.registry
        assert lock is not None
        place = PinKey(new_server["id"])
        (change,) = await lock.list_unaccepted_changes(place, "Tracker")
        await lock.accept(place, "Tracker", [change.key])
        await wait_for_list_changes(stream)
        assert await tools(client) == {"mcp_work__look"}
    await server.stop()
    server.close()


_LISTS_BY_PROCESS = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    method = message["method"]
    if method == "initialize":
        capabilities = {"tools": {}, "prompts": {}, "resources": {}}
        info = {"name": "lists", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
    elif "templates" in method:
        result = {"resourceTemplates": []}
    elif method.endswith("/list"):
        entry = {"name": f"p{os.getpid()}", "uri": f"x://{os.getpid()}", "inputSchema": {"type": "object"}}
        result = {method.split("/")[0]: [entry]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def test_no_list_of_former_credentials_is_kept_after_a_reconnect(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    entry = {"command": sys.executable, "args": ["-c", _LISTS_BY_PROCESS], "shared": False}
    site: InProcessApp = await open_site({"one": entry}, people_mode="password", list_deadline=30.0)
    ann = await site.person("ann")
    client = ModernClient(http, f"{site.url}/mcp", headers={"Authorization": f"Bearer {ann.secret}"})

    async def read_lists() -> tuple[Any, Any]:
        prompts = (await client.ask("prompts/list")).result["prompts"]
        return prompts, (await client.ask("resources/list")).result["resources"]

    before = await read_lists()
    assert await read_lists() == before
    # As after a sign-in with another account.
    await site.part(ServerUpdates).reconnect("one", ann.user.principal)
    after = await read_lists()
    assert all(old and new and old != new for old, new in zip(before, after, strict=True))
