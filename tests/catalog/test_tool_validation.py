from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.catalog.listing_codec import (
    encode_listing,
    has_bounded_depth,
    parse_stored_listing,
    validate_listing,
)
from toolyard.catalog.tool_validation import (
    MAX_NESTING_LEVELS,
    MAX_TOOL_BYTES,
    MAX_TOOL_NAME_CHARS,
    validate_tools,
)
from toolyard.types.tool import RawListing

SCHEMA: dict[str, Any] = {"type": "object"}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
near_tools = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["a", "b", ""]) | json_values,
        "title": json_values,
        "description": json_values,
        "inputSchema": st.fixed_dictionaries({}, optional={"type": json_values, "properties": json_values})
        | json_values,
        "outputSchema": json_values,
        "annotations": json_values,
    },
)


def nest_tool(levels: int) -> dict[str, Any]:
    """Return a tool with exactly so many levels."""
    inner: Any = {}
    for _ in range(levels - 3):
        inner = [inner]
    return {"name": "deep", "inputSchema": {"type": "object", "default": inner}}


def test_a_sound_tool_becomes_a_definition() -> None:
    raw = {
        "name": "search",
        "title": "Search",
        "description": "Finds.",
        "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
        "_meta": {"vendor": 1},
    }
    validation = validate_tools("repo", [raw])
    (definition,) = validation.definitions
    assert definition.id == "repo/search"
    assert definition.title == "Search"
    assert definition.description == "Finds."
    assert definition.input_schema == raw["inputSchema"]
    assert definition.output_schema == {"type": "object"}
    assert definition.read_only_hint is True
    assert definition.raw is raw
    assert validation.quarantined == ()
    assert validation.remarks == ()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, "it must be an object, not null"),
        ([], "it must be an object, not an array"),
        ("tool", "it must be an object, not a string"),
        ({"inputSchema": SCHEMA}, "it has no name"),
        ({"name": None, "inputSchema": SCHEMA}, "it has no name"),
        ({"name": 7, "inputSchema": SCHEMA}, "its name must be a string, not a number"),
        ({"name": "", "inputSchema": SCHEMA}, "its name is empty"),
        ({"name": " \t", "inputSchema": SCHEMA}, "its name is empty"),
        (
            {"name": "x" * (MAX_TOOL_NAME_CHARS + 1), "inputSchema": SCHEMA},
            "its name has 257 characters, more than 256",
        ),
        ({"name": "a\x1b[2J", "inputSchema": SCHEMA}, "its name contains unprintable characters"),
        ({"name": "a‮b", "inputSchema": SCHEMA}, "its name contains unprintable characters"),
        ({"name": "a", "inputSchema": None}, "inputSchema must be a JSON Schema object, not null"),
        ({"name": "a", "inputSchema": True}, "inputSchema must be a JSON Schema object, not true"),
        ({"name": "a", "inputSchema": []}, "inputSchema must be a JSON Schema object, not an array"),
        ({"name": "a", "inputSchema": "{}"}, "inputSchema must be a JSON Schema object, not a string"),
        (
            {"name": "a", "inputSchema": {"type": "array"}},
            "the type of inputSchema must be 'object', not 'array'",
        ),
        (
            {"name": "a", "inputSchema": {"type": ["object", "null"]}},
            "the type of inputSchema must be 'object', not an array",
        ),
        (
            {"name": "a", "inputSchema": {"properties": []}},
            "the properties of inputSchema must be an object, not an array",
        ),
    ],
)
def test_a_broken_tool_is_quarantined_alone_and_says_why(raw: object, reason: str) -> None:
    validation = validate_tools("repo", [raw, {"name": "sound", "inputSchema": SCHEMA}])
    assert [definition.name for definition in validation.definitions] == ["sound"]
    (broken,) = validation.quarantined
    assert broken.reason == reason
    assert broken.raw is raw


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"properties": {"a": {"$ref": "https://example.org/schema.json"}}},
        {"anyOf": [{"required": ["a"]}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}},
    ],
)
def test_a_schema_without_a_type_or_with_references_is_sound(schema: dict[str, Any]) -> None:
    assert validate_tools("repo", [{"name": "a", "inputSchema": schema}]).quarantined == ()


def test_of_two_tools_with_one_name_the_first_stays() -> None:
    first = {"name": "a", "description": "first", "inputSchema": SCHEMA}
    second = {"name": "a", "description": "second", "inputSchema": SCHEMA}
    validation = validate_tools("repo", [first, second])
    assert [definition.description for definition in validation.definitions] == ["first"]
    assert [entry.raw for entry in validation.quarantined] == [second]
    assert "twice" in validation.quarantined[0].reason


def test_a_remark_about_a_tool_that_is_set_apart_is_not_made() -> None:
    sound, odd = {"name": "a", "inputSchema": SCHEMA}, {"name": "a", "inputSchema": SCHEMA, "title": 5}
    assert validate_tools("repo", [sound, odd]).remarks == ()


def test_a_reason_repeats_nothing_that_deceives_a_terminal() -> None:
    (entry,) = validate_tools("repo", [{"name": "a", "inputSchema": {"type": "\x1b[2J"}}]).quarantined
    assert str(entry).isprintable()


def test_a_broken_tool_does_not_take_the_name_from_a_sound_one_after_it() -> None:
    validation = validate_tools("repo", [{"name": "a"}, {"name": "a", "inputSchema": SCHEMA}])
    assert [definition.name for definition in validation.definitions] == ["a"]


