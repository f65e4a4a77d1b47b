"""The exact objects that a model gets."""

from __future__ import annotations

import dataclasses

import pytest

from toolyard.types.tool import Media, Result, TextBlock, TextResource


def test_a_result_without_error_is_its_text() -> None:
    assert Result({}, "two\nlines").for_model() == "two\nlines"


def test_an_error_is_an_object_with_its_output() -> None:
    assert Result({}, "no such file", is_error=True).for_model() == {"error": True, "output": "no such file"}


def test_an_unreachable_server_has_its_cause_beside_the_output() -> None:
    result = Result(None, "MCP server unreachable", is_error=True, cause="connection refused")
    assert result.for_model() == {
        "error": True,
        "output": "MCP server unreachable",
        "cause": "connection refused",
    }


def test_media_are_the_media_blocks_in_their_order() -> None:
    first, second = Media("image", "image/png", "AAAA", 3), Media("audio", "audio/wav", "AAAA", 3)
    blocks = (first, TextBlock("between"), TextResource("file:///a", None, "text"), second)
    assert Result({}, "", blocks=blocks).media == (first, second)


@pytest.mark.parametrize("value", [{"a": 1}, [1, 2], "text", 5, False])
def test_structured_content_is_any_json_value(value: object) -> None:
    assert Result({"structuredContent": value}, "").structured == value


@pytest.mark.parametrize("raw", [None, {}, [], "text"])
def test_structured_content_is_none_where_there_is_none(raw: object) -> None:
    assert Result(raw, "").structured is None


def test_a_result_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Result({}, "text").text = "other"  # type: ignore[misc]
