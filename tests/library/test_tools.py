"""What a caller gets to see: all servers as one list, narrowed by agents, bundles and servers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolyard import AgentsError, ConfigError, Tool, ToolRefused, Toolyard, Unreachable
from toolyard.catalog.exposed_names import RenameReason
from toolyard.types.agent import Agent
from toolyard.types.call import Verdict

OpenYard = Callable[..., Toolyard]
Recorders = Callable[..., Any]
TINY = Path(__file__).parent.parent / "servers" / "tiny_server.py"


def names(tools: list[Tool]) -> list[str]:
    return [tool.name for tool in tools]


@pytest.fixture
def start_listing_server(recorder: Recorders, tmp_path: Path) -> Callable[..., Any]:
    """``start_listing_server(name, *tools)``: a server that lists these tools, names or definitions."""

    def make(name: str, *tools: Any) -> Any:
        file = tmp_path / f"tools-{name}"
        whole = [{"name": tool, "inputSchema": {"type": "object"}} for tool in tools if isinstance(tool, str)]
        file.write_text(json.dumps([*whole, *(tool for tool in tools if not isinstance(tool, str))]))
        return recorder(name, "--tools", str(file))

    return make


async def test_the_tools_of_all_servers_are_one_list_sorted_by_name(
    open_yard: OpenYard, start_listing_server: Callable[..., Any]
) -> None:
    servers = {
        "zoo": start_listing_server("zoo", "b", "a"),
        "ant": start_listing_server("ant", "z", "y"),
        "m-n": start_listing_server("m-n", "k"),
    }
    async with open_yard(servers) as yard:
        assert names(await yard.tools()) == ["ant_y", "ant_z", "m-n_k", "zoo_a", "zoo_b"]


async def test_a_tool_is_the_published_one_under_its_exposed_name(
    open_yard: OpenYard, start_listing_server: Callable[..., Any]
) -> None:
    schema = {
        "type": "object",
        "properties": {"q": {"$ref": "#/$defs/q"}},
        "$defs": {"q": {"type": "string"}},
    }
    definition = {
        "name": "look.up",
        "title": "Look up",
        "description": "Looks things up.",
        "inputSchema": schema,
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }
    async with open_yard({"docs": start_listing_server("docs", definition)}) as yard:
        assert await yard.tools() == [
            Tool(
                "docs_look_up",
                "docs/look.up",
                "docs",
                "Look up",
                "Looks things up.",
                schema,
                {"type": "object"},
                {"readOnlyHint": True},
            )
        ]


async def test_one_server_can_be_listed_alone_and_no_other_starts(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    one, two = recorder("one"), recorder("two")
    async with open_yard({"one": one, "two": two}) as yard:
        tools = await yard.tools(server="two")
        assert {tool.server for tool in tools} == {"two"}
        assert "two_echo" in names(tools)
    assert (len(one.starts()), len(two.starts())) == (0, 1)


async def test_fresh_asks_every_server_again(
    open_yard: OpenYard, start_listing_server: Callable[..., Any], tmp_path: Path
) -> None:
    async with open_yard({"one": start_listing_server("one", "old")}) as yard:
        assert names(await yard.tools()) == ["one_old"]
        start_listing_server("one", "new")
        assert names(await yard.tools()) == ["one_old"]
        assert names(await yard.tools(fresh=True)) == ["one_new"]
        assert (await yard.call("one_new", {"text": "x"})).text == "x"


async def test_a_disabled_server_has_no_tools_and_is_not_started(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    one = recorder()
    async with open_yard({"one": {**one.entry, "enabled": False}}) as yard:
        assert await yard.tools(fresh=True) == []
        with pytest.raises(ToolRefused):
            await yard.call("one_echo")
    assert one.starts() == []


async def test_a_broken_definition_is_set_aside_alone_and_why_says_so(
    open_yard: OpenYard, start_listing_server: Callable[..., Any]
) -> None:
    async with open_yard(
        {"one": start_listing_server("one", "good", {"name": "bad", "inputSchema": "none"})}
    ) as yard:
        assert names(await yard.tools()) == ["one_good"]
        decision = yard.why("one_bad")
        assert decision.verdict is Verdict.REFUSE
        assert "inputSchema must be a JSON Schema object, not a string" in decision.explain()
        with pytest.raises(ToolRefused, match="'one_bad' is in quarantine: inputSchema must be"):
            await yard.call("one_bad")


# One tool.


async def test_one_tool_is_found_by_its_name_and_no_more_servers_start_than_that_takes(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    one, two = recorder("one"), recorder("two")
    async with open_yard({"one": one, "two": two}) as yard:
        tool = await yard.find("two_look")
        assert (tool.id, tool.description) == ("two/look", "Looks.")
        assert tool in await yard.tools(server="two")
    assert (len(one.starts()), len(two.starts())) == (0, 1)


async def test_a_tool_is_found_only_if_visible_and_a_server_that_is_down_is_explained(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    servers = {"one": recorder("one"), "gone": {"command": "/no/such/command"}}
    async with open_yard(servers, agents=[Agent("a", "A", tools=("one_look",))]) as yard:
        assert (await yard.find("one_look", agent="a")).name == "one_look"
        for name in ("one_echo", "one_nothing", "gone_tool"):
            with pytest.raises(ToolRefused, match=f"no tool named '{name}' is available"):
                await yard.find(name, agent="a")
        with pytest.raises(ToolRefused, match="'one_touch' is hidden: this tool can change data") as exc_info:
            await yard.find("one_touch")
        assert exc_info.value.rule == "write tools"
        with pytest.raises(ToolRefused) as exc_info:
            await yard.find("one_tuoch")
        assert str(exc_info.value.hint).startswith("did you mean 'one_touch'? It is hidden (write tools): ")
        with pytest.raises(ToolRefused) as exc_info:
            await yard.find("one_tuoch", agent="a")
        assert "one_touch" not in str(exc_info.value.hint)
        assert [(each.name, each.rule) for each in yard.hidden()] == [("one_touch", "write tools")]
        hidden_from_agent = {each.name: each.rule for each in yard.hidden(agent="a")}
        assert (hidden_from_agent["one_echo"], hidden_from_agent["one_touch"]) == ("agent", "write tools")
        with pytest.raises(Unreachable, match="command not found"):
            await yard.find("gone_tool")


# For a model's API.


@pytest.mark.parametrize(
    ("provider", "shape"),
    [
        ("openai", lambda tool: (tool["function"]["name"], tool["function"]["parameters"])),
        ("openai-strict", lambda tool: (tool["function"]["name"], tool["function"]["parameters"])),
        ("openai-responses", lambda tool: (tool["name"], tool["parameters"])),
        ("anthropic", lambda tool: (tool["name"], tool["input_schema"])),
        ("gemini", lambda tool: (tool["name"], tool["parameters"])),
    ],
)
async def test_tools_come_ready_for_a_providers_api(
    provider: Any, shape: Callable[[Any], tuple[str, Any]], open_yard: OpenYard, recorder: Recorders
) -> None:
    async with open_yard({"one": recorder()}) as yard:
        tools = [shape(tool) for tool in await yard.tools(provider=provider)]
        assert [name for name, _ in tools] == names(await yard.tools())
        assert {schema["type"] for _, schema in tools} == {"object"}
        assert all("text" in schema["properties"] for _, schema in tools)


async def test_a_server_that_there_is_not_is_named_with_those_that_there_are(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    async with open_yard({"one": recorder()}) as yard:
        for request in (yard.tools(server="other"), yard.connect(["other"]), yard.restart("other")):
            with pytest.raises(Unreachable, match="not configured") as exc_info:
                await request
            assert exc_info.value.hint == "configured servers: one"


async def test_a_tool_of_a_disabled_server_is_not_shown_but_can_be_explained(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    entry = recorder().entry
    async with open_yard({"one": entry}) as yard:
        (name, *_) = names(await yard.tools())
    async with open_yard({"one": {**entry, "enabled": False}}) as yard:
        assert await yard.tools() == []
        decision = yard.why(name)
        assert decision.decisive is not None
        assert decision.decisive.rule == "state"
        with pytest.raises(ToolRefused):
            await yard.call(name)


# Agents.


AGENTS = [
    Agent("architect", "Architect", tools=("two_*", "!two_fail")),
    Agent("all", "All"),
    Agent("none", "None", tools=()),
    Agent("distant", "Distant", mode="meta"),
]


async def test_an_agent_sees_and_calls_only_tools_matching_its_patterns(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    async with open_yard({"one": recorder("one"), "two": recorder("two")}, agents=AGENTS) as yard:
        everything = names(await yard.tools())
        tool_names = names(await yard.tools(agent="architect"))
        assert tool_names == [name for name in everything if name.startswith("two_") and name != "two_fail"]
        assert names(await yard.tools(agent="all")) == everything
        assert await yard.tools(agent="none") == []
        assert {tool.server for tool in await yard.tools(agent="distant")} == {"toolyard"}
        assert (await yard.call("two_echo", {"text": "x"}, agent="architect")).text == "x"
        for hidden in ("one_echo", "two_fail"):
            with pytest.raises(ToolRefused):
                await yard.call(hidden, agent="architect")
            assert yard.why(hidden, agent="architect").verdict is Verdict.HIDE


@pytest.mark.parametrize("spelling", ["architect", "Architect", " ARCHITECT! "])
async def test_an_agent_is_named_by_its_id_or_its_name(
    spelling: str, open_yard: OpenYard, recorder: Recorders
) -> None:
    async with open_yard({"two": recorder("two")}, agents=AGENTS) as yard:
        assert "two_echo" in names(await yard.tools(agent=spelling))


async def test_an_agent_that_there_is_not_is_an_error_that_names_those_there_are_and_starts_nothing(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    one = recorder()
    async with open_yard({"one": one}, agents=AGENTS) as yard:
        for request in (yard.tools(agent="nobody"), yard.call("one_echo", agent="nobody")):
            with pytest.raises(AgentsError) as exc_info:
                await request
            assert "unknown agent 'nobody'" in str(exc_info.value)
            assert "available agents: architect, all, none, distant" in str(exc_info.value)
    assert one.starts() == []


# Bundles.

BUNDLES = {
    "reading": {"serverId": "one", "mode": "direct", "allowTools": ["look", "echo", "fail"]},
    "talking": {"serverId": "one", "mode": "direct", "allowTools": ["e*"], "denyTools": ["exit*"]},
    "waiting": {"serverId": "one", "mode": "direct", "allowTools": ["wait"]},
    "careful": {"serverId": "one", "mode": "direct", "denyTools": ["fail", "exit*", "wait"]},
    "searched": {"serverId": "one", "mode": "meta", "allowTools": ["look"]},
    "other": {"serverId": "two", "mode": "direct"},
}


@pytest.mark.parametrize(
    ("selected_bundles", "remaining_tools"),
    [
        (["reading"], ["one_echo", "one_fail", "one_look"]),
        (["talking"], ["one_echo"]),
        (["reading", "talking"], ["one_echo"]),
        (["reading", "careful"], ["one_echo", "one_look"]),
        (["reading", "waiting"], []),
        (["searched"], ["one_look"]),
        (["reading", "reading"], ["one_echo", "one_fail", "one_look"]),
    ],
)
async def test_bundles_narrow_their_server_and_hide_the_others(
    selected_bundles: list[str], remaining_tools: list[str], open_yard: OpenYard, recorder: Recorders
) -> None:
    async with open_yard({"one": recorder("one"), "two": recorder("two")}, bundles=BUNDLES) as yard:
        assert names(await yard.tools(bundles=selected_bundles)) == remaining_tools
        with pytest.raises(ToolRefused):
            await yard.call("two_echo", bundles=selected_bundles)
        with pytest.raises(ToolRefused):
            await yard.call("one_wait", bundles=selected_bundles)
        for name in remaining_tools:
            await yard.call(name, {"text": "x"}, bundles=selected_bundles)


async def test_bundles_of_several_servers_stand_side_by_side(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    async with open_yard({"one": recorder("one"), "two": recorder("two")}, bundles=BUNDLES) as yard:
        tool_names = names(await yard.tools(bundles=["talking", "other"]))
        assert [name for name in tool_names if name.startswith("one_")] == ["one_echo"]
        assert "two_wait" in tool_names


async def test_a_direct_bundle_gives_a_model_namespaced_definitions(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    agent = Agent("reader", "Reader", bundles=("reading",))
    bundles = {"reading": BUNDLES["reading"]}
    async with open_yard({"one": recorder()}, bundles=bundles, agents=[agent]) as yard:
        (echo, fail, look) = await yard.tools(agent="reader", provider="anthropic")
        assert look["name"] == "one_look"
        assert look["description"] == "Looks."
        assert "text" in look["input_schema"]["properties"]
        assert (echo["name"], fail["name"]) == ("one_echo", "one_fail")


async def test_a_meta_bundle_keeps_its_tools_out_of_a_models_list(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    bundles = {"searched": BUNDLES["searched"]}
    async with open_yard({"one": recorder()}, bundles=bundles, agents=[Agent("a", "A")]) as yard:
        assert names(await yard.tools(bundles=["searched"])) == ["one_look"]
        assert "one_look" not in names(await yard.tools(agent="a", bundles=["searched"]))
        decision = yard.why("one_look", agent="a", bundles=["searched"])
        assert (decision.verdict, decision.decisive and decision.decisive.rule) == (Verdict.HIDE, "bundles")


async def test_an_agents_own_bundles_are_narrowed_further_by_those_of_the_caller(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    bundles = {key: value for key, value in BUNDLES.items() if value["serverId"] == "one"}
    agent = Agent("reader", "Reader", bundles=("reading",))
    async with open_yard({"one": recorder()}, bundles=bundles, agents=[agent]) as yard:
        assert names(await yard.tools(agent="reader")) == ["one_echo", "one_fail", "one_look"]
        assert names(await yard.tools(agent="reader", bundles=["talking"])) == ["one_echo"]


async def test_a_bundle_that_there_is_not_is_an_error_with_a_suggestion_and_starts_nothing(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    one = recorder()
    bundles = {"reading": BUNDLES["reading"]}
    async with open_yard({"one": one}, bundles=bundles) as yard:
        for request in (yard.tools(bundles=["raeding"]), yard.call("one_echo", bundles=["raeding"])):
            with pytest.raises(ConfigError, match="did you mean 'reading'"):
                await request
    assert one.starts() == []


# Names that meet.


async def test_a_native_tool_keeps_its_name_and_the_servers_tool_gets_a_hash(
    open_yard: OpenYard, start_listing_server: Callable[..., Any]
) -> None:
    async with open_yard({"view": start_listing_server("view", "file", "other")}) as yard:
        hashed_names, other = names(await yard.tools())
        assert other == "view_other"
        assert hashed_names.startswith("view_file_")
        assert (await yard.call(hashed_names, {"text": "x"})).text == "x"
        with pytest.raises(ToolRefused):
            await yard.call("view_file")
        (renamed_tool,) = yard.known().names.renamed_tools
        assert (renamed_tool.target.id, renamed_tool.requested_name, renamed_tool.reason) == (
            "view/file",
            "view_file",
            RenameReason.RESERVED,
        )


async def test_two_tools_that_want_one_name_both_get_a_hash_and_each_reaches_its_own_server(
    open_yard: OpenYard, start_listing_server: Callable[..., Any]
) -> None:
    listing_server, right = start_listing_server("left", "b_c"), start_listing_server("right", "c")
    async with open_yard({"a": listing_server, "a_b": right}) as yard:
        by_id = {tool.id: tool.name for tool in await yard.tools()}
        assert all(name.startswith("a_b_c_") for name in by_id.values())
        await yard.call(by_id["a/b_c"])
        await yard.call(by_id["a_b/c"])
        with pytest.raises(ToolRefused):
            await yard.call("a_b_c")
    assert (listing_server.calls(), right.calls()) == (["b_c"], ["c"])


async def test_the_template_of_names_is_a_setting(
    open_yard: OpenYard, start_listing_server: Callable[..., Any]
) -> None:
    settings = {"naming_template": "{tool}-of-{server}"}
    async with open_yard({"docs": start_listing_server("docs", "look")}, settings=settings) as yard:
        assert names(await yard.tools()) == ["look-of-docs"]
        assert (await yard.call("look-of-docs", {"text": "x"})).text == "x"


# Why.


async def test_why_names_the_tool_and_every_link_of_the_chain(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    async with open_yard({"one": recorder()}) as yard:
        with pytest.raises(ToolRefused):
            yard.why("one_touch")
        await yard.tools()
        decision = yard.why("one_touch")
        assert (decision.tool, decision.name, decision.verdict) == ("one/touch", "one_touch", Verdict.REFUSE)
        assert decision.decisive is not None
        assert (
            decision.decisive.reason
            == "this tool can change data (readOnlyHint is false), and write_tools is 'reject'"
        )
        assert yard.why("one/touch") == decision
        assert yard.why("one_look").verdict is Verdict.ALLOW


async def test_nulls_that_a_strict_view_asked_for_do_not_reach_the_server(open_yard: OpenYard) -> None:
    entry = {"command": sys.executable, "args": ["-S", str(TINY)]}
    async with open_yard({"tiny": entry}) as yard:
        await yard.tools(provider="openai-strict")
        echo_text = await yard.call("tiny_echo", {"needed": 1, "extra": None}, provider="openai-strict")
        assert json.loads(echo_text.text) == {"needed": 1}
        plain = await yard.call("tiny_echo", {"needed": 1, "extra": None})
        assert json.loads(plain.text) == {"needed": 1, "extra": None}


async def test_a_status_record_has_the_token_cost_of_the_tools(open_yard: OpenYard) -> None:
    async with open_yard({"tiny": {"command": sys.executable, "args": ["-S", str(TINY)]}}) as yard:
        (before,) = yard.servers()
        assert (before.tool_count, before.token_cost) == (None, None)
        await yard.tools()
        (after,) = yard.servers()
        assert after.tool_count == 3
        assert after.token_cost is not None
        assert 10 < after.token_cost < 300