@pytest.mark.parametrize("key", ["title", "description", "outputSchema", "annotations"])
def test_an_odd_optional_part_is_ignored_with_a_remark(key: str) -> None:
    validation = validate_tools("repo", [{"name": "a", "inputSchema": SCHEMA, key: 5}])
    (definition,) = validation.definitions
    assert not getattr(definition, {"outputSchema": "output_schema"}.get(key, key))
    (remark,) = validation.remarks
    assert remark.text.startswith(f"{key} is a number")


def test_null_in_an_optional_part_means_that_it_is_absent() -> None:
    raw = {"name": "a", "inputSchema": SCHEMA, "description": None, "annotations": None}
    assert validate_tools("repo", [raw]).remarks == ()


def test_a_title_among_the_annotations_is_the_fallback() -> None:
    raw = {"name": "a", "inputSchema": SCHEMA, "annotations": {"title": "A"}}
    assert validate_tools("repo", [raw]).definitions[0].title == "A"
    assert validate_tools("repo", [{**raw, "title": "B"}]).definitions[0].title == "B"


def test_definitions_are_sorted_by_name() -> None:
    tools = [{"name": name, "inputSchema": SCHEMA} for name in ("b", "A", "a", "ä")]
    assert [definition.name for definition in validate_tools("repo", tools).definitions] == [
        "A",
        "a",
        "b",
        "ä",
    ]


def test_a_further_check_can_quarantine() -> None:
    tools = [{"name": "a", "inputSchema": {"x": 1}}, {"name": "b", "inputSchema": {}}]
    validation = validate_tools(
        "repo", tools, schema_check=lambda schema: "has an x" if "x" in schema else None
    )
    assert [definition.name for definition in validation.definitions] == ["b"]
    assert [entry.reason for entry in validation.quarantined] == ["has an x"]


def test_nesting_up_to_the_bound_is_sound_and_beyond_it_is_not() -> None:
    assert validate_tools("repo", [nest_tool(MAX_NESTING_LEVELS)]).quarantined == ()
    (entry,) = validate_tools("repo", [nest_tool(MAX_NESTING_LEVELS + 1)]).quarantined
    assert entry.name == "deep"
    assert entry.reason == f"it is nested more than {MAX_NESTING_LEVELS} levels deep"
    assert entry.raw is None


def test_the_bound_is_the_one_that_orjson_proves_by_writing_a_listing() -> None:
    assert has_bounded_depth(encode_listing(RawListing(tools=(nest_tool(MAX_NESTING_LEVELS),))))
    with pytest.raises(TypeError):
        orjson.dumps({"tools": (nest_tool(MAX_NESTING_LEVELS + 1),)})


def test_nesting_that_would_exhaust_the_stack_is_quarantined() -> None:
    validation = validate_tools("repo", [nest_tool(100_000), {"name": "sound", "inputSchema": SCHEMA}])
    assert len(validation.quarantined) == 1
    assert len(validation.definitions) == 1


def test_values_beyond_json_do_not_hang_it() -> None:
    knot: list[Any] = []
    knot += [knot, knot, knot]
    (entry,) = validate_tools("repo", [{"name": "a", "inputSchema": {"x": knot}}]).quarantined
    assert "more than" in entry.reason


@given(st.lists(near_tools | json_values, max_size=6))
def test_no_listing_raises_and_every_tool_is_accounted_for(tools: list[Any]) -> None:
    before = copy.deepcopy(tools)
    validation = validate_tools("repo", tools)
    assert len(validation.definitions) + len(validation.quarantined) == len(tools)
    assert len({definition.name for definition in validation.definitions}) == len(validation.definitions)
    assert repr(tools) == repr(before)
    for entry in validation.quarantined:
        assert entry.reason
        assert str(entry).isprintable()


def test_a_tool_over_the_size_limit_is_quarantined_and_the_others_are_not() -> None:
    tools = [
        {"name": "long", "description": "x" * 2_000, "inputSchema": SCHEMA},
        {"name": "wide", "inputSchema": {"type": "object", "enum": [2**70] * 100}},
        {"name": "short", "inputSchema": SCHEMA},
    ]
    validation = validate_tools("s", tools, max_tool_bytes=1_000)
    assert [definition.name for definition in validation.definitions] == ["short"]
    assert {(each.name, each.reason) for each in validation.quarantined} == {
        ("long", "its definition has more than 1,000 bytes"),
        ("wide", "its definition has more than 1,000 bytes"),
    }


def test_a_listing_with_one_huge_tool_keeps_the_others() -> None:
    huge = {"name": "huge", "description": "x" * MAX_TOOL_BYTES, "inputSchema": SCHEMA}
    listing = RawListing(tools=(huge, {"name": "small", "inputSchema": SCHEMA}))
    contents, body = validate_listing("s", listing, None)
    assert body is not None
    for each in (contents, parse_stored_listing("s", body, None)):
        assert [definition.name for definition in each.definitions] == ["small"]
        assert [tool.name for tool in each.quarantined] == ["huge"]


def test_a_tool_without_an_input_schema_takes_any_arguments_and_has_a_remark() -> None:
    validation = validate_tools("repo", [{"name": "a"}])
    assert [(each.name, each.input_schema) for each in validation.definitions] == [("a", {})]
    assert [str(each) for each in validation.remarks] == [
        "tool 'a' of server 'repo': it has no inputSchema, which counts as {}"
    ]
    assert validation.quarantined == ()
