"""Agents that people create: who may see, change and use them, and that none widens policy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.agents.chat.chat_harness import chat_server, fake_model
from tests.loop_watch import LoopWatch
from tests.web.chat.chat_client import begin, of_kind, say, wait_for_end

from toolyard.agents.definitions.watch import LoadedAgents
from toolyard.gateway.subscriptions import Subscription
from toolyard.types.account import LOCAL_PRINCIPAL, Right, TokenScope
from toolyard.types.agent import Agent
from toolyard.web.gateway_mount import GatewayMount

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram
    from tests.web.conftest import HttpClient, HttpReply, InProcessApp, Opening

READER = {
    "name": "Reader",
    "tools": ["demo_*", "!demo_count"],
    "prompt": "Read.",
    "starters": ["What is new?"],
}


async def create(client: HttpClient, **values: Any) -> Any:
    answer = await client.post("/api/v1/agents", {**READER, **values})
    assert answer.status == 201, answer.text
    return answer.json


async def list_ids(client: HttpClient) -> list[str]:
    return [each["id"] for each in (await client.get("/api/v1/agents")).json["items"]]


async def list_tools(client: HttpClient, agent: str) -> set[str]:
    """The tools of an agent, as the API and the gateway agree on them."""
    answer = await client.get(f"/api/v1/tools?agent={agent}")
    tool_names = {tool["name"] for tool in answer.json["items"]} if answer.status == 200 else set[str]()
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    response = await client.post(f"/mcp/agents/{agent}", body)
    assert (response.status == 200) == (answer.status == 200)
    if response.status == 200:
        assert {tool["name"] for tool in response.json["result"]["tools"]} == tool_names
    return tool_names


def problem(answer: HttpReply) -> tuple[int, str]:
    return answer.status, answer.json["type"].rpartition(":")[2]


async def test_an_agent_is_created_changed_and_deleted(local_site: InProcessApp) -> None:
    client = local_site.client()
    instance = await create(client)
    assert (instance["id"], instance["origin"], instance["version"], instance["editable"]) == (
        "reader",
        "own",
        1,
        True,
    )
    assert await list_tools(client, "reader") == {"demo_weekday"}
    for id in ("reader", instance["stored_id"]):
        assert (await client.get(f"/api/v1/agents/{id}")).json == instance
    response = await client.patch(
        f"/api/v1/agents/{instance['stored_id']}", {"version": 1, "tools": ["demo_count"], "model": None}
    )
    assert response.status == 200, response.text
    assert (response.json["version"], response.json["prompt"]) == (2, "Read.")
    # At once, also at the gateway, which remembers callers for a second.
    assert await list_tools(client, "reader") == {"demo_count"}
    assert (await client.delete(f"/api/v1/agents/{instance['stored_id']}")).status == 204
    assert await list_ids(client) == []
    assert (await client.get("/mcp/agents/reader")).status == 404


async def test_the_second_of_two_editors_is_refused(local_site: InProcessApp) -> None:
    client = local_site.client()
    instance = await create(client)
    path = f"/api/v1/agents/{instance['stored_id']}"
    first = await client.patch(path, {"version": 1, "description": "first"})
    second = await client.patch(path, {"version": 1, "description": "second"})
    assert first.status == 200
    assert problem(second) == (409, "outdated")
    assert (await client.get(path)).json["description"] == "first"


async def test_a_private_agent_exists_for_its_owner_alone(password_site: InProcessApp) -> None:
    ada, bob, root = [
        await password_site.person(name, role)
        for name, role in (("ada", "user"), ("bob", "user"), ("root", "admin"))
    ]
    instance = await create(ada.token)
    for other in (bob, root):
        assert await list_ids(other.token) == []
        assert await list_tools(other.token, "reader") == set()
        for id in ("reader", instance["stored_id"]):
            for answer in (
                await other.token.get(f"/api/v1/agents/{id}"),
                await other.token.get(f"/api/v1/agents/{id}/tools"),
                await other.token.get(f"/api/v1/agents/{id}/export"),
                await other.token.patch(f"/api/v1/agents/{id}", {"version": 1}),
                await other.token.delete(f"/api/v1/agents/{id}"),
                await other.browser.get(f"/ui/agents/{id}"),
                await other.browser.get(f"/ui/agents/{id}/edit"),
                await other.browser.get(f"/ui/agents/{id}/delete"),
            ):
                assert answer.status == 404, answer.text
        assert problem(await other.token.post("/api/v1/chats", {"agent": "reader"})) == (404, "no-such-agent")
    # The same name is free for others.
    assert (await create(bob.token))["id"] == "reader"


async def test_admins_share_agents_with_all_users_and_only_admins_change_them(
    password_site: InProcessApp,
) -> None:
    ada, root = await password_site.person("ada"), await password_site.person("root", "admin")
    response = await ada.token.post("/api/v1/agents", {**READER, "shared": True})
    assert problem(response) == (403, "not-allowed")
    instance = await create(root.token, shared=True)
    reader = (await ada.token.get("/api/v1/agents/reader")).json
    assert (reader["origin"], reader["editable"]) == ("shared", False)
    assert await list_tools(ada.token, "reader") == {"demo_weekday"}
    path = f"/api/v1/agents/{instance['stored_id']}"
    assert problem(await ada.token.patch(path, {"version": 1})) == (403, "not-allowed")
    assert problem(await ada.token.delete(path)) == (403, "not-allowed")
    own = await create(ada.token, name="Mine")
    shares = await ada.token.patch(f"/api/v1/agents/{own['stored_id']}", {"version": 1, "shared": True})
    assert problem(shares) == (403, "not-allowed")
    # Another admin may change it, and takes it back for themselves.
    boss = await password_site.person("boss", "admin")
    assert (await boss.token.patch(path, {"version": 1, "shared": False})).json["origin"] == "own"
    assert await list_ids(ada.token) == ["mine"]
    assert await list_ids(boss.token) == ["reader"]


async def test_an_agent_never_gets_more_than_its_user(
    open_site: Opening, demo: dict[str, Any], hostile_http: ListeningProgram
) -> None:
    team = await open_site({"demo": {**demo, "denyTools": ["weekday"]}}, people_mode="password")
    root, ada = await team.person("root", "admin"), await team.person("ada")
    body = {"name": "S", "url": f"{hostile_http.url}/good/stored-agents", "private_addresses": True}
    server = (await root.token.post("/api/v1/servers", body)).json["id"]
    await root.token.post("/api/v1/instances", {"server_id": server, "slug": "roots"})
    everything = ["*", "mcp_roots__echo", "demo_weekday", "demo_note"]
    await create(root.token, name="Greedy", tools=everything, shared=True)
    # The instance is there for its owner alone, whoever names its tools.
    assert "mcp_roots__echo" in await list_tools(root.token, "greedy")
    for agent in ("greedy", (await create(ada.token, name="Own", tools=everything))["id"]):
        tools = await list_tools(ada.token, agent)
        assert "mcp_roots__echo" not in tools
        # Denied by the entry of its server.
        assert "demo_weekday" not in tools
        call = await ada.token.post(
            f"/api/v1/tools/mcp_roots__echo/call?agent={agent}", {"arguments": {"text": "x"}}
        )
        assert call.status == 404
    without = (await ada.token.get("/api/v1/tools")).json["items"]
    assert await list_tools(ada.token, "own") <= {each["name"] for each in without}


async def test_a_limited_token_sees_its_tools_and_changes_no_agent(password_site: InProcessApp) -> None:
    ada = await password_site.person(
        "ada", scope=TokenScope(frozenset({Right.READ, Right.CALL, Right.MANAGE}), agents=("read*",))
    )
    csrf = (
        (await ada.browser.get("/ui/agents/_new")).text.partition('name="csrf" value="')[2].partition('"')[0]
    )
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": password_site.url}
    for name in ("Reader", "Writer"):
        response = await ada.browser.post(
            "/ui/agents/_new", data=f"csrf={csrf}&name={name}&which=all", headers=form
        )
        assert response.status == 303, response.text
    assert await list_ids(ada.token) == ["reader"]
    reader = (await ada.token.get("/api/v1/agents/reader")).json
    widening = await ada.token.patch(f"/api/v1/agents/{reader['stored_id']}", {"version": 1, "tools": None})
    assert problem(widening) == (403, "not-allowed")
    assert problem(await ada.token.post("/api/v1/agents", READER)) == (403, "not-allowed")
    assert (await ada.token.get("/ui/agents/_new")).status in (403, 404)


async def test_the_file_wins_by_name_and_the_other_is_shown_as_overridden(
    password_site: InProcessApp,
) -> None:
    ada, root = await password_site.person("ada"), await password_site.person("root", "admin")
    instance = await create(ada.token)
    await create(root.token, name="READER", shared=True, tools=[])
    # One's own is used in place of a shared one.
    assert await list_tools(ada.token, "reader") == {"demo_weekday"}
    agents = (await ada.token.get("/api/v1/agents")).json
    assert [each["origin"] for each in agents["overridden"]] == ["shared"]
    file = Agent("reader", "Reader", tools=("demo_count",), file="AGENTS.md", line=1)
    password_site.services.apply_agents(LoadedAgents(Path("AGENTS.md"), (file,)))
    agents = (await ada.token.get("/api/v1/agents")).json
    assert [each["origin"] for each in agents["items"]] == ["file"]
    assert sorted(each["origin"] for each in agents["overridden"]) == ["own", "shared"]
    assert await list_tools(ada.token, "reader") == {"demo_count"}
    page = (await ada.browser.get(f"/ui/agents/{instance['stored_id']}")).text
    assert "AGENTS.md has an agent of the same name" in page
    assert "edit that file to change it" in (await ada.browser.get("/ui/agents/reader")).text
    response = await ada.token.post("/api/v1/agents", READER)
    assert problem(response) == (409, "taken")
    renamed_response = await ada.token.patch(
        f"/api/v1/agents/{instance['stored_id']}", {"version": 1, "name": "Other"}
    )
    assert renamed_response.json["id"] == "other"


@pytest.mark.parametrize(
    ("field", "agent_values"),
    [
        ("name", {"name": " "}),
        ("name", {"name": "…"}),
        ("prompt", {"prompt": "p" * 1_000_000}),
        ("model", {"model": "openai:not-allowed"}),
        ("model", {"model": "<b>"}),
        ("tools.0", {"tools": ["two words"]}),
        ("temperature", {"temperature": 3.0}),
        ("max_steps", {"max_steps": 0}),
        ("starters", {"starters": ["s"] * 11}),
    ],
)
async def test_an_invalid_field_is_refused_and_named(
    local_site: InProcessApp, field: str, agent_values: dict[str, Any]
) -> None:
    answer = await local_site.client().post("/api/v1/agents", {**READER, **agent_values})
    assert problem(answer) == (422, "invalid")
    assert [each["field"].replace("[", ".").rstrip("]") for each in answer.json["errors"]] == [field]


async def test_a_person_has_as_many_agents_as_allowed(open_site: Opening) -> None:
    client = (await open_site({}, agent_limit=2)).client()
    await create(client)
    response = await client.post("/api/v1/agents/import", {"text": "## A\n---\n---\n\n## B\n---\n---\n"})
    assert problem(response) == (409, "limit-reached")
    # An import that is refused adds nothing.
    await create(client, name="A")
    assert problem(await client.post("/api/v1/agents", {"name": "C"})) == (409, "limit-reached")


async def test_a_thousand_tools_and_hostile_texts_are_kept_as_they_are(local_site: InProcessApp) -> None:
    client = local_site.client()
    html = "<script>alert(1)</script>\"'&"
    tools = [f"tool_{number}" for number in range(1_000)]
    agent_values = {
        "name": f"A {html}",
        "description": html,
        "prompt": html,
        "starters": [html],
        "tools": tools,
    }
    instance = await create(client, **agent_values)
    assert {key: instance[key] for key in agent_values} == agent_values
    assert await list_tools(client, instance["id"]) == set()
    for path in (
        "",
        f"/{instance['stored_id']}",
        f"/{instance['stored_id']}/edit",
        f"/{instance['stored_id']}/delete",
    ):
        page = await client.get(f"/ui/agents{path}")
        assert page.status == 200
        assert "<script>alert" not in page.text


async def test_an_export_reads_back_equal(local_site: InProcessApp) -> None:
    client = local_site.client()
    instance = await create(
        client,
        name='Ünï "x"',
        prompt="```\n## Other\n---\nmodel: x\n---",
        tools=["*", '!a"b'],
        temperature=0.5,
        max_steps=3,
        mode="meta",
    )
    response = await client.get(f"/api/v1/agents/{instance['id']}/export")
    assert response.headers["content-type"].startswith("text/markdown")
    assert "attachment" in response.headers["content-disposition"]
    await client.delete(f"/api/v1/agents/{instance['stored_id']}")
    answer = await client.post("/api/v1/agents/import", {"text": response.text})
    assert answer.status == 201, answer.text
    [read] = answer.json["items"]
    assert {**read, "stored_id": ""} == {**instance, "stored_id": ""}


@pytest.mark.parametrize("text", ["", "no agent", "## A\n---\ntools: all\n---\n", "## A\n---\nmodel: x\n"])
async def test_a_text_that_is_not_valid_imports_nothing(local_site: InProcessApp, text: str) -> None:
    client = local_site.client()
    assert problem(await client.post("/api/v1/agents/import", {"text": text})) == (422, "invalid")
    assert await list_ids(client) == []


@pytest.mark.parametrize(
    "text",
    [
        "## A\n---\nstarters: [" + "a," * 45_000 + "]\n---\n",
        "## A\n---\nstarters: [" + "a," * 400_000 + "]\n---\n",
        "## A\n---\nstarters: [" + "a," * 510_000 + "]\n---\n",
        "".join(f"## Agent {number}\n---\n---\n" for number in range(20_000)),
        "## A\n---\n" + "".join(f"k{number:x}:\n" for number in range(12_000)) + "---\n",
        "## A\n---\ntools:\n" + "- a b\n" * 100_000 + "---\n",
    ],
    ids=["front matter", "long front matter", "long text", "agents", "unknown keys", "mistakes"],
)
async def test_other_tasks_run_while_a_long_text_is_imported(local_site: InProcessApp, text: str) -> None:
    client = local_site.client()
    await client.post("/api/v1/agents/import", {"text": ""})
    async with LoopWatch() as watch:
        answer = await client.post("/api/v1/agents/import", {"text": text})
    assert answer.status in (201, 409, 422)
    assert len(answer.body) < 50_000
    assert watch.longest_seconds < 0.15


@pytest.mark.parametrize(
    "tools",
    [
        ["a" + "*b" * 9],
        [f"*a*b*{number}" for number in range(101)],
        [f"{'!' * (number % 2)}a{number}" for number in range(200)],
        [f"a{number}" for number in range(2_001)],
    ],
    ids=["stars", "patterns", "alternations", "entries"],
)
async def test_patterns_that_take_long_are_refused(local_site: InProcessApp, tools: list[str]) -> None:
    response = await local_site.client().post("/api/v1/agents", {**READER, "tools": tools})
    assert problem(response) == (422, "invalid")
    assert [each["field"].partition("[")[0] for each in response.json["errors"]] == ["tools"]


async def test_every_change_is_in_the_audit_log(password_site: InProcessApp) -> None:
    ada = await password_site.person("ada")
    instance = await create(ada.token)
    await ada.token.patch(f"/api/v1/agents/{instance['stored_id']}", {"version": 1, "name": "R2"})
    await ada.token.post("/api/v1/agents/import", {"text": "## A\n---\n---\n"})
    await ada.token.delete(f"/api/v1/agents/{instance['stored_id']}")
    found_audit_entries = await password_site.services.database.audit.entries(
        before=None, limit=50, action=None, actor=ada.user.id
    )
    assert [each.action for each in reversed(found_audit_entries) if each.action.startswith("agent.")] == [
        "agent.create",
        "agent.edit",
        "agent.import",
        "agent.delete",
    ]


async def test_gateway_clients_are_told_when_an_agent_changes(local_site: InProcessApp) -> None:
    client, notified = local_site.client(), asyncio.Event()
    instance = await create(client)
    watch = Subscription(LOCAL_PRINCIPAL, lambda _: True, lambda *_: notified.set(), {"tools"})
    local_site.part(GatewayMount).gateway.client_subscriptions.add(watch)
    await client.patch(f"/api/v1/agents/{instance['stored_id']}", {"version": 1, "tools": []})
    await asyncio.wait_for(notified.wait(), 30)


async def test_another_replica_uses_a_change_at_once(
    open_site: Opening, demo: dict[str, Any], database_url: str | None, tmp_path: Path
) -> None:
    options: dict[str, Any] = {} if database_url is None else {"database_url": database_url}
    settings = {"secret_key": "a key for tests, long enough", **options, "data": tmp_path / "shared"}
    first, second = [(await open_site({"demo": demo}, **settings)).client() for _ in range(2)]
    instance = await create(first)
    assert await list_tools(second, "reader") == {"demo_weekday"}
    await second.patch(f"/api/v1/agents/{instance['stored_id']}", {"version": 1, "tools": ["demo_none"]})
    assert (await first.get("/api/v1/agents/reader")).json["tools"] == ["demo_none"]
    assert (await first.get("/api/v1/tools?agent=reader")).json["items"] == []


# Chats.


@pytest.fixture
async def chatting(open_site: Opening, model_program: ListeningProgram, tmp_path: Path) -> InProcessApp:
    config = {"s": chat_server(tmp_path / "journal")}
    return await open_site(config, models={"fake": fake_model(model_program.url)}, write_tools="ask")


async def calls(client: HttpClient, chat: str) -> Sequence[str]:
    return [each["body"]["name"] for each in await of_kind(client, chat, "call")]


async def test_a_chat_uses_a_stored_agent(chatting: InProcessApp) -> None:
    client = chatting.client()
    await create(client, name="Looker", tools=["s_look"])
    chat = await begin(client, agent="looker")
    await say(client, chat, "call s_look {}")
    await wait_for_end(client, chat)
    assert await calls(client, chat) == ["s_look"]
    tools = (await client.get(f"/api/v1/chats/{chat}/tools")).json["items"]
    assert [each["name"] for each in tools if each["shown"]] == ["s_look"]


async def test_a_running_turn_keeps_the_agent_that_it_began_with(chatting: InProcessApp) -> None:
    client = chatting.client()
    instance = await create(client, name="Looker", tools=["s_*"])
    chat = await begin(client, agent="looker")
    turn = await say(client, chat, 'call s_put {"text": "a"}\nthen call s_look {}')
    [kind] = await wait_for_kind(client, chat, "ask")
    # The turn waits for an approval, while its agent is deleted.
    assert (await client.delete(f"/api/v1/agents/{instance['stored_id']}")).status == 204
    answer = await client.post(f"/api/v1/approvals/{kind['body']['approval']}", {"yes": True})
    assert answer.status < 300, answer.text
    events = await wait_for_end(client, chat, turn - 1)
    assert events[-1].body["why"] == "done"
    response = await client.post(f"/api/v1/chats/{chat}/messages", {"text": "more"})
    assert problem(response) == (409, "chat-refused")


async def wait_for_kind(client: HttpClient, chat: str, kind: str) -> list[dict[str, Any]]:
    async with asyncio.timeout(30):
        while not (event_bodies := await of_kind(client, chat, kind)):
            await asyncio.sleep(0.02)
        return event_bodies


async def test_a_chat_with_a_deleted_agent_says_so_and_offers_a_choice(chatting: InProcessApp) -> None:
    client = chatting.client()
    instance, other = await create(client, name="Gone"), await create(client, name="Other", tools=["s_look"])
    chat = await begin(client, agent="gone")
    assert "no longer exists" not in (await client.get(f"/ui/chat/{chat}")).text
    await client.delete(f"/api/v1/agents/{instance['stored_id']}")
    page = (await client.get(f"/ui/chat/{chat}")).text
    assert "The agent “gone” no longer exists" in page
    assert "Continue without agent" in page
    assert (await client.patch(f"/api/v1/chats/{chat}", {"agent": other["id"]})).status == 200
    await say(client, chat, "call s_look {}")
    await wait_for_end(client, chat)
    assert "no longer exists" not in (await client.get(f"/ui/chat/{chat}")).text


async def test_chats_follow_an_agent_to_its_new_name(chatting: InProcessApp) -> None:
    client = chatting.client()
    instance = await create(client, name="Before", tools=["s_look"])
    chat = await begin(client, agent="before")
    await client.patch(f"/api/v1/agents/{instance['stored_id']}", {"version": 1, "name": "After"})
    assert (await client.get(f"/api/v1/chats/{chat}")).json["agent"] == "after"
    await say(client, chat, "call s_look {}")
    await wait_for_end(client, chat)
    assert await calls(client, chat) == ["s_look"]
