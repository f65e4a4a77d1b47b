"""``toolyard why``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


def test_the_chain_has_an_arrow_at_the_rule_that_decides(cli_with_server: Cli) -> None:
    result = cli_with_server("why", "odd_write")
    assert result.code == 0
    assert result.lines[0] == "odd_write (odd/write): refuse"
    (arrow,) = [line for line in result.lines if line.startswith("->")]
    reason = "this tool can change data (readOnlyHint is false), and write_tools is 'reject'"
    assert arrow == f"-> write tools  refuse  {reason}"


def test_canonical_ids_are_names_too(cli_with_server: Cli) -> None:
    first, second = cli_with_server("why", "odd/typed"), cli_with_server("why", "odd_typed")
    assert first.lines[0] == second.lines[0] == "odd_typed (odd/typed): allow"
    assert len(first.lines) == len(second.lines) == 10


def test_for_an_agent_and_a_bundle(cli: Cli, unusual_server: dict[str, Any]) -> None:
    server = {"trust": "trusted", "transport": {"type": "stdio", **unusual_server}}
    bundle = {"serverId": "odd", "mode": "direct", "allowTools": ["image"]}
    cli.write({"servers": {"odd": server}, "bundles": {"pictures": bundle}})
    cli.agents("## Reader\n---\ntools: [odd_image]\n---\nRead.\n")
    by_agent = cli("why", "odd_typed", "--agent", "Reader", "--json").json
    assert by_agent["verdict"] == "hide"
    assert {link["rule"]: link["outcome"] for link in by_agent["chain"]}["agent"] == "hide"
    assert "-> bundles" in cli("why", "odd_typed", "--bundle", "pictures").out


def test_a_server_that_was_never_listed_is_listed_and_no_other(
    cli: Cli, unusual_server: dict[str, Any], demo: dict[str, Any], starts_file: Path
) -> None:
    cli.write({"mcpServers": {"odd": unusual_server, "demo": demo}})
    assert cli("why", "demo/weekday").code == 0
    assert cli("why", "demo_count").code == 0
    assert not starts_file.exists()


def test_no_such_tool_is_4_and_a_server_that_is_down_is_3(cli: Cli, demo: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"demo": demo, "gone": {"command": "no-such-command-anywhere"}}})
    result = cli("why", "demo_weekdya")
    assert (result.code, result.err) == (
        4,
        "error: no tool named 'demo_weekdya' is available\nhint: did you mean 'demo_weekday'?\n",
    )
    assert cli("why", "gone/tool").code == 3
    assert cli("why", "gone_tool").code == 3


def test_a_disabled_server_is_the_reason(cli: Cli, demo: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"demo": {**demo, "disabled": True}}})
    result = cli("why", "demo/weekday")
    assert (result.code, result.err.splitlines()[1]) == (
        4,
        "hint: server 'demo' is disabled: turned off in its entry",
    )
