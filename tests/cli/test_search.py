"""``toolyard search``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


@pytest.fixture
def listed(cli: Cli, demo: dict[str, Any]) -> Any:
    cli.write({"mcpServers": {"demo": demo}})
    cli("tools")
    return cli


def names(ran: Any) -> list[str]:
    return [line.split("\t")[0] for line in ran.lines]


def test_the_best_come_first_with_a_line_each(listed: Any) -> None:
    ran = listed("search", "which", "day", "of", "the", "week")
    assert (ran.code, names(ran)[0], ran.err) == (0, "demo_weekday", "")


def test_nothing_is_started(cli_with_server: Cli, starts_file: Path) -> None:
    ran = cli_with_server("search", "anything")
    assert (ran.code, ran.out) == (0, "")
    hint = "`toolyard servers` lists the tools, or shows why it cannot"
    assert ran.err == f"note: not listed yet: odd\nhint: {hint}\n"
    assert not starts_file.exists()
    cli_with_server("tools")
    before = starts_file.read_text()
    assert names(cli_with_server("search", "typed arguments"))
    assert starts_file.read_text() == before


def test_only_what_the_agent_can_reach_is_found(listed: Any) -> None:
    listed.agents("## Counter\n---\ntools: [demo_count]\n---\nCount.\n")
    assert names(listed("search", "day", "week", "count", "--agent", "counter")) == ["demo_count"]


def test_a_limit_and_json(listed: Any) -> None:
    assert len(listed("search", "count", "week", "--limit", "1").lines) == 1
    found = listed("search", "weekday", "--json").json
    assert found["tools"][0]["id"] == "demo/weekday"
    assert found["never_listed"] == []


@pytest.mark.parametrize("words", ["?!…", "天气预报", "zzzz qqqq", "-"])
def test_words_that_nothing_matches_are_said(listed: Any, words: str) -> None:
    ran = listed("search", "--", words)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "note: nothing matches\nhint: try other words\n"


def test_without_words_all_tools_are_listed_by_server(cli: Cli, demo: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"zoo": demo, "ark": demo}})
    cli("tools")
    found = [tuple(line.split("\t")[:2]) for line in cli("search").lines]
    assert found == [
        *(("ark", "ark_count"), ("ark", "ark_weekday")),
        *(("zoo", "zoo_count"), ("zoo", "zoo_weekday")),
    ]
    assert len(cli("search", "--limit", "1").lines) == 1


def test_without_words_no_other_words_are_asked_for(cli: Cli) -> None:
    cli.write({"mcpServers": {}})
    ran = cli("search")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("note: no servers are configured\nhint: add them to")
    assert "other words" not in ran.err


def test_a_hundred_kilobytes_from_a_pipe(listed: Any) -> None:
    ran = listed("search", input="weekday " * 12_500)
    assert (ran.code, names(ran)[0]) == (0, "demo_weekday")
