"""``/api/v1/tools``: what may be seen and called, also with a token that is limited."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.types.account import Right, TokenScope
from toolyard.types.agent import Agent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.web.conftest import InProcessApp, Opening

READ_AND_CALL = frozenset({Right.READ, Right.CALL})
DEEP = '{"a":' * 600 + "1" + "}" * 600


async def names(client: Any, query: str = "") -> list[str]:
    answer = await client.get(f"/api/v1/tools{query}")
    assert answer.status == 200, answer.text
    return [each["name"] for each in answer.json["items"]]


async def test_tools_are_listed_with_everything_about_them(local_site: InProcessApp) -> None:
    answer = await local_site.client().get("/api/v1/tools")
    assert answer.status == 200
    assert [each["name"] for each in answer.json["items"]] == ["demo_count", "demo_weekday"]
    tool = answer.json["items"][1]
    assert (tool["id"], tool["server"]) == ("demo/weekday", "demo")
    assert tool["input_schema"]["properties"]["date"]
    assert tool["annotations"]["readOnlyHint"] is True
    assert answer.json["failures"] == []
    assert answer.json["listed_seconds_ago"]["demo"] < 60
    one = await local_site.client().get("/api/v1/tools/demo_weekday")
    assert one.json == tool


async def test_a_call_answers_in_both_views(local_site: InProcessApp) -> None:
    answer = await local_site.client().post(
        "/api/v1/tools/demo_weekday/call", {"arguments": {"date": "2026-07-28"}}
    )
    assert answer.status == 200, answer.text
    result = answer.json
    assert (result["text"], result["is_error"]) == ("2026-07-28 is a Tuesday.", False)
    assert result["raw"]["content"][0]["text"] == result["text"]


async def test_a_tools_own_failure_is_a_result(local_site: InProcessApp) -> None:
    answer = await local_site.client().post(
        "/api/v1/tools/demo_weekday/call", {"arguments": {"date": "soon"}}
    )
    assert (answer.status, answer.json["is_error"]) == (200, True)


async def test_an_answer_that_nests_deeply_is_an_answer(
    open_site: Opening, minimal_server: dict[str, Any], tmp_path: Path
) -> None:
    # As the tiny server, but for one more field of its answer.
    result_text = '{"content": [{"type": "text", "text": text}]'
    deep = f'{result_text}, "structuredContent": json.loads({DEEP!r})'
    script = tmp_path / "deep_server.py"
    script.write_text(Path(minimal_server["args"][-1]).read_text().replace(result_text, deep))
    toolyard = await open_site(
        {"deep": {**minimal_server, "args": [*minimal_server["args"][:-1], str(script)]}}
    )
    answer = await toolyard.client().post("/api/v1/tools/deep_echo/call", {"arguments": {"needed": 1}})
    assert answer.status == 200, answer.text
    assert answer.json["raw"]["structuredContent"] == json.loads(DEEP)


async def test_a_misspelled_hidden_tool_is_suggested_to_its_operator_only(
    local_site: InProcessApp, password_site: InProcessApp
) -> None:
    hints = [
        (await client.post("/api/v1/tools/demo_foregt/call", {})).json["hint"]
        for client in (
            local_site.client(),
            (await password_site.person("ada", scope=TokenScope(READ_AND_CALL))).token,
        )
    ]
    assert hints[0].startswith("did you mean 'demo_forget'? It is hidden (write tools): this tool can change")
    assert "demo_forget" not in hints[1]


async def test_a_hidden_tool_is_refused_with_the_rule(local_site: InProcessApp) -> None:
    client = local_site.client()
    hidden = await client.post("/api/v1/tools/demo_forget/call", {})
    missing = await client.post("/api/v1/tools/demo_nothing/call", {})
    assert hidden.status == missing.status == 404
    assert hidden.json["type"] == missing.json["type"]
    assert hidden.json["detail"].startswith("'demo_forget' is hidden: this tool can change data ")
    assert hidden.json["hint"] == "GET /api/v1/tools/{name}/why explains all rules"
    assert missing.json["detail"] == "no tool named 'demo_nothing' is available"
    response = await client.get("/api/v1/tools/demo_forget")
    assert (response.status, response.json["detail"]) == (404, hidden.json["detail"])
    [hidden_tool] = (await client.get("/api/v1/tools")).json["hidden"]
    assert (hidden_tool["name"], hidden_tool["rule"]) == ("demo_forget", "write tools")


async def test_why_tells_the_chain(local_site: InProcessApp) -> None:
    answer = await local_site.client().get("/api/v1/tools/demo_forget/why")
    assert answer.status == 200, answer.text
    assert (answer.json["verdict"], answer.json["tool"]) == ("refuse", "demo/forget")
    assert any(link["outcome"] == "refuse" for link in answer.json["chain"])
    assert (await local_site.client().get("/api/v1/tools/nothing/why")).status == 404


async def test_a_server_that_cannot_be_listed_is_among_the_failures(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    local = await open_site({"demo": demo, "bad": {"command": "no-such-program"}})
    client = local.client()
    tools = (await client.get("/api/v1/tools")).json
    assert len(tools["items"]) == 2
    assert [each["server"] for each in tools["failures"]] == ["bad"]
    assert tools["failures"][0]["problem"]["detail"] == "command not found: no-such-program"
    assert await names(client, "?server=demo") == ["demo_count", "demo_weekday"]
    call = await client.post("/api/v1/tools/bad_anything/call", {})
    assert call.status == 502
    assert call.json["type"] == "urn:toolyard:problem:unreachable"
    assert call.json["server"] == "bad"
    assert (await client.get("/api/v1/tools?server=nothing")).status == 404


@pytest.mark.parametrize(
    "body",
    [{"arguments": []}, {"arguments": "date"}, {"argument": {}}, [], 1, {"agent": 3}, {"bundles": "a"}],
)
async def test_a_call_of_the_wrong_shape_is_refused(local_site: InProcessApp, body: Any) -> None:
    answer = await local_site.client().post("/api/v1/tools/demo_weekday/call", body)
    assert answer.status == 422
    assert answer.json["errors"]


async def test_an_agent_or_a_bundle_that_there_is_not_is_told(local_site: InProcessApp) -> None:
    for query in ("agent=nobody", "bundle=nothing"):
        answer = await local_site.client().get(f"/api/v1/tools?{query}")
        assert answer.status == 404
        assert "unknown" in answer.json["errors"][0]["message"]


async def test_a_disconnect_cancels_the_call(
    local_site: InProcessApp, wait_until: Callable[..., Awaitable[None]]
) -> None:
    client = local_site.client()
    await client.get("/api/v1/tools")
    body = {"arguments": {"to": 100, "pause": 0.2}}
    call = asyncio.create_task(client.post("/api/v1/tools/demo_count/call", body))
    await wait_until(lambda: local_site.services.core.manager.status("demo").in_flight == 1)
    call.cancel()
    await wait_until(lambda: local_site.services.core.manager.status("demo").in_flight == 0)
    entries: list[Any] = []
    while not entries:
        entries = (await local_site.client().get("/api/v1/audit?action=tool.call")).json["items"]
    assert entries[0]["outcome"] == "cancelled"


# Tokens.


async def test_a_token_without_the_right_may_not(password_site: InProcessApp) -> None:
    reader = await password_site.person("ada", scope=TokenScope(frozenset({Right.READ})))
    assert await names(reader.token)
    call = await reader.token.post("/api/v1/tools/demo_weekday/call", {"arguments": {"date": "2026-07-28"}})
    assert call.status == 403
    assert "call" in call.json["detail"]
    caller = await password_site.person("bob", scope=TokenScope(frozenset({Right.CALL})))
    assert (await caller.token.get("/api/v1/tools")).status == 403
    call = await caller.token.post("/api/v1/tools/demo_weekday/call", {"arguments": {"date": "2026-07-28"}})
    assert call.status == 200


@pytest.mark.parametrize(
    ("limits", "expected_tools"),
    [
        ({"tools": ("demo_w*",)}, ["demo_weekday"]),
        ({"tools": ("*", "!demo_c*")}, ["demo_weekday"]),
        ({"tools": ()}, []),
        ({"servers": ("demo",)}, ["demo_count", "demo_weekday"]),
        ({"servers": ("d*",), "tools": ("demo_count",)}, ["demo_count"]),
        ({"servers": ("other",)}, []),
        ({"agents": ("planner",)}, []),
    ],
)
async def test_a_token_is_limited_on_the_call_path_itself(
    password_site: InProcessApp, limits: dict[str, Any], expected_tools: list[str]
) -> None:
    person = await password_site.person("ada", scope=TokenScope(READ_AND_CALL, **limits))
    assert await names(person.token) == expected_tools
    hidden = [each["name"] for each in (await person.token.get("/api/v1/tools")).json["hidden"]]
    assert hidden == (
        ["demo_forget"] if limits in ({"servers": ("demo",)}, {"tools": ("*", "!demo_c*")}) else []
    )
    # The write tool is hidden from everybody, but only tokens that cover it may know that it exists.
    calls = [("demo_weekday", {"date": "2026-07-28"}), ("demo_count", {"to": 1, "pause": 0})]
    for name, arguments in (*calls, *(() if hidden else [("demo_forget", {})])):
        answer = await person.token.post(f"/api/v1/tools/{name}/call", {"arguments": arguments})
        assert answer.status == (200 if name in expected_tools else 404), answer.text
        assert (await person.token.get(f"/api/v1/tools/{name}")).status == (
            200 if name in expected_tools else 404
        )
        if name not in expected_tools:
            missing = await person.token.post("/api/v1/tools/demo_nothing/call", {"arguments": arguments})
            answer_texts = answer.text.replace(name, "X"), missing.text.replace("demo_nothing", "X")
            assert answer_texts[0].partition('"hint"')[0] == answer_texts[1].partition('"hint"')[0]
    ids = [each["id"] for each in (await person.token.get("/api/v1/status")).json["items"]]
    assert ids == ([] if limits.get("servers") == ("other",) else ["demo"])


async def test_why_names_the_token(password_site: InProcessApp) -> None:
    person = await password_site.person("ada", scope=TokenScope(READ_AND_CALL, tools=("demo_w*",)))
    answer = (await person.token.get("/api/v1/tools/demo_count/why")).json
    assert answer["verdict"] == "hide"
    assert answer["chain"][-1] == {
        "rule": "token",
        "outcome": "hide",
        "reason": "no pattern of the token matches 'demo_count'",
    }


async def test_a_token_for_an_agent_works_as_that_agent_only(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    planner = Agent("planner", "Planner", tools=("demo_w*",))
    local = await open_site({"demo": demo}, people_mode="password", agents=[planner])
    person = await local.person("ada", scope=TokenScope(READ_AND_CALL, agents=("planner",)))
    assert await names(person.token) == []
    assert await names(person.token, "?agent=planner") == ["demo_weekday"]
    body = {"arguments": {"date": "2026-07-28"}}
    assert (await person.token.post("/api/v1/tools/demo_weekday/call", body)).status == 404
    answer = await person.token.post("/api/v1/tools/demo_weekday/call", {**body, "agent": "planner"})
    assert answer.status == 200


async def test_calls_are_in_the_audit_log_with_actor_and_tool(password_site: InProcessApp) -> None:
    admin, ada = await password_site.person("root", "admin"), await password_site.person("ada")
    await ada.token.post("/api/v1/tools/demo_weekday/call", {"arguments": {"date": "2026-07-28"}})
    await ada.token.post("/api/v1/tools/demo_forget/call", {})
    await admin.token.post("/api/v1/servers/demo/restart")
    entries = (await admin.token.get("/api/v1/audit?action=tool.call")).json["items"]
    audit_rows = [(each["actor_name"], each["target"], each["outcome"], each["address"]) for each in entries]
    assert audit_rows == [
        ("ada", "demo/forget", "ToolRefused", "127.0.0.1"),
        ("ada", "demo/weekday", "ok", "127.0.0.1"),
    ]
    assert "2026-07-28" not in str(entries)
