"""Patterns against existing tools: plain names are checked, patterns are never rejected."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolyard.agents.definitions.tools_list import ToolPatternProblems, check_tool_patterns
from toolyard.types.agent import Agent

KNOWN_TOOLS = ("grep", "repo_search", "view_file", "web_fetch")


def check_patterns(*tools: str, unlisted_prefixes: dict[str, str] | None = None) -> ToolPatternProblems:
    agent = Agent("one", "One", tools=tools, file="AGENTS.md", line=7)
    return check_tool_patterns(agent, KNOWN_TOOLS, unlisted_prefixes or {})


def test_names_that_there_are_and_patterns_that_match_are_fine() -> None:
    assert check_patterns("grep", "!web_fetch", "repo_*", "*") == ToolPatternProblems()


def test_an_agent_without_a_list_has_nothing_to_check() -> None:
    assert check_tool_patterns(Agent("one", "One"), KNOWN_TOOLS, {}) == ToolPatternProblems()


def test_a_plain_name_that_no_tool_has_is_an_error_with_a_suggestion() -> None:
    pattern_problems = check_patterns("view_fiel")
    assert pattern_problems.warnings == ()
    (problem,) = pattern_problems.errors
    assert (problem.file, problem.line, problem.path) == ("AGENTS.md", 7, "One.tools")
    assert problem.message == "unknown tool 'view_fiel'"
    assert problem.hint == "did you mean 'view_file'?"


def test_a_plain_name_that_is_denied_is_checked_too() -> None:
    (problem,) = check_patterns("*", "!web_fech").errors
    assert problem.hint == "did you mean 'web_fetch'?"


def test_a_name_that_may_belong_to_a_server_not_yet_listed_is_a_warning() -> None:
    pattern_problems = check_patterns("context7_query-docs", unlisted_prefixes={"context7_": "context7"})
    assert pattern_problems.errors == ()
    (problem,) = pattern_problems.warnings
    assert "'context7'" in problem.message
    assert check_patterns("context8_query-docs", unlisted_prefixes={"context7_": "context7"}).errors


def test_a_pattern_that_matches_nothing_is_reported_and_never_rejected() -> None:
    pattern_problems = check_patterns("*", "!webb_*")
    assert pattern_problems.errors == ()
    assert [problem.message for problem in pattern_problems.warnings] == ["'!webb_*' matches no tool"]


def test_a_pattern_that_may_match_a_server_not_yet_listed_says_so() -> None:
    for text in ("context7_*", "cont*", "context7_query*"):
        (problem,) = check_patterns(text, unlisted_prefixes={"context7_": "context7"}).warnings
        assert "not listed so far: 'context7'" in problem.message
    (problem,) = check_patterns("other*", unlisted_prefixes={"context7_": "context7"}).warnings
    assert problem.message == "'other*' matches no tool"


@given(
    tools=st.lists(st.text(alphabet="!*abc_", max_size=6)),
    names=st.lists(st.text(alphabet="abc_", max_size=4)),
)
def test_only_a_plain_name_is_ever_an_error(tools: list[str], names: list[str]) -> None:
    tool_patterns = check_tool_patterns(Agent("one", "One", tools=tuple(tools)), names, {})
    plain = [text for text in tools if "*" not in text]
    assert len(tool_patterns.errors) == sum(text.removeprefix("!") not in names for text in plain)
