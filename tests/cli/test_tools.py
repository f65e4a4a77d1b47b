"""``toolyard tools``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


def names(result: Any) -> list[str]:
    return [line.split("\t")[0] for line in result.lines]


def test_names_and_first_lines_sorted_and_parted_by_tabs(cli_with_server: Cli) -> None:
    result = cli_with_server("tools")
    assert "odd_typed\tRepeats its arguments." in result.lines
    assert names(result) == sorted(names(result))
    assert "odd_write" not in names(result)


def test_the_stored_catalogue_serves_and_nothing_is_started_again(
    cli_with_server: Cli, starts_file: Path
) -> None:
    first, second = cli_with_server("tools"), cli_with_server("tools")
    assert first.out == second.out
    assert len(starts_file.read_text().splitlines()) == 1
    cli_with_server("tools", "--fresh")
    assert len(starts_file.read_text().splitlines()) == 2


def test_a_copy_past_its_time_shows_its_age(cli: Cli, unusual_server: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"odd": {**unusual_server, "cache": {"ttl": 0.001}}}})
    cli("tools")
    _grow_older(cli.data / "catalogue.db", 7200)
    result = cli("tools")
    assert "odd_typed" in names(result)
    assert "note: listed from the cache: odd 2 hours ago\nhint: use --fresh to list again\n" in result.err


def _grow_older(file: Path, seconds: float) -> None:
    import sqlite3

    with sqlite3.connect(file) as db:
        db.execute("UPDATE catalogue SET fetched_at = fetched_at - ?", (seconds,))
    db.close()


def test_one_server_only(
    cli: Cli, unusual_server: dict[str, Any], demo: dict[str, Any], starts_file: Path
) -> None:
    cli.write({"mcpServers": {"odd": unusual_server, "demo": demo}})
    assert names(cli("tools", "--server", "demo")) == ["demo_count", "demo_weekday"]
    assert not starts_file.exists()


def test_a_disabled_server_says_why_it_has_none(cli: Cli, demo: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"demo": {**demo, "disabled": True}}})
    result = cli("tools", "--server", "demo")
    assert (result.code, result.err) == (3, "error: server 'demo': is disabled: turned off in its entry\n")


def test_as_an_agent_sees_them(cli_with_server: Cli) -> None:
    cli_with_server.agents("## Reader\n---\ntools: [odd_*, '!odd_a*']\n---\nRead.\n")
    tool_names = names(cli_with_server("tools", "--agent", "reader"))
    assert "odd_typed" in tool_names
    assert not [name for name in tool_names if name.startswith("odd_a")]


def test_with_a_bundle_selected(cli: Cli, unusual_server: dict[str, Any], demo: dict[str, Any]) -> None:
    def server(entry: Any) -> Any:
        return {"trust": "trusted", "transport": {"type": "stdio", **entry}}

    bundle = {"serverId": "odd", "mode": "direct", "allowTools": ["t*", "image"], "denyTools": ["image"]}
    cli.write({"servers": {"odd": server(unusual_server), "demo": server(demo)}, "bundles": {"some": bundle}})
    assert names(cli("tools", "--bundle", "some")) == ["odd_typed"]


def test_definitions_as_a_provider_takes_them(cli: Cli, demo: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"demo": demo}})
    first = cli("tools", "--provider", "anthropic").json[0]
    assert first["name"] == "demo_count"
    assert first["input_schema"]["required"] == ["to"]
    assert cli("tools", "--provider", "openai").json[0]["type"] == "function"


def test_json_holds_schemas_and_failures(cli: Cli, demo: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"demo": demo, "gone": {"command": "no-such-command-anywhere"}}})
    result = cli("tools", "--json")
    assert (result.code, result.err) == (0, "")
    assert [tool["id"] for tool in result.json["tools"]] == ["demo/count", "demo/weekday"]
    assert result.json["tools"][0]["input_schema"]["type"] == "object"
    assert result.json["failures"] == {"gone": "command not found: no-such-command-anywhere"}


def test_a_file_that_waits_for_approval_is_told_once(
    cli: Cli, unusual_server: dict[str, Any], starts_file: Path
) -> None:
    path = cli.write({"mcpServers": {"odd": unusual_server, "more": unusual_server}}, ".mcp.json")
    result = cli("tools")
    assert (result.code, result.out) == (0, "")
    assert (
        result.err == f"note: {path}: needs your approval\nhint: review it with `toolyard approve {path}`\n"
    )
    assert not starts_file.exists()
