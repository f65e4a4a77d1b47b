"""The chain, link by link, and the law that its quick path and its explained path agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.policy.policy import Policy
from toolyard.policy.rules import Candidate
from toolyard.types.agent import Agent
from toolyard.types.call import Decision, Surface, Verdict, WriteTools
from toolyard.types.server import Bundle, Server, State, StdioSpec, Trust
from toolyard.types.tool import Definition

TRUSTED_SERVER = Server("repo", StdioSpec("repo-server"))
UNTRUSTED_SERVER = Server("wild", StdioSpec("wild-server"), trust=Trust.UNTRUSTED, allow_tools=("read*",))

TITLES = (
    "state",
    "definition",
    "write tools",
    "trust",
    "server",
    "bundles",
    "agent",
    "instance",
    "chat",
)


def tool(server: Server, name: str, hint: object = None, quarantine: str | None = None) -> Candidate:
    annotations: dict[str, Any] = {} if hint is None else {"readOnlyHint": hint}
    return Candidate(Definition(server.id, name, annotations=annotations), f"{server.id}_{name}", quarantine)


def decide(
    server: Server,
    candidate: Candidate,
    *,
    surface: Surface = Surface.OPERATOR,
    state: State = State.READY,
    instance_filter: tuple[str, ...] | None = None,
    **caller: Any,
) -> Decision:
    gate = Policy(surface, **caller).compile_server_policy(server, state, instance_filter=instance_filter)
    decision = gate.explain(candidate)
    assert gate.verdict(candidate) is decision.verdict
    return decision


def decide_rule(decision: Decision) -> tuple[Verdict, str]:
    assert decision.decisive is not None
    return decision.verdict, decision.decisive.rule


def test_every_link_is_recorded_in_the_order_of_the_design() -> None:
    decision = decide(TRUSTED_SERVER, tool(TRUSTED_SERVER, "search"))
    assert decision.verdict is Verdict.ALLOW
    assert tuple(link.rule for link in decision.chain) == TITLES


def test_a_decision_names_the_tool_by_its_canonical_id() -> None:
    decision = decide(TRUSTED_SERVER, tool(TRUSTED_SERVER, "search"))
    assert (decision.tool, decision.name) == ("repo/search", "repo_search")


# enabled and state


def test_a_disabled_server_has_no_tools() -> None:
    server = Server("repo", StdioSpec("x"), enabled=False)
    assert decide_rule(decide(server, tool(server, "search"))) == (Verdict.REFUSE, "state")


def test_a_server_that_a_missing_variable_disabled_says_so() -> None:
    server = Server("repo", StdioSpec("x"), disabled_reason="variable TOKEN is not set")
    decision = decide(server, tool(server, "search"))
    assert decide_rule(decision) == (Verdict.REFUSE, "state")
    assert "variable TOKEN is not set" in decision.explain()


@pytest.mark.parametrize("state", [State.DISABLED, State.CLOSED])
def test_a_state_without_return_refuses(state: State) -> None:
    assert decide_rule(decide(TRUSTED_SERVER, tool(TRUSTED_SERVER, "search"), state=state)) == (
        Verdict.REFUSE,
        "state",
    )


@pytest.mark.parametrize("state", [State.IDLE, State.CONNECTING, State.READY, State.NEEDS_AUTH, State.FAILED])
def test_a_server_that_is_down_keeps_its_tools_so_that_calls_answer_why(state: State) -> None:
    assert decide(TRUSTED_SERVER, tool(TRUSTED_SERVER, "search"), state=state).verdict is Verdict.ALLOW


# definition health and lock


def test_a_quarantined_definition_is_refused_with_its_reason() -> None:
    decision = decide(
        TRUSTED_SERVER, tool(TRUSTED_SERVER, "search", quarantine="changed since it was locked")
    )
    assert decide_rule(decision) == (Verdict.REFUSE, "definition")
    assert "changed since it was locked" in decision.explain()


# read-only guard


@pytest.mark.parametrize("surface", list(Surface))
@pytest.mark.parametrize("server", [TRUSTED_SERVER, UNTRUSTED_SERVER], ids=["trusted", "untrusted"])
def test_a_false_read_only_hint_is_rejected_everywhere(surface: Surface, server: Server) -> None:
    decision = decide(server, tool(server, "readAll", hint=False), surface=surface)
    assert decide_rule(decision) == (Verdict.REFUSE, "write tools")


def test_a_missing_annotation_is_accepted_on_a_trusted_server() -> None:
    assert decide(TRUSTED_SERVER, tool(TRUSTED_SERVER, "search")).verdict is Verdict.ALLOW


def test_a_true_read_only_hint_is_accepted_on_a_trusted_server() -> None:
    assert decide(TRUSTED_SERVER, tool(TRUSTED_SERVER, "search", hint=True)).verdict is Verdict.ALLOW


@pytest.mark.parametrize("hint", [None, True])
def test_an_untrusted_server_cannot_vouch_for_its_own_tools(hint: bool | None) -> None:
    decision = decide(UNTRUSTED_SERVER, tool(UNTRUSTED_SERVER, "readAll", hint=hint))
    assert decide_rule(decision) == (Verdict.REFUSE, "write tools")


def test_the_key_is_read_only_hint_and_not_read_only() -> None:
    slip = Candidate(Definition("repo", "write", annotations={"readOnly": False}), "repo_write")
    assert decide(TRUSTED_SERVER, slip).verdict is Verdict.ALLOW


@pytest.mark.parametrize("hint", ["false", 0, "no"])
def test_a_hint_that_is_not_a_boolean_is_ignored(hint: object) -> None:
    assert decide(TRUSTED_SERVER, tool(TRUSTED_SERVER, "write", hint=hint)).verdict is Verdict.ALLOW


def test_write_tools_ask_asks_unless_a_tool_is_known_to_be_read_only() -> None:
    ask = WriteTools.ASK
    assert (
        decide(TRUSTED_SERVER, tool(TRUSTED_SERVER, "write", hint=False), write_tools=ask).verdict
        is Verdict.ASK
    )
    assert decide(TRUSTED_SERVER, tool(TRUSTED_SERVER, "search"), write_tools=ask).verdict is Verdict.ALLOW
    assert (
        decide(UNTRUSTED_SERVER, tool(UNTRUSTED_SERVER, "readAll", hint=True), write_tools=ask).verdict
        is Verdict.ASK
    )


def test_write_tools_allow_lets_every_tool_pass_the_guard() -> None:
    allow = WriteTools.ALLOW
    assert (
        decide(TRUSTED_SERVER, tool(TRUSTED_SERVER, "write", hint=False), write_tools=allow).verdict
        is Verdict.ALLOW
    )
    assert (
        decide(UNTRUSTED_SERVER, tool(UNTRUSTED_SERVER, "readAll"), write_tools=allow).verdict
        is Verdict.ALLOW
    )


def test_a_tool_that_asks_can_still_be_hidden_by_a_later_link() -> None:
    agent = Agent("a", "A", tools=("other",))
    decision = decide(
        TRUSTED_SERVER, tool(TRUSTED_SERVER, "write", hint=False), write_tools=WriteTools.ASK, agent=agent
    )
    assert decide_rule(decision) == (Verdict.HIDE, "agent")


# trust


@pytest.mark.parametrize(
    ("surface", "verdict"),
    [
        (Surface.MODEL_DIRECT, Verdict.HIDE),
        (Surface.MODEL_META, Verdict.ALLOW),
        (Surface.OPERATOR, Verdict.ALLOW),
    ],
)
def test_models_reach_an_untrusted_server_through_meta_only(surface: Surface, verdict: Verdict) -> None:
    candidate = tool(UNTRUSTED_SERVER, "readAll")
    assert (
        decide(UNTRUSTED_SERVER, candidate, surface=surface, write_tools=WriteTools.ALLOW).verdict is verdict
    )


def test_an_untrusted_server_without_any_allowlist_has_nothing() -> None:
    server = Server("wild", StdioSpec("x"), trust=Trust.UNTRUSTED)
    candidate = tool(server, "readAll")
    assert decide_rule(decide(server, candidate, write_tools=WriteTools.ALLOW)) == (Verdict.REFUSE, "trust")
    bundle = Bundle("some", "wild", "meta", allow_tools=("read*",))
    decision = decide(server, candidate, write_tools=WriteTools.ALLOW, bundles=[bundle])
    assert decision.verdict is Verdict.ALLOW


# server allow and deny


def test_deny_overrides_allow() -> None:
    server = Server("repo", StdioSpec("x"), allow_tools=("read", "write", "delete"), deny_tools=("delete",))
    wanted_cases = ("read", "write", "delete", "other")
    allowed_names = [
        name for name in wanted_cases if decide(server, tool(server, name)).verdict is Verdict.ALLOW
    ]
    assert allowed_names == ["read", "write"]


def test_allow_tools_match_the_servers_own_name_and_not_the_exposed_one() -> None:
    server = Server("repo", StdioSpec("x"), allow_tools=("repo_*",))
    assert decide_rule(decide(server, tool(server, "search"))) == (Verdict.REFUSE, "server")


def test_a_deny_list_alone_leaves_the_rest() -> None:
    server = Server("repo", StdioSpec("x"), deny_tools=("*Secret*",))
    assert decide(server, tool(server, "readSecretFile")).verdict is Verdict.REFUSE
    assert decide(server, tool(server, "readFile")).verdict is Verdict.ALLOW


# agent patterns


def test_agent_patterns_match_the_exposed_name() -> None:
    agent = Agent("a", "A", tools=("search",))
    assert decide_rule(decide(TRUSTED_SERVER, tool(TRUSTED_SERVER, "search"), agent=agent)) == (
        Verdict.HIDE,
        "agent",
    )
    agent = Agent("a", "A", tools=("repo_*",))
    assert decide(TRUSTED_SERVER, tool(TRUSTED_SERVER, "search"), agent=agent).verdict is Verdict.ALLOW


def test_an_agent_without_tools_has_all_and_one_with_an_empty_list_none() -> None:
    candidate = tool(TRUSTED_SERVER, "search")
    assert decide(TRUSTED_SERVER, candidate, agent=Agent("a", "A")).verdict is Verdict.ALLOW
    assert decide(TRUSTED_SERVER, candidate, agent=Agent("a", "A", tools=())).verdict is Verdict.HIDE


def test_an_agent_in_meta_mode_has_no_direct_tools() -> None:
    agent = Agent("a", "A", mode="meta")
    candidate = tool(TRUSTED_SERVER, "search")
    direct = decide(TRUSTED_SERVER, candidate, agent=agent, surface=Surface.MODEL_DIRECT)
    assert decide_rule(direct) == (Verdict.HIDE, "agent")
    assert decide(TRUSTED_SERVER, candidate, agent=agent, surface=Surface.MODEL_META).verdict is Verdict.ALLOW


# instance filter and chat choice


def test_an_instance_filter_of_none_is_all_and_an_empty_one_is_none() -> None:
    candidate = tool(TRUSTED_SERVER, "search")
    assert decide(TRUSTED_SERVER, candidate, instance_filter=None).verdict is Verdict.ALLOW
    assert decide_rule(decide(TRUSTED_SERVER, candidate, instance_filter=())) == (Verdict.HIDE, "instance")
    assert decide(TRUSTED_SERVER, candidate, instance_filter=("search",)).verdict is Verdict.ALLOW


def test_a_chat_choice_names_tools_by_canonical_id() -> None:
    candidate = tool(TRUSTED_SERVER, "search")
    assert decide(TRUSTED_SERVER, candidate, choice=None).verdict is Verdict.ALLOW
    assert decide(TRUSTED_SERVER, candidate, choice=["repo/search"]).verdict is Verdict.ALLOW
    assert decide_rule(decide(TRUSTED_SERVER, candidate, choice=["other/search"])) == (Verdict.HIDE, "chat")
    assert decide(TRUSTED_SERVER, candidate, choice=[]).verdict is Verdict.HIDE
    assert (
        decide(TRUSTED_SERVER, tool(TRUSTED_SERVER, "other/search"), choice=["other/search"]).verdict
        is Verdict.HIDE
    )


# laws

own_names = st.text(alphabet="abR", min_size=1, max_size=3)
globs = st.text(alphabet="abR*", max_size=3)
glob_lists = st.lists(globs, max_size=3).map(tuple)
hints = st.sampled_from([None, True, False, "yes"])


def servers() -> st.SearchStrategy[Server]:
    return st.builds(
        Server,
        st.sampled_from(["a", "b"]),
        st.just(StdioSpec("x")),
        trust=st.sampled_from(Trust),
        enabled=st.integers(0, 5).map(bool),
        allow_tools=st.none() | glob_lists,
        deny_tools=glob_lists,
    )


def bundles() -> st.SearchStrategy[Bundle]:
    return st.builds(
        Bundle,
        st.sampled_from(["x", "y", "z"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["direct", "meta"]),
        allow_tools=st.none() | glob_lists,
        deny_tools=glob_lists,
    )


def agents() -> st.SearchStrategy[Agent]:
    patterns = st.lists(st.builds("{}{}".format, st.sampled_from(["", "!"]), globs), max_size=4).map(tuple)
    mode = st.sampled_from(["direct", "meta"])
    return st.builds(Agent, st.just("a"), st.just("A"), tools=st.none() | patterns, mode=mode)


@given(
    server=servers(),
    state=st.sampled_from(State),
    surface=st.sampled_from(Surface),
    write_tools=st.sampled_from(WriteTools),
    selected_bundles=st.lists(bundles(), max_size=3),
    agent=st.none() | agents(),
    choice=st.none() | st.lists(st.builds("{}/{}".format, st.sampled_from(["a", "b"]), own_names)),
    instance_filter=st.none() | st.lists(own_names),
    name=own_names,
    hint=hints,
    quarantine=st.none() | st.just("broken"),
)
def test_the_quick_path_and_the_explained_path_give_the_same_verdict(
    server: Server,
    state: State,
    surface: Surface,
    write_tools: WriteTools,
    selected_bundles: list[Bundle],
    agent: Agent | None,
    choice: list[str] | None,
    instance_filter: list[str] | None,
    name: str,
    hint: object,
    quarantine: str | None,
) -> None:
    policy = Policy(
        surface, write_tools, tuple(selected_bundles), agent, None if choice is None else frozenset(choice)
    )
    gate = policy.compile_server_policy(server, state, instance_filter=instance_filter)
    candidate = tool(server, name, hint, quarantine)
    decision = gate.explain(candidate)
    assert gate.verdict(candidate) is decision.verdict
    assert all(link.reason for link in decision.chain)
    if gate.blocks_all:
        assert not decision.verdict.is_visible


def test_every_rule_has_its_part_in_a_listing_of_many() -> None:
    server = Server("repo", StdioSpec("x"), allow_tools=("tool*",), deny_tools=("*secret*",))
    agent = Agent("a", "A", tools=("*", "!web_*", "!repo_tool9*"))
    selected_bundles = (Bundle("some", "repo", "direct", allow_tools=("tool*",)),)
    candidates = [tool(server, f"tool{number}", hint=True) for number in range(10_000)]
    gate = Policy(Surface.MODEL_DIRECT, agent=agent, bundles=selected_bundles).compile_server_policy(
        server, State.READY
    )
    assert sum(gate.verdict(candidate).is_visible for candidate in candidates) == 8_889
