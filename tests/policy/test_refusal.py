"""Refusals of unknown tools, and of hidden ones."""

from __future__ import annotations

import time

from toolyard.errors import ToolRefused
from toolyard.policy import Candidate, Policy
from toolyard.policy.policy import build_hidden_refusal, build_refusal
from toolyard.types.account import Right, TokenScope
from toolyard.types.call import Surface, summarize_hiding_rules
from toolyard.types.server import Server, State, StdioSpec
from toolyard.types.tool import Definition

WRITE = Definition("repo", "delete", annotations={"readOnlyHint": False})


def test_the_text_depends_only_on_the_name_and_the_visible_tools() -> None:
    visible_names = ["repo_search", "repo_read"]
    refusal, missing = (
        build_refusal("repo_secret", visible_names),
        build_refusal("repo_secret", visible_names),
    )
    assert isinstance(refusal, ToolRefused)
    assert str(refusal) == str(missing)


def test_only_names_that_the_caller_sees_are_suggested() -> None:
    assert build_refusal("repo_serach", ["repo_search"]).hint == "did you mean 'repo_search'?"
    hint = build_refusal("repo_serach").hint
    assert hint is not None
    assert "repo_search" not in hint


def test_among_thousands_of_names_only_the_nearest_are_compared() -> None:
    visible_names = [f"{word}_{number:05}" for word in ("list", "make", "read") for number in range(10_000)]
    start = time.process_time()
    hints = {build_refusal(f"make_{number:05}x", visible_names).hint for number in range(16)}
    assert time.process_time() - start < 10
    assert hints == {f"did you mean 'make_{number:05}'?" for number in range(16)}


def test_of_an_endless_name_its_beginning_is_told() -> None:
    cause = build_refusal("x" * 100_000, ["x"]).cause
    assert cause == f"no tool named '{'x' * 128}…' is available"


def test_a_name_is_not_suggested_for_itself() -> None:
    assert build_refusal("repo_search", ["repo_search"]).hint == build_refusal("repo_search").hint


def _find_hiding_rule(scope: TokenScope | None) -> str | None:
    server = Server("repo", StdioSpec("repo"), deny_tools=("d*",))
    policy = Policy(Surface.OPERATOR, scope=scope)
    rule = policy.compile_server_policy(server, State.READY).find_hiding_rule(Candidate(WRITE, "repo_delete"))
    return None if rule is None else rule.title


def test_the_first_rule_that_hides_a_tool_is_named() -> None:
    assert _find_hiding_rule(None) == "write tools"
    assert _find_hiding_rule(TokenScope(frozenset(Right), tools=("repo_*",))) == "write tools"


def test_no_rule_is_named_for_a_tool_outside_the_scope_of_the_token() -> None:
    assert _find_hiding_rule(TokenScope(frozenset(Right), tools=("other_*",))) is None
    assert _find_hiding_rule(TokenScope(frozenset(Right), servers=("other",))) is None


def test_a_hidden_tool_is_refused_with_the_rule_and_the_next_step() -> None:
    error = build_hidden_refusal("repo_delete", "server", "denyTools includes 'd*'", " --agent reader")
    assert (error.cause, error.rule) == ("'repo_delete' is hidden: denyTools includes 'd*'", "server")
    assert error.hint == "`toolyard why repo_delete --agent reader` explains all rules"
    assert "set write_tools" in (build_hidden_refusal("repo_delete", "write tools", "it writes").hint or "")


def test_hidden_tools_are_counted_by_rule() -> None:
    assert summarize_hiding_rules(["write tools"] * 4) == "write tools"
    assert summarize_hiding_rules(["definition", "write tools", "write tools"]) == (
        "write tools: 2; in quarantine: 1"
    )
