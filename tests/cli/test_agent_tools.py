"""Unknown tools of agents, and agents without tools, are reported where agents are used."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, CliWithChat

AGENTS = """\
## Counter
---
tools: [demo_count, demo_cuont]
---
Count.

## Empty
---
tools: [demo_cuont]
---
Do nothing.
"""
UNKNOWN = "unknown tool 'demo_cuont'\nhint: did you mean 'demo_count'?\n"


@pytest.fixture
def agents_cli(cli: Cli, demo: dict[str, Any]) -> Cli:
    cli.write({"mcpServers": {"demo": demo}})
    cli.agents(AGENTS)
    return cli


def test_tools_of_an_agent_report_unknown_names(agents_cli: Cli) -> None:
    result = agents_cli("tools", "--agent", "counter")
    assert [line.split("\t")[0] for line in result.lines] == ["demo_count"]
    assert f"AGENTS.md:1: Counter.tools: {UNKNOWN}" in result.err
    assert "has no tools" not in result.err


def test_an_agent_without_tools_says_why(agents_cli: Cli) -> None:
    result = agents_cli("tools", "--agent", "empty")
    assert result.lines == []
    assert f"AGENTS.md:7: Empty.tools: {UNKNOWN}" in result.err
    assert "Empty: has no tools: its patterns match no tool" in result.err
    assert "hint: `toolyard tools --agent empty --all` shows the reasons" in result.err


def test_a_failed_server_does_not_hide_that_an_agent_has_no_tools(cli: Cli, demo: dict[str, Any]) -> None:
    dead = {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}
    cli.write({"mcpServers": {"demo": demo, "dead": dead}})
    cli.agents(AGENTS + "\n## Hopeful\n---\ntools: [demo_cuont, 'd*']\n---\nWait.\n")
    result = cli("tools", "--agent", "empty")
    assert "Empty: has no tools: its patterns match no tool" in result.err
    assert "has no tools" not in cli("tools", "--agent", "hopeful").err
    output = cli("check").out
    assert "AGENTS.md:7: Empty: has no tools: its patterns match no tool" in output
    assert "Hopeful: has no tools" not in output


def test_tools_of_an_agent_wait_for_no_server_that_its_patterns_cannot_match(
    cli: Cli, demo: dict[str, Any]
) -> None:
    sleeping = {"command": "sleep", "args": ["60"], "timeouts": {"connect": 3}}
    cli.write({"mcpServers": {"demo": demo, "asleep": sleeping, "other": sleeping}})
    tools = {"Exact": "demo_count, nowhere", "Star": "'*_count', 'demo_*'", "One": "demo_count, 'as*p_*'"}
    cli.agents("\n".join(f"## {name}\n---\ntools: [{each}]\n---\nCount.\n" for name, each in tools.items()))
    result = cli("tools", "--agent", "exact", "--json")
    assert [tool["name"] for tool in result.json["tools"]] == ["demo_count"]
    assert result.json["failures"] == {}
    assert list(cli("tools", "--agent", "one", "--json").json["failures"]) == ["asleep"]
    assert set(cli("tools", "--agent", "star", "--json").json["failures"]) == {"asleep", "other"}


def test_names_are_checked_while_the_file_has_another_fault(agents_cli: Cli) -> None:
    agents_cli("tools")
    agents_cli.agents(AGENTS + "\n## Third\n---\nmode: unknown\n---\nNo.\n\n## Fourth\ntools: [demo_count]\n")
    result = agents_cli("check")
    assert result.code == 1
    assert "Third.mode: " in result.out
    assert f"Counter.tools: {UNKNOWN}" in result.out
    assert "AGENTS.md:7: Empty: has no tools: its patterns match no tool" in result.out
    assert "'## Fourth' looks like an agent, but has no front matter, so it is read as text" in result.out


def test_check_reports_an_agent_if_all_its_tools_are_hidden(agents_cli: Cli) -> None:
    agents_cli("tools")
    agents_cli.agents("## Forgetful\n---\ntools: [demo_forget]\n---\nForget.\n")
    result = agents_cli("check")
    assert result.code == 0
    assert "AGENTS.md:1: Forgetful: has no tools: all matching tools are hidden (write tools)" in result.out
    reason = "AGENTS.md:1: Forgetful: has no tools: all matching tools are hidden (write tools)"
    assert reason in agents_cli("tools", "--agent", "forgetful").err
    assert "Forgetful" not in agents_cli("check", TOOLYARD_WRITE_TOOLS="allow").out


def test_a_chat_reports_unknown_names(cli_with_chat: CliWithChat) -> None:
    cli_with_chat.agents("## Writer\n---\ntools: [chat_look, chat_lok]\n---\nWrite.\n")
    cli_with_chat("tools")
    result = cli_with_chat("chat", "--agent", "writer", "-p", "say done")
    assert result.code == 0
    assert "Writer.tools: unknown tool 'chat_lok'\nhint: did you mean 'chat_look'?\n" in result.err
