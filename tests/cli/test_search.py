"""``toolyard search``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


@pytest.fixture
def listed_cli(cli: Cli, demo: dict[str, Any]) -> Any:
    cli.write({"mcpServers": {"demo": demo}})
    cli("tools")
    return cli


def names(result: Any) -> list[str]:
    return [line.split("\t")[0] for line in result.lines]


def test_the_best_come_first_with_a_line_each(listed_cli: Any) -> None:
    result = listed_cli("search", "which", "day", "of", "the", "week")
    assert (result.code, names(result)[0], result.err) == (0, "demo_weekday", "")


def test_nothing_is_started(cli_with_server: Cli, starts_file: Path) -> None:
    result = cli_with_server("search", "anything")
    assert (result.code, result.out) == (0, "")
    hint = "`toolyard servers` lists the tools, or shows why it cannot"
    assert result.err == f"note: not listed yet: odd\nhint: {hint}\n"
    assert not starts_file.exists()
    cli_with_server("tools")
    before = starts_file.read_text()
    assert names(cli_with_server("search", "typed arguments"))
    assert starts_file.read_text() == before


def test_only_tools_of_the_agent_are_found(listed_cli: Any) -> None:
    listed_cli.agents("## Counter\n---\ntools: [demo_count]\n---\nCount.\n")
    assert names(listed_cli("search", "day", "week", "count", "--agent", "counter")) == ["demo_count"]


def test_a_limit_and_json(listed_cli: Any) -> None:
    assert len(listed_cli("search", "count", "week", "--limit", "1").lines) == 1
    document = listed_cli("search", "weekday", "--json").json
    assert document["tools"][0]["id"] == "demo/weekday"
    assert document["never_listed"] == []


@pytest.mark.parametrize("words", ["?!…", "天气预报", "zzzz qqqq", "-"])
def test_words_that_nothing_matches_are_said(listed_cli: Any, words: str) -> None:
    result = listed_cli("search", "--", words)
    assert (result.code, result.out) == (0, "")
    assert result.err == "note: nothing matches\nhint: try other words\n"


def test_without_words_all_tools_are_listed_by_server(cli: Cli, demo: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"zoo": demo, "ark": demo}})
    cli("tools")
    hits = [tuple(line.split("\t")[:2]) for line in cli("search").lines]
    assert hits == [
        *(("ark", "ark_count"), ("ark", "ark_weekday")),
        *(("zoo", "zoo_count"), ("zoo", "zoo_weekday")),
    ]
    assert len(cli("search", "--limit", "1").lines) == 1


def test_without_words_no_other_words_are_asked_for(cli: Cli) -> None:
    cli.write({"mcpServers": {}})
    result = cli("search")
    assert (result.code, result.out) == (0, "")
    assert result.err.startswith("note: no servers are configured\nhint: add them to")
    assert "other words" not in result.err


def test_a_hundred_kilobytes_from_a_pipe(listed_cli: Any) -> None:
    result = listed_cli("search", input="weekday " * 12_500)
    assert (result.code, names(result)[0]) == (0, "demo_weekday")
