from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from toolyard.catalog.search import Hit, SearchIndex
from toolyard.types.tool import Definition

WORDS = [
    *("read", "reads", "file", "files", "delete", "remove", "image", "picture", "weather", "forecast", "get"),
    *(
        "search",
        "find",
        "GitHub",
        "git",
        "hub",
        "issue",
        "issues",
        "天气",
        "搜索",
        "a",
        "the",
        "base64",
        "list",
    ),
]
texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
names = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map("_".join)
queries = st.one_of(
    st.lists(st.sampled_from([*WORDS, "fil", "wether", "and", ",", "'file'", "githb"]), max_size=9).map(
        " ".join
    ),
    st.text(max_size=40),
)
Tools = dict[str, tuple[str, Definition]]


@st.composite
def tool(draw: st.DrawFn) -> tuple[str, Definition]:
    server = draw(st.sampled_from(["files", "github", "sky"]))
    properties: dict[str, Any] = {
        draw(names): {"description": draw(texts)} for _ in range(draw(st.integers(0, 2)))
    }
    schema = {"type": "object", "properties": properties}
    return server, Definition(server, draw(names), description=draw(texts), input_schema=schema)


catalogues = st.dictionaries(st.from_regex(r"\A[a-z]{1,4}\Z"), tool(), max_size=12)


def build(tools: Tools) -> SearchIndex:
    # A low limit, so that also these small catalogues have terms with a stored bitset.
    index = SearchIndex(max_listed_documents=3)
    for server, server_tools in by_server(tools).items():
        index.put(server, server_tools, description=f"about {server}")
    return index


def by_server(tools: Tools) -> dict[str, dict[str, Definition]]:
    tools_by_server: dict[str, dict[str, Definition]] = {}
    for name, (server, definition) in tools.items():
        tools_by_server.setdefault(server, {})[name] = definition
    return tools_by_server


@given(catalogues, queries, st.randoms())
def test_the_order_in_which_tools_come_does_not_matter(tools: Tools, query: str, random: Any) -> None:
    tool_items = list(tools.items())
    random.shuffle(tool_items)
    assert build(tools).search(query) == build(dict(tool_items)).search(query)


@given(catalogues, catalogues, queries)
def test_a_changed_index_equals_a_new_one(before: Tools, after: Tools, query: str) -> None:
    index = build(before)
    index.search(query)
    for server in by_server(before).keys() - by_server(after).keys():
        index.remove(server)
    for server, server_tools in by_server(after).items():
        index.put(server, server_tools, description=f"about {server}")
    assert index.search(query) == build(after).search(query)
    assert len(index) == len(after)


@given(catalogues, queries, st.sets(st.from_regex(r"\A[a-z]{1,4}\Z")), st.data())
def test_a_search_among_allowed_tools_is_a_search_in_an_index_of_only_these(
    tools: Tools, query: str, strangers: set[str], data: st.DataObject
) -> None:
    allowed_names = data.draw(st.sets(st.sampled_from(sorted(tools))) if tools else st.just(set[str]()))
    visible = {name: tool for name, tool in tools.items() if name in allowed_names}
    hits = build(tools).search(query, allowed=frozenset(allowed_names | (strangers - tools.keys())))
    assert hits == build(visible).search(query)
    assert {hit.name for hit in hits} <= allowed_names


@given(catalogues, queries, st.integers(1, 12))
def test_hits_are_in_order_without_repetition_and_known(tools: Tools, query: str, limit: int) -> None:
    hits = build(tools).search(query, limit)
    assert len(hits) <= limit
    assert len({hit.name for hit in hits}) == len(hits)
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.name))
    assert all(hit.name in tools and hit.score > 0 for hit in hits)


@given(catalogues, queries)
def test_a_search_gives_the_same_however_often(tools: Tools, query: str) -> None:
    index = build(tools)
    first = index.search(query)
    assert all(index.search(query) == first for _ in range(6))


@settings(max_examples=20)
@given(st.permutations([f"t{number:03}" for number in range(120)]))
def test_among_many_equal_tools_the_first_by_name_are_found(order: list[str]) -> None:
    index = SearchIndex()
    index.put("s", {name: Definition("s", "paint") for name in order})
    assert index.search("paint", 5) == [
        Hit(f"t{number:03}", index.search("paint", 1)[0].score) for number in range(5)
    ]
