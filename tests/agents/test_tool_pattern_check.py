"""Patterns against existing tools: plain names are checked, patterns are never rejected."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolyard.agents.definitions.tools_list import ToolPatternProblems, check_tool_patterns
from toolyard.types.agent import Agent

KNOWN = ("grep", "repo_search", "view_file", "web_fetch")


def validated(*tools: str, unlisted: dict[str, str] | None = None) -> ToolPatternProblems:
    agent = Agent("one", "One", tools=tools, file="AGENTS.md", line=7)
    return check_tool_patterns(agent, KNOWN, unlisted or {})


def test_names_that_there_are_and_patterns_that_match_are_fine() -> None:
    assert validated("grep", "!web_fetch", "repo_*", "*") == ToolPatternProblems()


def test_an_agent_without_a_list_has_nothing_to_check() -> None:
    assert check_tool_patterns(Agent("one", "One"), KNOWN, {}) == ToolPatternProblems()


def test_a_plain_name_that_no_tool_has_is_an_error_with_a_suggestion() -> None:
    found = validated("view_fiel")
    assert found.warnings == ()
    (problem,) = found.errors
    assert (problem.file, problem.line, problem.path) == ("AGENTS.md", 7, "One.tools")
    assert problem.message == "unknown tool 'view_fiel'"
    assert problem.hint == "did you mean 'view_file'?"


def test_a_plain_name_that_is_denied_is_checked_too() -> None:
    (problem,) = validated("*", "!web_fech").errors
    assert problem.hint == "did you mean 'web_fetch'?"


def test_a_name_that_may_belong_to_a_server_not_yet_listed_is_a_warning() -> None:
    found = validated("context7_query-docs", unlisted={"context7_": "context7"})
    assert found.errors == ()
    (problem,) = found.warnings
    assert "'context7'" in problem.message
    assert validated("context8_query-docs", unlisted={"context7_": "context7"}).errors


def test_a_pattern_that_matches_nothing_is_reported_and_never_rejected() -> None:
    found = validated("*", "!webb_*")
    assert found.errors == ()
    assert [problem.message for problem in found.warnings] == ["'!webb_*' matches no tool"]


def test_a_pattern_that_may_match_a_server_not_yet_listed_says_so() -> None:
    for text in ("context7_*", "cont*", "context7_query*"):
        (problem,) = validated(text, unlisted={"context7_": "context7"}).warnings
        assert "not listed so far: 'context7'" in problem.message
    (problem,) = validated("other*", unlisted={"context7_": "context7"}).warnings
    assert problem.message == "'other*' matches no tool"


@given(
    tools=st.lists(st.text(alphabet="!*abc_", max_size=6)),
    names=st.lists(st.text(alphabet="abc_", max_size=4)),
)
def test_only_a_plain_name_is_ever_an_error(tools: list[str], names: list[str]) -> None:
    found = check_tool_patterns(Agent("one", "One", tools=tuple(tools)), names, {})
    plain = [text for text in tools if "*" not in text]
    assert len(found.errors) == sum(text.removeprefix("!") not in names for text in plain)
