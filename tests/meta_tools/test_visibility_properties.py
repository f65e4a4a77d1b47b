"""Whatever the policy: nothing hidden is found, listed, described or called; a handle is its owner's."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.meta_tools.scripted_core import Core, server, text_result, tool

from toolyard.errors import ToolRefused
from toolyard.types.account import Principal
from toolyard.types.agent import Agent
from toolyard.types.call import Caller, Surface, WriteTools
from toolyard.types.server import Bundle, Server, Trust

NAMES = ["read", "write", "find_all", "secret"]
SERVERS = ["alpha", "beta", "gamma"]

globs = st.sampled_from(["read", "write", "f*", "s*", "*e*", "secret", "no_such"])
some_globs = st.lists(globs, max_size=3).map(tuple)
patterns = st.lists(
    st.sampled_from(["*", "alpha_*", "!beta_*", "*_read", "!*secret", "gamma_write", "!*"]), max_size=4
).map(tuple)


@st.composite
def servers(draw: st.DrawFn) -> list[Server]:
    return [
        server(
            name,
            trust=draw(st.sampled_from(Trust)),
            enabled=draw(st.sampled_from([True, True, False])),
            allow_tools=draw(st.none() | some_globs.filter(bool)),
            deny_tools=draw(some_globs),
        )
        for name in SERVERS
    ]


@st.composite
def callers(draw: st.DrawFn) -> Caller:
    agent = Agent("a", "A", tools=draw(st.none() | patterns), mode=draw(st.sampled_from(["direct", "meta"])))
    bundle = st.builds(
        Bundle,
        st.sampled_from(["one", "two"]),
        st.sampled_from(SERVERS),
        st.sampled_from(["direct", "meta"]),
        st.none(),
        st.none() | some_globs,
        some_globs,
    )
    ids = [f"{owner}/{name}" for owner in SERVERS for name in NAMES]
    return Caller(
        Principal("ann"),
        draw(st.sampled_from(Surface)),
        draw(st.none() | st.just(agent)),
        tuple(draw(st.lists(bundle, max_size=2))),
        draw(st.none() | st.frozensets(st.sampled_from(ids))),
    )


def list_tools_by_owner() -> dict[str, list[dict[str, Any]]]:
    hint = {"readOnlyHint": False}
    return {
        owner: [
            tool(name, f"{name} of {owner} marked{owner}{name}", annotations=hint if name == "write" else {})
            for name in NAMES
        ]
        for owner in SERVERS
    }


@settings(max_examples=200, deadline=None)
@given(servers(), callers(), st.sampled_from(WriteTools))
async def test_nothing_hidden_is_found_listed_described_or_called(
    some: list[Server], caller: Caller, write_tools: WriteTools
) -> None:
    core = Core(some, list_tools_by_owner(), write_tools=write_tools)
    through = Caller(caller.principal, Surface.MODEL_META, caller.agent, caller.bundles, caller.choice)
    await core.rosters.refresh(caller.principal)
    every = [f"{owner}_{name}" for owner in SERVERS for name in NAMES]
    visible = set()
    for owner in SERVERS:
        for name in NAMES:
            try:
                decision = core.calls.explain(f"{owner}/{name}", through)
            except ToolRefused:
                continue
            if decision.verdict.is_visible:
                visible.add(f"{owner}_{name}")
    tool_answers = [
        await core("tools_search", {"query": " ".join([*NAMES, *SERVERS]), "limit": 100}, caller),
        *[await core("tools_search", {"query": f"marked{owner}"}, caller) for owner in SERVERS],
        await core("tools_list", {}, caller),
        *[await core("tools_list", {"server": owner}, caller) for owner in SERVERS],
        await core("tools_describe", {"names": every}, caller),
    ]
    for answer in tool_answers:
        tools = {name for name, tool_item in answer.get("tools", {}).items() if "error" not in tool_item}
        assert tools <= visible
        for hidden in set(every) - visible:
            owner, _, name = hidden.partition("_")
            assert f"marked{owner}{name}" not in json.dumps(answer)
    for name in every:
        await core("tools_call", {"name": name}, caller)
    assert {tool_id.replace("/", "_") for tool_id in core.manager.called} <= visible
    assert set(tool_answers[-len(SERVERS) - 2].get("tools", {})) == visible


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=8), st.data())
async def test_a_handle_can_be_read_only_by_its_caller(
    handles: list[tuple[str, int]], data: st.DataObject
) -> None:
    core = Core(
        [server("alpha")],
        list_tools_by_owner(),
        answer=lambda _, __, call: text_result(f"{call['text']} " * 20_000),
    )
    people = {user: Caller(Principal(user), Surface.MODEL_META) for user in "abc"}
    owners: dict[str, set[str]] = {}
    for user, number in handles:
        call_arguments = {"name": "alpha_read", "arguments": {"text": f"number {number}"}}
        answer = await core("tools_call", call_arguments, people[user])
        owners.setdefault(answer["handle"], set()).add(user)
    for handle, whose in owners.items():
        for user, caller in people.items():
            read = await core("result_read", {"handle": handle}, caller)
            assert read["ok"] is (user in whose)
