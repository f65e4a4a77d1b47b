from __future__ import annotations

from typing import Any

import pytest

from toolyard.catalog.exposed_names import NameAssigner
from toolyard.catalog.search import SearchIndex
from toolyard.catalog.tool_listing import ToolListing
from toolyard.types.tool import Catalogue, Definition, RawListing, ValidatedListing

TOOLS = [
    ("files", "read_file", "Read the complete contents of a file", ["path"]),
    ("files", "write_file", "Write content to a file, creating it if needed", ["path", "content"]),
    ("files", "list_directory", "List what is in a directory", ["path"]),
    ("github", "searchRepositories", "Search GitHub repositories", ["query", "page"]),
    ("github", "create_issue", "Open a new issue in a repository", ["title", "body"]),
    ("weather", "get_forecast", "The weather of the next days for a city", ["city", "days"]),
    ("mail", "send", "Send an email to somebody", ["recipient", "subject"]),
    ("hackernews", "top", "The most popular stories", []),
    ("bing", "bing_search", "使用必应搜索指定的关键词，并返回搜索结果列表", ["query"]),
]


def definition(server: str, name: str, description: str = "", parameters: tuple[str, ...] = ()) -> Definition:
    schema: dict[str, Any] = {"type": "object", "properties": {each: {} for each in parameters}}
    return Definition(server, name, description=description, input_schema=schema)


def catalogue(server: str, *definitions: Definition, instructions: str | None = None) -> Catalogue:
    listing = RawListing(instructions=instructions)
    return Catalogue(ValidatedListing(server, "hash", listing, definitions), 0.0, 60.0)


@pytest.fixture(scope="module")
def index() -> SearchIndex:
    index = SearchIndex()
    servers = dict.fromkeys(server for server, *_ in TOOLS)
    for server in servers:
        server_tools = {
            f"{server}_{name}": definition(server, name, description, tuple(parameters))
            for owner, name, description, parameters in TOOLS
            if owner == server
        }
        index.put(server, server_tools)
    return index


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("read file", "files_read_file"),
        ("search repositories", "github_searchRepositories"),
        ("repository searching", "github_searchRepositories"),
        ("open a ticket", "github_create_issue"),
        ("how will the weather be in Rome", "weather_get_forecast"),
        ("show folder", "files_list_directory"),
        ("recipient", "mail_send"),
        ("github", "github_searchRepositories"),
        ("wether forcast", "weather_get_forecast"),
        ("repositor", "github_searchRepositories"),
        ("hacker news", "hackernews_top"),
        ("必应搜索", "bing_bing_search"),
        ("天气怎么样", "weather_get_forecast"),
        ("mail_send", "mail_send"),
        ("EMAIL!!!", "mail_send"),
    ],
)
def test_the_tool_that_was_meant_comes_first(index: SearchIndex, query: str, first: str) -> None:
    assert index.search(query)[0].name == first


def test_each_clause_of_a_request_finds_its_tool(index: SearchIndex) -> None:
    hits = index.search("Check the weather forecast in Rome, then write a file about it and send an email", 4)
    names = {hit.name for hit in hits}
    assert {"weather_get_forecast", "files_write_file", "mail_send"} <= names


def test_an_exact_name_is_first_even_where_its_words_say_little() -> None:
    index = SearchIndex()
    index.put("s", {"s_get": definition("s", "get"), "s_get_file": definition("s", "get_file", "get get")})
    assert index.search("s_get")[0].name == "s_get"


def test_scores_fall_and_ties_are_by_name() -> None:
    index = SearchIndex()
    index.put("s", {name: definition("s", "equal") for name in ("b", "d", "a", "c")})
    hits = index.search("equal", 3)
    assert [hit.name for hit in hits] == ["a", "b", "c"]
    assert len({hit.score for hit in hits}) == 1


def test_the_description_of_a_server_is_searched() -> None:
    index = SearchIndex()
    index.put("a", {"a_x": definition("a", "x")}, description="Astronomy for everyone")
    index.put("b", {"b_x": definition("b", "x")})
    assert [hit.name for hit in index.search("astronomy")] == ["a_x"]
    index.put("a", {"a_x": definition("a", "x")}, description="Botany")
    assert index.search("astronomy") == []
    assert [hit.name for hit in index.search("botany")] == ["a_x"]


def test_a_server_that_was_removed_is_not_found() -> None:
    index = SearchIndex()
    index.put("a", {"a_paint": definition("a", "paint")})
    index.put("b", {"b_paint": definition("b", "paint")})
    index.remove("a")
    index.remove("unknown")
    assert [hit.name for hit in index.search("paint")] == ["b_paint"]
    assert len(index) == 1


def test_a_name_can_go_over_to_another_server() -> None:
    index = SearchIndex()
    index.put("a", {"x": definition("a", "paint")})
    index.put("b", {"x": definition("b", "sing")})
    assert index.search("paint") == []
    index.put("a", {"y": definition("a", "paint")})
    assert [hit.name for hit in index.search("paint")] == ["y"]
    assert [hit.name for hit in index.search("sing")] == ["x"]


def test_many_replacements_leave_nothing_behind() -> None:
    index = SearchIndex()
    index.put("b", {"b_paint": definition("b", "paint")})
    for number in range(60):
        index.put("a", {f"a_{each}": definition("a", f"word{number}", f"tool {each}") for each in range(200)})
    assert len(index) == 201
    assert index.search("word58 paint")[0].name == "b_paint"
    assert len(index.search("word59", 300)) == 200
    assert index.removed_count < 12_000


def test_an_index_follows_a_roster() -> None:
    naming = NameAssigner()
    paint, sing = definition("a", "paint", "Paint a wall"), definition("b", "sing")
    first = {"a": catalogue("a", paint, instructions="For walls"), "b": catalogue("b", sing)}
    index = SearchIndex()
    index.sync(ToolListing.build(naming, first, {}))
    assert [hit.name for hit in index.search("paint")] == ["a_paint"]
    second = {"a": catalogue("a", definition("a", "paint", "Draw a house"), instructions="For walls")}
    index.sync(ToolListing.build(naming, second, {}))
    assert [hit.name for hit in index.search("house")] == ["a_paint"]
    assert index.search("sing") == []
    assert [hit.name for hit in index.search("walls")] == ["a_paint"]


def test_a_hidden_tool_is_not_found_by_its_exact_name(index: SearchIndex) -> None:
    allowed_names = frozenset({"files_read_file", "files_write_file"})
    assert {hit.name for hit in index.search("mail_send", allowed=allowed_names)} <= allowed_names
    assert index.search("email recipient", allowed=allowed_names) == []


def test_words_of_hidden_tools_are_unknown(index: SearchIndex) -> None:
    allowed_names = [f"{server}_{name}" for server, name, *_ in TOOLS if server != "weather"]
    assert (
        index.search("wether", allowed=allowed_names) == index.search("qwxzvk", allowed=allowed_names) == []
    )


def test_nothing_allowed_is_nothing_found(index: SearchIndex) -> None:
    assert index.search("read file", allowed=()) == []
    assert index.search("read file", 0) == index.search("read file", -3) == []
