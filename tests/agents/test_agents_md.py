"""AGENTS.md: the beginnings of agents, their front matter, and all mistakes reported at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolyard.agents.definitions.agents_md import AgentsFile, agent_id, parse_agents
from toolyard.errors import AgentsError, Problem
from toolyard.types.agent import Agent

EXAMPLE = """\
# Our agents

Some words before the first one.

## Architect

---
description: Thinks about structure.
model: anthropic:large
temperature: 0.2
tools: [*]
bundles: [repoRead, docs]
mode: meta
max_steps: 12
---

You are an architect.

## How you work

Read first.

## Prompt Builder
---
tools: [view_file]
---
You build prompts.
"""


def problems_of(text: str) -> list[Problem]:
    with pytest.raises(AgentsError) as exc_info:
        parse_agents(text, "AGENTS.md")
    return list(exc_info.value.problems)


def matter(*lines: str) -> str:
    return "\n".join(["## One", "---", *lines, "---", "Prompt."])


def parsed(text: str) -> AgentsFile | AgentsError:
    """Return the parsed text. An error other than AgentsError fails the test."""
    try:
        return parse_agents(text, "AGENTS.md")
    except AgentsError as error:
        return error


def only(text: str) -> Agent:
    (agent,) = parse_agents(text).agents
    return agent


def test_an_agent_begins_at_a_heading_with_front_matter_and_other_headings_belong_to_its_prompt() -> None:
    architect, builder = parse_agents(EXAMPLE, "AGENTS.md").agents
    assert architect == Agent(
        id="architect",
        name="Architect",
        description="Thinks about structure.",
        prompt="You are an architect.\n\n## How you work\n\nRead first.",
        model="anthropic:large",
        temperature=0.2,
        tools=("*",),
        bundles=("repoRead", "docs"),
        mode="meta",
        max_steps=12,
        file="AGENTS.md",
        line=5,
    )
    assert builder == Agent(
        id="prompt-builder",
        name="Prompt Builder",
        prompt="You build prompts.",
        tools=("view_file",),
        file="AGENTS.md",
        line=23,
    )


def test_star_on_architect_and_view_file_on_prompt_builder_are_read_as_they_are_meant() -> None:
    architect, builder = parse_agents(EXAMPLE).agents
    assert (architect.tools, builder.tools) == (("*",), ("view_file",))


def test_a_file_that_starts_with_front_matter_is_one_agent() -> None:
    prompt = "Review.\n\n## Two\n---\nmodel: x\n---\nStill prompt."
    agent = only(f"\n---\nname: Code Reviewer\ntemperature: 0\n---\n\n{prompt}")
    assert (agent.id, agent.name, agent.temperature, agent.line) == ("code-reviewer", "Code Reviewer", 0.0, 2)
    assert agent.prompt == prompt


def test_a_file_that_starts_with_front_matter_needs_a_name() -> None:
    (problem,) = problems_of("---\nmodel: x\n---\nPrompt.")
    assert problem.line == 1
    assert "needs a name" in problem.message


@pytest.mark.parametrize("text", ["", "Only words.", "# Title\n\n## Heading\n\nText.\n\n## Other\n"])
def test_a_file_without_agents_has_none(text: str) -> None:
    assert parse_agents(text).agents == ()
    assert parse_agents(text).hints == ()


def test_omitted_keys_have_their_defaults() -> None:
    assert only("## One\n---\n---\n") == Agent(id="one", name="One", line=1)


def test_windows_line_ends_and_a_byte_order_mark_change_nothing() -> None:
    plain = parse_agents(EXAMPLE, "AGENTS.md")
    assert parse_agents("\ufeff" + EXAMPLE.replace("\n", "\r\n"), "AGENTS.md") == plain


@pytest.mark.parametrize("fence", ["```", "````", "~~~", "   ```"])
def test_headings_inside_fenced_code_begin_no_agent(fence: str) -> None:
    marks = fence.strip()
    text = matter() + f"\n{fence}markdown\n## Two\n---\nmodel: x\n---\n{marks}\nAfter."
    agent = only(text)
    assert "## Two" in agent.prompt
    assert agent.prompt.endswith("After.")


@pytest.mark.parametrize("line", ["```", "~~~~", "```` not the end", "    ````"])
def test_a_shorter_or_other_fence_does_not_end_the_code(line: str) -> None:
    text = matter() + f"\n````\n{line}\n## Two\n---\nmodel: x\n---\n````\n## Three\n---\n---\n"
    assert [agent.id for agent in parse_agents(text).agents] == ["one", "three"]


def test_code_within_a_line_opens_no_fence() -> None:
    text = matter() + "\n```inline``` words\n## Two\n---\nmodel: x\n---\n"
    assert [agent.id for agent in parse_agents(text).agents] == ["one", "two"]


def test_code_that_never_ends_is_worth_a_hint() -> None:
    read = parse_agents(matter() + "\n```\n## Two\n---\nmodel: x\n---\n", "AGENTS.md")
    assert [agent.id for agent in read.agents] == ["one"]
    (hint,) = read.hints
    assert hint.line == 5
    assert "never closed" in hint.message


def test_a_line_across_the_text_after_a_heading_is_not_front_matter_and_worth_a_hint() -> None:
    read = parse_agents(matter() + "\n\n## Notes\n\n---\n\nSome words.\n\n---\nMore.", "AGENTS.md")
    assert [agent.id for agent in read.agents] == ["one"]
    assert read.agents[0].prompt.endswith("## Notes\n\n---\n\nSome words.\n\n---\nMore.")
    (hint,) = read.hints
    assert (hint.line, "'## Notes'" in hint.message) == (8, True)


@pytest.mark.parametrize("heading", ["# One", "### One", "##One", "    ## One", "##"])
def test_only_a_heading_of_the_second_level_begins_an_agent(heading: str) -> None:
    assert parse_agents(f"Text.\n{heading}\n---\nmodel: x\n---\n").agents == ()


def test_marks_that_close_a_heading_are_not_part_of_the_name() -> None:
    assert only("## C# Expert ##\n---\n---\n").name == "C# Expert"


def test_the_indentation_of_a_prompts_first_line_is_kept() -> None:
    assert only("## One\n---\n---\n\n   \n    code\n\n").prompt == "    code"


@pytest.mark.parametrize(
    ("name", "expected_id"),
    [
        ("Prompt Builder", "prompt-builder"),
        ("  Code_Review (v2) ", "code-review-v2"),
        ("Prüfer", "prüfer"),
        ("Pru\u0308fer", "prüfer"),
        ("---", ""),
    ],
)
def test_an_id_is_the_name_in_lower_case_with_dashes(name: str, expected_id: str) -> None:
    assert agent_id(name) == expected_id


def test_a_comment_in_front_matter_is_not_a_heading() -> None:
    agent = only("## One\n---\n# a comment\nmodel: x\n## the last comment\n---\nPrompt, with words.")
    assert (agent.model, agent.prompt) == ("x", "Prompt, with words.")


# mistakes


def test_all_mistakes_come_at_once_with_file_and_line() -> None:
    text = (
        "## One\n---\ntemperature: hot\ntools: view_file\nmode: both\nmax_steps: 0\n---\n"
        "## One!\n---\nbundles: repoRead\n---\n## Three\n---\ndescription: a: b\n---\n"
    )
    problems = problems_of(text)
    assert [(problem.line, problem.path) for problem in problems] == [
        (3, "One.temperature"),
        (4, "One.tools"),
        (5, "One.mode"),
        (6, "One.max_steps"),
        (8, "One!"),
        (10, "One!.bundles"),
        (14, "Three"),
    ]
    assert all(problem.file == "AGENTS.md" for problem in problems)
    assert "expected a number from 0 to 2, found 'hot'" in problems[0].message
    assert problems[1].message == "tools: is not a list"
    assert "expected direct or meta, found 'both'" in problems[2].message
    assert "the first is on line 1" in problems[4].message
    assert "not valid YAML" in problems[6].message


@pytest.mark.parametrize("value", ["-0.1", "2.1", "yes", "'0.5'", "[1]", ".inf", "nan", "", "1_0", "1e400"])
def test_a_temperature_is_a_number_from_0_to_2(value: str) -> None:
    (problem,) = problems_of(matter(f"temperature: {value}"))
    assert problem.line == 3


@pytest.mark.parametrize(
    ("value", "number"), [("0", 0.0), ("2", 2.0), (".5", 0.5), ("1e0", 1.0), ("+1.", 1.0)]
)
def test_a_temperature_may_be_written_in_any_usual_way(value: str, number: float) -> None:
    assert only(matter(f"temperature: {value}")).temperature == number


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "[3]", "9999999999"])
def test_max_steps_is_a_whole_number_from_1_on(value: str) -> None:
    assert len(problems_of(matter(f"max_steps: {value}"))) == 1


@pytest.mark.parametrize("value", ["repoRead", "{a: b}", "[[a]]", "['']", "[{a: b}]"])
def test_bundles_are_a_list_of_ids(value: str) -> None:
    assert len(problems_of(matter(f"bundles: {value}"))) == 1


@pytest.mark.parametrize("key", ["description", "model"])
def test_a_text_is_a_text(key: str) -> None:
    assert len(problems_of(matter(f"{key}: [a]"))) == 1
    assert len(problems_of(matter(f"{key}:", "  a: b"))) == 1


def test_a_description_may_take_several_lines_and_look_like_anything() -> None:
    assert only(matter("description: |", "  one", "  tools: two")).description == "one\ntools: two"
    assert only(matter("description: yes")).description == "yes"
    assert only(matter("description: 2024-99-99")).description == "2024-99-99"


def test_a_key_that_stands_twice_is_a_mistake() -> None:
    (problem,) = problems_of(matter("model: a", "tools: [x]", "model: b"))
    assert (problem.line, problem.path) == (5, "One.model")
    assert "first used on line 3" in problem.message
    (problem,) = problems_of(matter("tools: [a]", "tools: [b]"))
    assert (problem.line, problem.path) == (4, "One.tools")


def test_an_unknown_key_is_a_hint_with_a_suggestion() -> None:
    read = parse_agents(matter("model: x", "maxSteps: 3", "zzz: 1"), "AGENTS.md")
    assert [(hint.line, hint.path) for hint in read.hints] == [(4, "One.maxSteps"), (5, "One.zzz")]
    assert read.hints[0].hint == "did you mean 'max_steps'?"
    assert (
        read.hints[1].hint
        == "known keys: description, model, temperature, tools, bundles, mode, max_steps, starters"
    )


def test_a_name_beside_a_heading_is_ignored_with_a_hint() -> None:
    read = parse_agents(matter("name: Other"))
    assert read.agents[0].name == "One"
    assert len(read.hints) == 1


def test_front_matter_that_is_never_closed_does_not_swallow_the_next_agent() -> None:
    text = "## One\n---\nmodel: x\nPrompt.\n\n## Two\n---\ntemperature: hot\n---\n"
    first, second = problems_of(text)
    assert (first.line, first.message) == (2, "the front matter of agent 'One' is never closed")
    assert (second.line, second.path) == (8, "Two.temperature")
    (problem,) = problems_of("---\nname: One\nPrompt.")
    assert "never closed" in problem.message


def test_a_name_without_letters_is_a_mistake() -> None:
    (problem,) = problems_of("## !!!\n---\n---\n")
    assert "no letter or digit" in problem.message


@pytest.mark.parametrize(
    "lines",
    [
        ["model: [" * 2_000],
        ['model: "\\U99999999"'],
        ["model: !!timestamp ''", "temperature: !!int ''"],
        ["&a model: *a"],
        ["? [a, b]", ": c"],
        ["model: \x07"],
        ["- a"],
        ["words: of", "  no: YAML:"],
        ["%YAML 9999999999999999999.0"],
    ],
)
def test_hostile_yaml_raises_nothing_but_the_error_with_its_problems(lines: list[str]) -> None:
    read = parsed(matter("mode: direct", *lines))
    assert isinstance(read, AgentsFile) or all(problem.line for problem in read.problems)


pieces = st.sampled_from(
    [
        "## One",
        "## Two ##",
        "# Title",
        "---",
        "--- ",
        "...",
        "name: X",
        "model: x",
        "tools:",
        "tools: [a,",
        "tools: [*, !web_*]",
        "  [a]",
        "- !b*",
        "  - 'c'",
        "] # x",
        "temperature: 1",
        "mode: meta",
        "```",
        "~~~~",
        "",
        "  ",
        "words",
        "key: |",
        "  more: words",
        "bundles: [a]",
        "{",
        "!!x",
        "&a *a",
    ]
)


@settings(deadline=None)
@given(text=st.lists(pieces | st.text(max_size=10), max_size=25).map("\n".join))
def test_no_text_raises_anything_but_the_error_with_its_problems(text: str) -> None:
    read = parsed(text)
    if isinstance(read, AgentsFile):
        ids = [agent.id for agent in read.agents]
        assert len(ids) == len(set(ids))
        assert all(agent.line for agent in read.agents)
    else:
        last = len(text.split("\n")) + text.count("\r")
        assert read.problems
        assert all(problem.line and problem.line <= last for problem in read.problems)


@settings(deadline=None)
@given(text=st.text())
def test_arbitrary_text_raises_nothing_but_the_error_with_its_problems(text: str) -> None:
    for start, end in (
        ("", ""),
        ("---\n", "\n---"),
        ("## One\n---\n", "\n---"),
        ("## One\n---\ntools: ", "\n---"),
    ):
        read = parsed(f"{start}{text}{end}")
        assert isinstance(read, AgentsFile) or read.problems
