from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolyard.catalog.search import SearchIndex, documents
from toolyard.catalog.search.documents import DocumentBuilder
from toolyard.types.tool import Definition


@pytest.fixture(scope="module")
def index() -> SearchIndex:
    index = SearchIndex()
    index.put(
        "s", {"s_read": Definition("s", "read_file", description="Read a file"), "s_x": Definition("s", "x")}
    )
    return index


@pytest.mark.parametrize(
    "query",
    [
        "",
        " ",
        "\n\t",
        "?!…",
        "'\"'",
        "，。？",
        "\x00\x01",
        "\ud800",
        "the of and",
        "🙂🙃",
        "\u200b",
        "((((",
        "%s{}\\",
    ],
)
def test_a_query_without_words_finds_nothing(index: SearchIndex, query: str) -> None:
    assert index.search(query) == []


@pytest.mark.parametrize(
    "query",
    [
        "read file " * 10_000,
        "file" + "a" * 100_000,
        "".join(f"w{number} " for number in range(20_000)) + "file",
        "读取文件" * 25_000,
        "'" * 100_000,
        '"a' * 50_000,
        "/a" * 50_000,
        "a@" * 50_000,
        "http://" * 15_000,
        "aA" * 50_000,
        ", and " * 20_000,
        "\u0301" * 100_000,
        "ﷺ" * 30_000,
    ],
    ids=lambda query: query[:12],
)
def test_a_query_of_a_hundred_kilobytes_is_answered(index: SearchIndex, query: str) -> None:
    assert len(index.search(query)) <= 2


def test_a_chinese_query_is_answered(index: SearchIndex) -> None:
    assert index.search("读取文件")[0].name == "s_read"


@given(st.text())
def test_no_query_raises(query: str) -> None:
    index = SearchIndex()
    index.put("s", {"s_read": Definition("s", "read_file", description=query)})
    assert {hit.name for hit in index.search(query)} <= {"s_read"}


def nest_schema(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for number in range(depth):
        schema = {"properties": {f"deep{number}": schema}, "items": schema}
    return schema


@pytest.mark.parametrize(
    "definition",
    [
        Definition("s", "n" * 1_000_000),
        Definition("s", "t", title="word " * 200_000),
        Definition("s", "t", description=" ".join(f"w{number}" for number in range(200_000))),
        Definition("s", "t", description="。" * 500_000),
        Definition(
            "s", "t", input_schema={"properties": {f"p{n}": {"description": "x" * 9} for n in range(90_000)}}
        ),
        Definition("s", "t", input_schema=nest_schema(500)),
    ],
    ids=["name", "title", "description", "stops", "parameters", "depth"],
)
def test_a_huge_definition_is_read_up_to_a_bound(definition: Definition) -> None:
    assert len(DocumentBuilder().build(definition, {}).weights) <= 512


@pytest.mark.parametrize(
    "definition",
    [
        Definition("s", "t", input_schema={"properties": {f"{n}" + "x" * 252: {} for n in range(256)}}),
        Definition("s", "t", description="a \ufdfa" * 1_500),
    ],
    ids=["names of parameters", "characters that become eighteen"],
)
def test_of_each_text_so_many_characters_are_read(
    definition: Definition, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    monkeypatch.setattr(documents, "extract_terms", lambda run: runs.append(run) or ())
    DocumentBuilder(max_cached_run_chars=0).build(definition, {})
    assert 1_000 < sum(map(len, runs)) < 4_100


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": []},
        {"properties": {"a": None, "b": True, "c": 5, "d": {"description": 7, "items": "x"}}},
        {"properties": {"a": {"properties": {"b": {"description": ["x"]}}}}},
        {"items": None},
    ],
)
def test_a_schema_of_odd_parts_is_read_as_far_as_it_goes(schema: dict[str, Any]) -> None:
    index = SearchIndex()
    index.put("s", {"s_t": Definition("s", "tidy", input_schema=schema)})
    assert [hit.name for hit in index.search("tidy")] == ["s_t"]


def test_a_description_full_of_words_does_not_outrank_the_tool_that_was_meant() -> None:
    index = SearchIndex()
    stuffed_text = " ".join(["weather forecast read file email search"] * 500)
    index.put("bad", {"bad_magic": Definition("bad", "magic", description=stuffed_text)})
    index.put(
        "good", {"good_forecast": Definition("good", "weather_forecast", description="Weather by city")}
    )
    assert index.search("weather forecast")[0].name == "good_forecast"


def unique_words(number: int) -> str:
    """Fifty words that no other number has."""
    digits = [f"{50 * number + word:07}" for word in range(50)]
    return " ".join("".join("bcdfghjklm"[int(digit)] for digit in each) for each in digits)


def test_a_server_adds_so_many_terms_and_its_tools_are_still_found() -> None:
    index = SearchIndex(max_server_terms=1_000)
    texts = [f"common {unique_words(number)}" for number in range(200)]
    index.put(
        "bad", {f"bad_t{n}": Definition("bad", f"t{n}", description=text) for n, text in enumerate(texts)}
    )
    index.put("good", {"good_read": Definition("good", "read", description="Photographs of zebras")})
    assert index.term_count < 1_200
    assert index.search("bad_t199")[0].name == "bad_t199"
    assert len(index.search("common", 300)) == 200
    assert index.search("photographs")[0].name == "good_read"
    assert index.search(unique_words(0))[0].name == "bad_t0"
    assert index.search(unique_words(199)) == []


def test_terms_of_removed_tools_count_until_the_index_is_rebuilt() -> None:
    index = SearchIndex(max_server_terms=1_000)
    for version in range(200):
        index.put("bad", {"bad_t": Definition("bad", "t", description=unique_words(version))})
    assert index.term_count < 1_200
