from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolyard.agents.definitions.agents_md import format_agent, parse_agents
from toolyard.agents.definitions.validation import find_agent_problems, normalize_agent
from toolyard.errors import AgentsError
from toolyard.types.agent import Agent

_TRICKY = [
    "```",
    "~~~",
    "---",
    "## Other\n---\nmodel: x\n---",
    '"',
    "'",
    "\\",
    ": #",
    "\r\n",
    "\u2028",
    "é",
    "😀",
    "\x85",
]
_TEXTS = st.lists(st.one_of(st.text(max_size=12), st.sampled_from(_TRICKY)), max_size=6).map("".join)
_PATTERNS = st.lists(st.text(min_size=1, max_size=8), max_size=4).map(tuple)

_DRAFTS = st.builds(
    Agent,
    id=st.just(""),
    name=_TEXTS.map(lambda text: f"a{text}"),
    description=_TEXTS,
    prompt=_TEXTS,
    model=st.none() | _TEXTS,
    temperature=st.none() | st.floats(0, 2),
    tools=st.none() | _PATTERNS,
    bundles=st.lists(_TEXTS, max_size=2).map(tuple),
    mode=st.sampled_from([None, "direct", "meta"]),
    max_steps=st.none() | st.integers(1, 999_999_999),
    starters=st.lists(_TEXTS, max_size=3).map(tuple),
)


@given(draft=_DRAFTS)
@example(Agent("", "a", description="x \u2028 y \x85 z \ufeff", starters=("\x00 \x7f",)))
def test_every_valid_agent_reads_back_equal_from_its_file(draft: Agent) -> None:
    agent = normalize_agent(draft)
    if find_agent_problems(agent):
        return
    [read] = parse_agents(format_agent(agent)).agents
    assert replace(read, line=None) == agent
    assert normalize_agent(read) == agent


@pytest.mark.parametrize(
    "prompt",
    [
        "```\nnever closed",
        "## Other\n---\ndescription: not an agent\n---\ntext",
        "---\nname: x\n---",
        "  indented first line\n\n\ttab",
        '"quoted" \\ back',
    ],
)
def test_a_prompt_that_looks_like_the_format_reads_back_equal(prompt: str) -> None:
    agent = normalize_agent(Agent("", "Reviewer", prompt=prompt, tools=("*", '!we"b_*', "a\\b", "#x", "[y]")))
    assert not find_agent_problems(agent)
    [read] = parse_agents(format_agent(agent)).agents
    assert replace(read, line=None) == agent


def test_a_file_may_contain_starters() -> None:
    [agent] = parse_agents("## A\n---\nstarters:\n- What is new?\n- 'Sum: up'\n---\n").agents
    assert agent.starters == ("What is new?", "Sum: up")


def test_starters_that_are_not_a_list_are_reported() -> None:
    with pytest.raises(AgentsError, match="expected a list of messages"):
        parse_agents("## A\n---\nstarters: one\n---\n")


@pytest.mark.parametrize(
    ("field", "draft"),
    [
        ("name", Agent("", " \n ")),
        ("name", Agent("", "—")),
        ("name", Agent("", "n" * 81)),
        ("prompt", Agent("", "a", prompt="p" * 1_000_000)),
        ("description", Agent("", "a", description="d" * 1_001)),
        ("model", Agent("", "a", model="m" * 201)),
        ("tools[1]", Agent("", "a", tools=("x", "two words"))),
        ("tools[0]", Agent("", "a", tools=("!",))),
        ("tools", Agent("", "a", tools=("x",) * 2_001)),
        ("starters", Agent("", "a", starters=("s",) * 11)),
        ("starters[0]", Agent("", "a", starters=("s" * 2_001,))),
        ("temperature", Agent("", "a", temperature=2.1)),
        ("temperature", Agent("", "a", temperature=float("nan"))),
        ("max_steps", Agent("", "a", max_steps=0)),
    ],
)
def test_an_invalid_field_is_named(field: str, draft: Agent) -> None:
    assert [each.path for each in find_agent_problems(normalize_agent(draft))] == [field]


def test_an_agent_with_a_thousand_tools_is_valid() -> None:
    draft = Agent("", "a", tools=tuple(f"tool_{number}" for number in range(1_000)))
    assert not find_agent_problems(normalize_agent(draft))
