"""Schemas as tools_describe shows them."""

from __future__ import annotations

import copy
from typing import Any

from toolyard.meta_tools.tool_definitions import make_compact_schema


def test_empty_keywords_are_omitted_and_names_stay() -> None:
    schema: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Arguments",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "title": {"title": "Title", "type": "string"},
            "$schema": {"type": "string"},
            "some": {"type": "array", "items": {"title": "Some", "anyOf": [{"title": "A", "type": "null"}]}},
            "odd": True,
        },
        "required": ["title"],
    }
    before = copy.deepcopy(schema)
    assert make_compact_schema(schema) == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "$schema": {"type": "string"},
            "some": {"type": "array", "items": {"anyOf": [{"type": "null"}]}},
            "odd": True,
        },
        "required": ["title"],
    }
    assert schema == before


def test_a_schema_that_allows_more_says_so_still() -> None:
    assert make_compact_schema({"additionalProperties": {"type": "string", "title": "x"}}) == {
        "additionalProperties": {"type": "string"}
    }
    assert make_compact_schema({"additionalProperties": True}) == {"additionalProperties": True}


def test_depth_ends_it() -> None:
    schema: dict[str, Any] = {"title": "x"}
    for _ in range(250):
        schema = {"items": schema, "title": "y"}
    assert make_compact_schema(schema)
