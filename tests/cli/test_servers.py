"""``toolyard servers``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli


def test_a_line_a_server_with_state_tools_tokens_and_protocol(
    cli: Cli, unusual_server: dict[str, Any], demo: dict[str, Any]
) -> None:
    cli.write(
        {"mcpServers": {"odd": unusual_server, "demo": demo, "off": {"command": "x", "disabled": True}}}
    )
    result = cli("servers")
    assert result.code == 0
    cells = [line.split("\t") for line in result.lines]
    assert [row[:2] for row in cells] == [["demo", "ready"], ["odd", "ready"], ["off", "disabled"]]
    assert cells[0][2] == "3"
    assert int(cells[0][3]) > 100
    assert cells[0][4:] == ["2026-07-28", "Toolyard demo 1.0.0"]
    assert cells[1][4:] == ["2025-06-18", "odd 1"]
    assert cells[2][2:] == ["-", "-", "-", "turned off in its entry"]


def test_a_failed_one_shows_its_cause_its_last_words_and_a_hint(cli: Cli) -> None:
    dies = {"command": "sh", "args": ["-c", "echo first >&2; echo last >&2; exit 3"]}
    cli.write({"mcpServers": {"dies": dies, "gone": {"command": "no-such-command-anywhere"}}})
    result = cli("servers")
    assert result.code == 0
    assert "dies\tfailed\t-\t-\t-\texited with code 3: last" in result.lines
    assert "dies: stderr: first\ndies: stderr: last\n" in result.err
    assert "hint: gone: install it, or give its full path in 'command'\n" in result.err
    assert cli("servers", "--fail").code == 3


def test_fail_is_content_when_all_enabled_ones_work(cli: Cli, demo: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"demo": demo, "off": {"command": "x", "disabled": True}}})
    assert cli("servers", "--fail").code == 0


def test_no_connect_shows_cached_tools_and_starts_nothing(cli_with_server: Cli, starts_file: Path) -> None:
    before = cli_with_server("servers", "--no-connect")
    assert before.lines == ["odd\tidle\t-\t-\t-\tnever listed"]
    assert not starts_file.exists()
    assert not (cli_with_server.data / "catalogue.db").exists()
    cli_with_server("servers")
    after = cli_with_server("servers", "--no-connect").lines[0].split("\t")
    assert after[:3] == ["odd", "idle", "11"]
    assert after[5].startswith("listed ")
    assert len(starts_file.read_text().splitlines()) == 1


def test_json_has_everything_of_each(cli: Cli, unusual_server: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"odd": unusual_server, "gone": {"command": "no-such-command-anywhere"}}})
    missing_server, found_server = cli("servers", "--json").json
    assert (missing_server["server"], missing_server["state"], missing_server["tools"]) == (
        "gone",
        "failed",
        None,
    )
    assert missing_server["hint"].startswith("install it")
    assert (
        found_server["state"],
        found_server["tools"],
        found_server["trust"],
        found_server["transport"],
    ) == (
        "ready",
        11,
        "trusted",
        "stdio",
    )
    assert found_server["server_info"] == {"name": "odd", "version": "1"}
    assert found_server["set_aside"][0].startswith("tool 'broken' of server 'odd' is quarantined")
    assert found_server["origin"].endswith("mcp.json:3")


def test_servers_that_others_wrote(cli: Cli, time_server: str, everything_server: str) -> None:
    cli.write({"mcpServers": {"time": {"command": time_server}, "all": {"command": everything_server}}})
    rows = [line.split("\t") for line in cli("servers").lines]
    assert [(row[0], row[1], row[4]) for row in rows] == [
        ("all", "ready", "2025-11-25"),
        ("time", "ready", "2025-11-25"),
    ]
    result = cli("call", "all_get-sum", "a=2", "b=3.5")
    assert result.out == "The sum of 2 and 3.5 is 5.5.\n"
    result = cli(
        "call", "time_convert_time", "source_timezone=UTC", "time=12:00", "target_timezone=Asia/Tokyo"
    )
    assert '"time_difference": "+9.0h"' in result.out
