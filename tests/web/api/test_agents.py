"""Agents in the API: those of the file as it is now, and what each of them has."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.web.conftest import HttpClient

from toolyard.agents.definitions.watch import LoadedAgents
from toolyard.gateway.subscriptions import Subscription
from toolyard.types.account import LOCAL_PRINCIPAL, Right, TokenScope
from toolyard.types.agent import Agent
from toolyard.web.gateway_mount import GatewayMount

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram
    from tests.web.conftest import Opening, Starting

READER = Agent(
    "reader",
    "Reader",
    "reads",
    "Read.",
    "fast",
    tools=("demo_*", "view_file", "!demo_count"),
    file="AGENTS.md",
    line=3,
)
META = Agent("meta", "Meta", mode="meta")
LOST_AGENT = Agent("lost", "Lost", bundles=("nothing",), line=9)


async def tools_of(client: Any, agent: str) -> dict[str, Any]:
    answer = await client.get(f"/api/v1/agents/{agent}/tools")
    assert answer.status == 200, answer.text
    return {each["name"]: each for each in answer.json["items"]}


async def test_the_agents_are_listed_in_the_order_of_the_file(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    local_site = await open_site({"demo": demo}, agents=[READER, META, LOST_AGENT])
    agents = (await local_site.client().get("/api/v1/agents")).json
    assert [each["id"] for each in agents["items"]] == ["reader", "meta", "lost"]
    assert agents["items"][0] == {
        "id": "reader",
        "name": "Reader",
        "description": "reads",
        "model": "fast",
        "tools": ["demo_*", "view_file", "!demo_count"],
        "bundles": [],
        "mode": None,
        "file": "AGENTS.md",
        "line": 3,
        "starters": [],
        "origin": "file",
        "stored_id": None,
        "version": None,
        "editable": False,
    }
    [problem] = agents["problems"]
    assert (problem["line"], problem["path"], problem["message"]) == (
        9,
        "Lost.bundles",
        "unknown bundle 'nothing'",
    )


async def test_every_tool_says_whether_the_agent_has_it_and_why_not(
    open_site: Opening, demo: dict[str, Any], tmp_path: Path
) -> None:
    local_site = await open_site({"demo": demo}, agents=[READER], workspace_root=str(tmp_path))
    tools = await tools_of(local_site.client(), "reader")
    assert list(tools) == sorted(tools)
    assert (tools["demo_weekday"]["shown"], tools["demo_weekday"]["through"]) == (True, "direct")
    assert (
        tools["view_file"]["native"],
        tools["view_file"]["shown"],
        tools["view_file"]["server_label"],
    ) == (True, True, "Toolyard")
    hidden = tools["demo_count"]
    assert (hidden["shown"], hidden["through"]) == (False, None)
    assert hidden["why"] == "'!demo_count' is the last pattern of agent 'reader' that matches 'demo_count'"
    assert tools["grep"]["why"] == "no pattern of agent 'reader' matches 'grep'"
    assert tools["grep"]["id"] == "@native/grep"


async def test_tools_behind_the_meta_tools_are_marked(open_site: Opening, demo: dict[str, Any]) -> None:
    wary = {**demo, "trust": "untrusted", "allowTools": ["weekday"]}
    local_site = await open_site(
        {"demo": demo, "wary": wary}, agents=[META, Agent("all", "All")], write_tools="allow"
    )
    everything = await tools_of(local_site.client(), "meta")
    assert everything["demo_weekday"]["through"] == "meta"
    tools = await tools_of(local_site.client(), "all")
    assert tools["demo_weekday"]["through"] == "direct"
    assert tools["wary_weekday"]["through"] == "meta"
    assert tools["wary_count"]["through"] is None
    assert "allowTools of server 'wary'" in tools["wary_count"]["why"]
    answer = (await local_site.client().get("/api/v1/agents/all/tools")).json
    assert answer["because"] == "those of untrusted servers are not offered to it directly"


async def test_patterns_without_a_tool_and_servers_that_fail_are_told(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    broken = {"command": "no-such-program-anywhere"}
    reader = Agent("reader", "Reader", tools=("demo_*", "later_*", "!never"))
    local_site = await open_site({"demo": demo, "broken": broken}, agents=[reader])
    tools = (await local_site.client().get("/api/v1/agents/reader/tools")).json
    assert tools["unmatched"] == ["later_*", "!never"]
    assert [each["server"] for each in tools["failures"]] == ["broken"]


async def test_unknown_tools_and_agents_without_tools_are_problems(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    typo = Agent("typo", "Typo", tools=("demo_cuont",), file="AGENTS.md", line=5)
    client = (await open_site({"demo": demo}, agents=[typo])).client()
    await client.get("/api/v1/agents/typo/tools")
    problems = (await client.get("/api/v1/agents")).json["problems"]
    assert [(each["path"], each["line"], each["message"]) for each in problems] == [
        ("Typo.tools", 5, "unknown tool 'demo_cuont'"),
        ("Typo", 5, "has no tools: its patterns match no tool"),
    ]


async def test_an_agent_that_there_is_not_is_not_found(open_site: Opening, demo: dict[str, Any]) -> None:
    local_site = await open_site({"demo": demo}, agents=[READER, LOST_AGENT])
    answer = await local_site.client().get("/api/v1/agents/nobody/tools")
    assert (answer.status, answer.json["type"]) == (404, "urn:toolyard:problem:no-such-agent")
    assert (await local_site.client().get("/api/v1/agents/lost/tools")).status == 404


async def test_only_admins_see_the_path_and_the_problems_of_the_file(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    team = await open_site({"demo": demo}, people_mode="password", agents=[READER, LOST_AGENT])
    ada, root = await team.person("ada"), await team.person("root", "admin")
    agents = (await ada.token.get("/api/v1/agents")).json
    assert [(each["file"], each["line"]) for each in agents["items"]] == [(None, None), (None, None)]
    assert agents["problems"] == []
    assert (await root.token.get("/api/v1/agents")).json["problems"]


async def test_a_token_shows_its_purpose(open_site: Opening, demo: dict[str, Any], tmp_path: Path) -> None:
    read = frozenset({Right.READ})
    team = await open_site(
        {"demo": demo, "other": demo},
        people_mode="password",
        agents=[READER, META],
        workspace_root=str(tmp_path),
    )
    some = await team.person(
        "some", scope=TokenScope(read, servers=("demo",), tools=("*", "!demo_count"), agents=("read*",))
    )
    assert [each["id"] for each in (await some.token.get("/api/v1/agents")).json["items"]] == ["reader"]
    assert (await some.token.get("/api/v1/agents/meta/tools")).status == 404
    names = set(await tools_of(some.token, "reader"))
    assert "demo_weekday" in names
    assert "demo_count" not in names
    assert not [name for name in names if not name.startswith("demo_")]
    nobody = await team.person("nobody", scope=TokenScope(frozenset({Right.CALL})))
    assert (await nobody.token.get("/api/v1/agents")).status == 403


async def test_an_instance_is_there_for_its_owner_alone(
    open_site: Opening, demo: dict[str, Any], hostile_http: ListeningProgram
) -> None:
    team = await open_site({"demo": demo}, people_mode="password", agents=[Agent("all", "All")])
    root, ada = await team.person("root", "admin"), await team.person("ada")
    body = {"name": "S", "url": f"{hostile_http.url}/good/api-agents", "private_addresses": True}
    server = (await root.token.post("/api/v1/servers", body)).json["id"]
    await root.token.post("/api/v1/instances", {"server_id": server, "slug": "roots"})
    assert "mcp_roots__echo" in await tools_of(root.token, "all")
    assert "mcp_roots__echo" not in await tools_of(ada.token, "all")


async def test_looking_at_an_agent_connects_nothing_for_a_chat(
    open_site: Opening, demo: dict[str, Any], hostile_http: ListeningProgram
) -> None:
    team = await open_site({"demo": demo}, agents=[Agent("all", "All")])
    client = team.client()
    body = {"name": "S", "url": f"{hostile_http.url}/good/api-lanes", "private_addresses": True}
    server = (await client.post("/api/v1/servers", body)).json["id"]
    await client.post("/api/v1/instances", {"server_id": server, "slug": "mine"})
    assert "mcp_mine__echo" in await tools_of(client, "all")
    assert team.services.core.manager.list_dedicated_connections("") == []


async def test_the_native_server_is_nowhere_else(
    open_site: Opening, demo: dict[str, Any], tmp_path: Path
) -> None:
    local_site = await open_site({"demo": demo}, agents=[READER], workspace_root=str(tmp_path))
    client = local_site.client()
    await tools_of(client, "reader")
    for path in (
        "/api/v1/status",
        "/api/v1/tools",
        "/api/v1/tools?agent=reader",
        "/metrics",
        "/ui/",
        "/ui/admin/mcp",
    ):
        text = (await client.get(path)).text
        assert "@native" not in text, path
        assert "view_file" not in text, path
    assert (await client.get("/api/v1/tools/view_file")).status == 404
    assert (await client.post("/api/v1/tools/view_file/call", {"arguments": {"path": "x"}})).status == 404
    assert (await client.get("/api/v1/tools?server=@native")).status == 404
    assert (await client.post("/api/v1/servers/@native/restart")).status == 404
    why = (await client.get("/api/v1/tools/view_file/why")).json
    assert why["verdict"] == "hide"
    for address in ("/mcp", "/mcp/agents/reader", "/mcp/servers/@native"):
        response = await client.post(
            address, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        )
        assert "view_file" not in response.text, address
    assert (
        await client.post("/mcp/servers/@native", {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    ).status == 404


# The file, while Toolyard runs.


@pytest.fixture
async def open_visitor() -> AsyncIterator[Callable[[str], HttpClient]]:
    """``open_visitor(url)``: somebody who asks that Toolyard."""
    clients: list[HttpClient] = []

    def visit(url: str) -> HttpClient:
        clients.append(HttpClient(url))
        return clients[-1]

    yield visit
    for client in clients:
        await client.close()


GOOD = "## Reader\n---\ntools: [demo_weekday]\n---\nRead.\n"
OTHER = "## Reader\n---\ntools: [demo_count]\n---\nRead.\n\n## Writer\n---\n---\nWrite.\n"
BROKEN = "## Reader\n---\ntools: all\n---\nRead.\n"


async def agents_until(client: Any, ready: Any) -> Any:
    deadline = time.monotonic() + 30
    while True:
        agents = (await client.get("/api/v1/agents")).json
        if ready(agents):
            return agents
        assert time.monotonic() < deadline, f"did not come true: {agents}"
        await asyncio.sleep(0.05)


async def list_gateway_tools(client: Any, agent: str) -> set[str]:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    answer = await client.post(f"/mcp/agents/{agent}", body)
    return {tool["name"] for tool in answer.json["result"]["tools"]} if answer.status == 200 else set()


async def list_api_tools(client: Any, agent: str) -> set[str]:
    answer = await client.get(f"/api/v1/tools?agent={agent}")
    return {tool["name"] for tool in answer.json["items"]} if answer.status == 200 else set()


@pytest.mark.slow
async def test_a_changed_file_is_in_force_at_once_for_every_caller(
    serve: Starting, open_visitor: Callable[[str], HttpClient], demo: dict[str, Any]
) -> None:
    site = await serve({"demo": demo})
    client, file = open_visitor(site.url), site.data / "AGENTS.md"
    assert (await client.get("/api/v1/agents")).json == {"items": [], "overridden": [], "problems": []}
    file.write_text(GOOD)
    await agents_until(
        client, lambda agents_page: [each["id"] for each in agents_page["items"]] == ["reader"]
    )
    assert (
        await list_api_tools(client, "reader")
        == await list_gateway_tools(client, "reader")
        == {"demo_weekday"}
    )
    file.write_text(OTHER)
    await agents_until(client, lambda agents_page: len(agents_page["items"]) == 2)
    assert (
        await list_api_tools(client, "reader") == await list_gateway_tools(client, "reader") == {"demo_count"}
    )
    assert "demo_weekday" in await list_gateway_tools(client, "writer")

    file.write_text(BROKEN)
    agents_page = await agents_until(client, lambda agents_page: agents_page["problems"])
    [problem] = agents_page["problems"]
    assert (problem["file"], problem["line"], problem["path"]) == (str(file), 3, "Reader.tools")
    assert [each["id"] for each in agents_page["items"]] == ["reader", "writer"]
    assert await list_api_tools(client, "reader") == {"demo_count"}
    assert "AGENTS.md:3" in site.errors

    file.unlink()
    await agents_until(client, lambda agents_page: "was removed" in json.dumps(agents_page["problems"]))
    assert await list_api_tools(client, "reader") == {"demo_count"}
    file.write_text(GOOD)
    await agents_until(
        client, lambda agents_page: not agents_page["problems"] and len(agents_page["items"]) == 1
    )
    assert await list_api_tools(client, "writer") == await list_gateway_tools(client, "writer") == set()


@pytest.mark.slow
async def test_a_start_with_a_broken_file_has_no_agents_and_says_so(
    serve: Starting, open_visitor: Callable[[str], HttpClient], demo: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "elsewhere.md"
    file.write_text(BROKEN)
    site = await serve({"demo": demo}, TOOLYARD_AGENTS_PATH=str(file))
    client = open_visitor(site.url)
    agents = (await client.get("/api/v1/agents")).json
    assert agents["items"] == []
    assert [(each["file"], each["line"]) for each in agents["problems"]] == [(str(file), 3)]
    assert "elsewhere.md:3" in site.errors
    file.write_text(GOOD)
    await agents_until(client, lambda agents: [each["id"] for each in agents["items"]] == ["reader"])


async def test_gateway_listeners_are_notified_of_changed_tools(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    local_site = await open_site({"demo": demo}, agents=[READER])
    event_names: list[str] = []
    watch = Subscription(
        LOCAL_PRINCIPAL, lambda _: True, lambda method, _: event_names.append(method), {"tools"}
    )
    local_site.part(GatewayMount).gateway.client_subscriptions.add(watch)
    local_site.services.apply_agents(LoadedAgents(Path("AGENTS.md"), (READER,)))
    assert event_names == []
    local_site.services.apply_agents(LoadedAgents(Path("AGENTS.md"), (META,)))
    assert event_names == ["notifications/tools/list_changed"]
