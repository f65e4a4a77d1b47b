"""The list reader of ``tools:``, for lists that YAML cannot parse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.agents.definitions.tools_list import ToolList, parse_tool_list

patterns = st.from_regex(r"!?[A-Za-z0-9_*-]{1,12}", fullmatch=True)


def read(*lines: str) -> ToolList:
    return parse_tool_list(lines, 0)


def items(*lines: str) -> list[str]:
    tool_list = read(*lines)
    assert tool_list.problems == []
    return tool_list.items


def complaint(*lines: str) -> tuple[int, str]:
    (problem,) = read(*lines).problems
    return problem.line_index, problem.message


def test_the_examples_of_the_decision_are_read_to_the_letter() -> None:
    assert items("tools: [view_file, grep, context7_*]") == ["view_file", "grep", "context7_*"]
    assert items("tools: [*]") == ["*"]
    assert items("tools: [*, !web_*]") == ["*", "!web_*"]
    assert items("tools: [view_file]") == ["view_file"]


def test_an_empty_list_means_without_tools() -> None:
    assert items("tools: []") == []
    assert items("tools: [ ] # none") == []


def test_an_inline_list_may_take_several_lines_with_comments_and_a_last_comma() -> None:
    tool_list = read(
        "tools: [ # ours", "  *,", "", "  !web_*, # not these", "  grep,", "] # done", "model: x"
    )
    assert (tool_list.items, tool_list.end, tool_list.problems) == (["*", "!web_*", "grep"], 6, [])


def test_an_inline_list_may_begin_on_the_next_line() -> None:
    tool_list = read("tools:", "", "  [*,", "   !web_*]", "model: x")
    assert (tool_list.items, tool_list.end, tool_list.problems) == (["*", "!web_*"], 4, [])


@pytest.mark.parametrize("indent", ["", "  ", "\t"])
def test_a_block_list_is_read_with_its_signs_and_comments(indent: str) -> None:
    lines = [f"{indent}- *", "", f"{indent}- !web_*  # not these", "# a comment", f"{indent}-   grep"]
    tool_list = read("tools:  # ours", *lines, "model: x")
    assert (tool_list.items, tool_list.end, tool_list.problems) == (["*", "!web_*", "grep"], 6, [])


def test_items_may_be_quoted_in_both_ways_with_the_sign_inside_or_outside() -> None:
    assert items("""tools: ["*", '!web_*', !"a", !'b', "c"]""") == ["*", "!web_*", "!a", "!b", "c"]
    assert items("tools:", """- "a\\"b" """, "- 'it''s'") == ['a"b', "it's"]


@pytest.mark.parametrize("key", ["tools:", "tools :", '"tools":', "'tools':"])
def test_the_key_may_be_written_as_yaml_allows(key: str) -> None:
    assert items(f"{key} [a]") == ["a"]


@pytest.mark.parametrize("value", ["view_file", "'*'", "{a: b}", "view_file, grep", "*", "| [a]"])
def test_a_single_value_is_not_a_list(value: str) -> None:
    assert complaint(f"tools: {value}", "  more", "model: x") == (0, "tools: is not a list")
    assert read(f"tools: {value}", "  more", "model: x").end == 2


@pytest.mark.parametrize(
    "lines", [["tools:"], ["tools: # all"], ["tools:", "model: x"], ["tools:", "", "# c"]]
)
def test_an_empty_value_is_not_a_list(lines: list[str]) -> None:
    assert complaint(*lines) == (0, "tools: is not a list")


def test_an_open_list_ends_before_the_next_key() -> None:
    tool_list = read("tools: [a,", "  b", "model: x")
    assert [each.message for each in tool_list.problems] == ["the list of tools is never closed"]
    assert tool_list.end == 2


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["tools: [a b]"], (0, "a comma is missing between 'a' and 'b'")),
        (["tools: [a,", "b c]"], (1, "a comma is missing between 'b' and 'c'")),
        (["tools: [a, , b]"], (0, "an item of tools is empty")),
        (["tools: [,]"], (0, "an item of tools is empty")),
        (["tools: [a, [b]]"], (0, "the list of tools contains another list")),
        (["tools: [a] b"], (0, "unexpected text after the list of tools")),
        (["tools: [!]"], (0, "'!' does not name a tool")),
        (["tools: ['']"], (0, "'''' does not name a tool")),
        (['tools: ["a b"]'], (0, "'a b' is not a valid tool name")),
        (['tools: ["a]'], (0, "the quote before a is never closed")),
        (["tools:", "- a", "-"], (2, "an item of tools is empty")),
        (["tools:", "- a b"], (1, "'a b' is not a valid tool name")),
        (["tools:", "- a, b"], (1, "'a, b' is not a valid tool name")),
        (["tools:", "- [a]"], (1, "'[a]' is not a valid tool name")),
        (["tools:", "- a", "  b"], (2, "expected '- name', found 'b'")),
        (["tools:", "-a"], (1, "expected '- name', found '-a'")),
    ],
)
def test_a_mistake_is_told_with_its_line(lines: list[str], expected: tuple[int, str]) -> None:
    assert complaint(*lines) == expected


@given(texts=st.lists(patterns, min_size=1), data=st.data())
def test_every_way_of_writing_a_list_reads_the_same(texts: list[str], data: st.DataObject) -> None:
    def quote_item(text: str) -> str:
        return data.draw(st.sampled_from([text, f'"{text}"', f"'{text}'"]))

    separator = data.draw(st.sampled_from([", ", ",", ",\n  ", " # c\n , "]))
    inline = f"tools: [{separator.join(quote_item(text) for text in texts)}\n]"
    assert items(*inline.split("\n")) == texts
    assert items("tools:", *(f"  - {quote_item(text)}" for text in texts)) == texts


@given(lines=st.lists(st.text(alphabet="[],!*'\"# -ab:\t\\", max_size=12), max_size=6))
def test_no_text_raises_and_the_list_ends_within_it(lines: list[str]) -> None:
    tool_list = parse_tool_list(["tools:" + "".join(lines[:1]), *lines[1:]], 0)
    assert 0 < tool_list.end <= max(1, len(lines))
    assert all(0 <= each.line_index < max(1, len(lines)) for each in tool_list.problems)
