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


def listed() -> dict[str, list[dict[str, Any]]]:
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
    core = Core(some, listed(), write_tools=write_tools)
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
    heard = [
        await core("tools_search", {"query": " ".join([*NAMES, *SERVERS]), "limit": 100}, caller),
        *[await core("tools_search", {"query": f"marked{owner}"}, caller) for owner in SERVERS],
        await core("tools_list", {}, caller),
        *[await core("tools_list", {"server": owner}, caller) for owner in SERVERS],
        await core("tools_describe", {"names": every}, caller),
    ]
    for answer in heard:
        tools = {name for name, told in answer.get("tools", {}).items() if "error" not in told}
        assert tools <= visible
        for hidden in set(every) - visible:
            owner, _, name = hidden.partition("_")
            assert f"marked{owner}{name}" not in json.dumps(answer)
    for name in every:
        await core("tools_call", {"name": name}, caller)
    assert {called.replace("/", "_") for called in core.manager.called} <= visible
    assert set(heard[-len(SERVERS) - 2].get("tools", {})) == visible


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=8), st.data())
async def test_a_handle_is_read_only_by_whose_call_it_came_from(
    made: list[tuple[str, int]], data: st.DataObject
) -> None:
    core = Core(
        [server("alpha")], listed(), answer=lambda _, __, given: text_result(f"{given['text']} " * 20_000)
    )
    people = {who: Caller(Principal(who), Surface.MODEL_META) for who in "abc"}
    owners: dict[str, set[str]] = {}
    for who, number in made:
        given_ = {"name": "alpha_read", "arguments": {"text": f"number {number}"}}
        answer = await core("tools_call", given_, people[who])
        owners.setdefault(answer["handle"], set()).add(who)
    for handle, whose in owners.items():
        for who, caller in people.items():
            read = await core("result_read", {"handle": handle}, caller)
            assert read["ok"] is (who in whose)
