"""The link of the chain for API tokens: a token narrows, and never widens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.policy import Candidate, Policy
from toolyard.policy.rules import scope_covers_server
from toolyard.types.account import Right, TokenScope
from toolyard.types.agent import Agent
from toolyard.types.call import Surface, Verdict, WriteTools
from toolyard.types.server import HttpSpec, InstanceRef, Server, State
from toolyard.types.tool import Definition

SERVER = Server("github", HttpSpec("https://x.example"))
INSTANCE = Server("@ada/work", HttpSpec("https://x.example"), instance=InstanceRef("ada", "work"))
PLANNER = Agent("planner", "Planner")
RIGHTS = frozenset({Right.CALL})


def verdict(
    scope: TokenScope | None, name: str = "github_search", server: Server = SERVER, agent: Agent | None = None
) -> Verdict:
    surface = Surface.OPERATOR if agent is None else Surface.MODEL_DIRECT
    policy = Policy(surface, write_tools=WriteTools.ALLOW, agent=agent, scope=scope)
    return policy.compile_server_policy(server, State.READY).verdict(
        Candidate(Definition(server.id, "search"), name)
    )


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [
        ({}, True),
        ({"servers": ("github",)}, True),
        ({"servers": ("git*",)}, True),
        ({"servers": ("gitlab",)}, False),
        ({"servers": ()}, False),
        ({"tools": ("github_*",)}, True),
        ({"tools": ("github_*", "!github_search")}, False),
        ({"tools": ("!github_search", "github_*")}, True),
        ({"tools": ()}, False),
        ({"agents": ("planner",)}, False),
        ({"servers": ("github",), "tools": ("other",)}, False),
    ],
)
def test_tools_outside_the_scope_of_a_token_are_hidden(
    limits: dict[str, tuple[str, ...]], allowed: bool
) -> None:
    assert verdict(TokenScope(RIGHTS, **limits)) is (Verdict.ALLOW if allowed else Verdict.HIDE)


def test_an_instance_goes_by_its_slug() -> None:
    name = "mcp_work__search"
    assert verdict(TokenScope(RIGHTS, servers=("work",)), name, INSTANCE) is Verdict.ALLOW
    assert verdict(TokenScope(RIGHTS, servers=("@ada/work",)), name, INSTANCE) is Verdict.HIDE
    assert scope_covers_server(None, INSTANCE)
    assert not scope_covers_server(TokenScope(RIGHTS, servers=("github",)), INSTANCE)


def test_a_token_for_agents_is_for_them_alone() -> None:
    scope = TokenScope(RIGHTS, agents=("plan*",))
    assert verdict(scope, agent=PLANNER) is Verdict.ALLOW
    assert verdict(scope, agent=Agent("other", "Other")) is Verdict.HIDE
    assert verdict(scope) is Verdict.HIDE


def test_without_a_token_the_chain_has_no_such_link() -> None:
    gate = Policy(Surface.OPERATOR).compile_server_policy(SERVER, State.READY)
    assert "token" not in [rule.title for rule in gate.rules]


def test_the_reason_is_told() -> None:
    gate = Policy(Surface.OPERATOR, scope=TokenScope(RIGHTS, tools=("a*", "!ab*"))).compile_server_policy(
        SERVER, State.READY
    )
    reasons = [
        gate.explain(Candidate(Definition("github", "x"), name)).chain[-1].reason
        for name in ("ax", "abx", "c")
    ]
    assert reasons == [
        "'a*' is the last pattern of the token that matches 'ax'",
        "'!ab*' is the last pattern of the token that matches 'abx'",
        "no pattern of the token matches 'c'",
    ]


words = st.text("ab_*", max_size=4)
entries = st.none() | st.lists(words, max_size=3).map(tuple)


@given(entries, entries, entries, st.text("ab_", min_size=1, max_size=5), st.booleans())
def test_a_token_never_widens(
    servers: tuple[str, ...] | None,
    tools: tuple[str, ...] | None,
    agents: tuple[str, ...] | None,
    name: str,
    reads: bool,
) -> None:
    server = Server("ab", HttpSpec("https://x.example"), allow_tools=("a*",))
    candidate = Candidate(Definition("ab", name, annotations={"readOnlyHint": reads}), f"ab_{name}")
    scope = TokenScope(RIGHTS, servers, tools, agents)
    plain = Policy(Surface.OPERATOR).compile_server_policy(server, State.READY)
    server_policy = Policy(Surface.OPERATOR, scope=scope).compile_server_policy(server, State.READY)
    if not plain.verdict(candidate).is_visible:
        assert server_policy.verdict(candidate) is plain.verdict(candidate)
    assert server_policy.verdict(candidate) is server_policy.explain(candidate).verdict
