"""Invalid configurations: an error with its position, exit code 2 (1 from check), nothing started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

Entry = dict[str, Any]


def strict(entry: Entry, **more: Any) -> Entry:
    return {"trust": "trusted", "transport": {"type": "stdio", **entry}, **more}


def build_malformed_config(unusual_server: Entry) -> str:
    return json.dumps({"mcpServers": {"odd": unusual_server}}, indent=1)[:-2]


def wrong_type(unusual_server: Entry) -> Entry:
    return {"servers": {"odd": strict(unusual_server), "bad": strict({"command": 7})}}


def empty_allow(unusual_server: Entry) -> Entry:
    return {"servers": {"odd": strict(unusual_server), "bad": strict(unusual_server, allowTools=[])}}


def bundle_without_server(unusual_server: Entry) -> Entry:
    return {
        "servers": {"odd": strict(unusual_server)},
        "bundles": {"b": {"serverId": "od", "mode": "direct"}},
    }


def unknown_key(unusual_server: Entry) -> Entry:
    return {"servers": {"odd": strict(unusual_server, alowTools=["x"])}}


def duplicate_key(unusual_server: Entry) -> str:
    entry = json.dumps(unusual_server)
    return f'{{"mcpServers": {{\n"odd": {entry}}},\n"mcpServers": {{"odd": {entry}\n}}}}'


def allows_everything(unusual_server: Entry) -> Entry:
    return {"servers": {"odd": strict(unusual_server) | {"trust": "untrusted", "allowTools": ["*"]}}}


BAD = [
    (build_malformed_config, ":12:", "expected a comma"),
    (wrong_type, "servers.bad.transport.command", "expected"),
    (empty_allow, "servers.bad.allowTools", "an empty list"),
    (bundle_without_server, "bundles.b.serverId", "unknown server 'od'"),
    (unknown_key, "servers.odd.alowTools", "allowTools"),
    (duplicate_key, ":3: mcpServers", "duplicated"),
    (allows_everything, "servers.odd.allowTools", "*"),
]


@pytest.mark.parametrize(("make", "place", "words"), BAD, ids=lambda value: getattr(value, "__name__", ""))
def test_an_error_names_its_place_and_nothing_starts(
    cli: Cli, unusual_server: Entry, starts_file: Path, make: Any, place: str, words: str
) -> None:
    path = cli.write(make(unusual_server))
    for command in (("servers",), ("call", "odd_typed")):
        result = cli(*command)
        assert (result.code, result.out) == (2, ""), command
        assert f"error: {path}:" in result.err
        assert place in result.err
        assert words in result.err
    checked_result = cli("check")
    assert checked_result.code == 1
    assert f"error: {path}:" in checked_result.out
    assert not starts_file.exists()


def test_all_problems_are_told_at_once(cli: Cli) -> None:
    cli.write({"mcpServers": {"a": {}, "b": {"command": 1}, "c": {"url": "nonsense"}}})
    result = cli("check")
    assert [line for line in result.lines if line.startswith("error: ")] == [
        line for line in result.lines if any(f"mcpServers.{name}" in line for name in "abc")
    ]
    assert len([line for line in result.lines if line.startswith("error: ")]) == 3
    assert result.lines[-1].startswith("3 problems")


def test_a_file_of_ten_megabytes_is_not_read(cli: Cli) -> None:
    path = cli.write('{"mcpServers": {}}' + " " * 10_000_000)
    result = cli("tools")
    assert result.code == 2
    assert f"error: {path}: the file has 10,000,018 bytes; the limit is" in result.err


def test_a_link_that_leads_in_a_circle_is_named(cli: Cli) -> None:
    path = cli.home / "loop.json"
    path.symlink_to(path)
    for words in (("tools", "--config", path), ("check", "--config", path)):
        result = cli(*words)
        assert result.code == (1 if words[0] == "check" else 2)
        assert f"error: {path}: the symbolic links form a loop" in result.out + result.err


def test_a_named_file_that_is_missing_is_an_error_and_a_default_place_is_not(cli: Cli) -> None:
    for words in (("--config", "absent.json", "tools"), ("tools", "--config", "absent.json")):
        result = cli(*words)
        assert (result.code, "absent.json: the file does not exist" in result.err) == (2, True)
    result = cli("tools", TOOLYARD_CONFIG_PATH="absent.json")
    assert (result.code, "the path comes from TOOLYARD_CONFIG_PATH" in result.err) == (2, True)
    result = cli("tools")
    assert (result.code, result.out) == (0, "")
    assert result.err.startswith("note: no servers are configured\nhint: ")


def test_an_invalid_list_of_tools_is_reported_with_its_line(cli_with_server: Cli, starts_file: Path) -> None:
    path = cli_with_server.agents("## Reader\n---\ntools: odd_typed\n---\nRead.\n")
    result = cli_with_server("tools", "--agent", "reader")
    assert (result.code, result.err.splitlines()[0]) == (
        2,
        f"error: {path}:3: Reader.tools: tools: is not a list",
    )
    assert f"error: {path}:3: Reader.tools: tools: is not a list" in cli_with_server("check").out
    assert not starts_file.exists()


def test_settings_that_are_wrong_are_named(cli_with_server: Cli) -> None:
    toml = cli_with_server.data / "toolyard.toml"
    toml.write_text('port = "many"\nwrite_tool = "ask"\n')
    result = cli_with_server("tools")
    assert result.code == 2
    assert f"error: {toml}:1: port: expected a whole number" in result.err
    assert f"error: {toml}:2: write_tool: unknown setting\nhint: did you mean 'write_tools'?" in result.err
    assert cli_with_server("check").code == 1


def test_check_tells_of_all_files_at_once(cli: Cli) -> None:
    cli.write({"mcpServers": {"a": {}}})
    (cli.data / "toolyard.toml").write_text("port = -1\n")
    cli.agents("## Reader\n---\ntools: all\n---\nRead.\n")
    problems = cli("check", "--json").json["problems"]
    assert {Path(problem["file"]).name for problem in problems} == {"mcp.json", "toolyard.toml", "AGENTS.md"}
