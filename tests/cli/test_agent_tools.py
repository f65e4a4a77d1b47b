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
def listed(cli: Cli, demo: dict[str, Any]) -> Cli:
    cli.write({"mcpServers": {"demo": demo}})
    cli.agents(AGENTS)
    return cli


def test_tools_of_an_agent_report_unknown_names(listed: Cli) -> None:
    ran = listed("tools", "--agent", "counter")
    assert [line.split("\t")[0] for line in ran.lines] == ["demo_count"]
    assert f"AGENTS.md:1: Counter.tools: {UNKNOWN}" in ran.err
    assert "has no tools" not in ran.err


def test_an_agent_without_tools_says_why(listed: Cli) -> None:
    ran = listed("tools", "--agent", "empty")
    assert ran.lines == []
    assert f"AGENTS.md:7: Empty.tools: {UNKNOWN}" in ran.err
    assert "Empty: has no tools: its patterns match no tool" in ran.err
    assert "hint: `toolyard tools --agent empty --all` shows the reasons" in ran.err


def test_a_failed_server_does_not_hide_that_an_agent_has_no_tools(cli: Cli, demo: dict[str, Any]) -> None:
    dead = {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}
    cli.write({"mcpServers": {"demo": demo, "dead": dead}})
    cli.agents(AGENTS + "\n## Hopeful\n---\ntools: [demo_cuont, 'd*']\n---\nWait.\n")
    ran = cli("tools", "--agent", "empty")
    assert "Empty: has no tools: its patterns match no tool" in ran.err
    assert "has no tools" not in cli("tools", "--agent", "hopeful").err
    checked = cli("check").out
    assert "AGENTS.md:7: Empty: has no tools: its patterns match no tool" in checked
    assert "Hopeful: has no tools" not in checked


def test_tools_of_an_agent_wait_for_no_server_that_its_patterns_cannot_match(
    cli: Cli, demo: dict[str, Any]
) -> None:
    sleeping = {"command": "sleep", "args": ["60"], "timeouts": {"connect": 3}}
    cli.write({"mcpServers": {"demo": demo, "asleep": sleeping, "other": sleeping}})
    tools = {"Exact": "demo_count, nowhere", "Star": "'*_count', 'demo_*'", "One": "demo_count, 'as*p_*'"}
    cli.agents("\n".join(f"## {name}\n---\ntools: [{each}]\n---\nCount.\n" for name, each in tools.items()))
    ran = cli("tools", "--agent", "exact", "--json")
    assert [tool["name"] for tool in ran.json["tools"]] == ["demo_count"]
    assert ran.json["failures"] == {}
    assert list(cli("tools", "--agent", "one", "--json").json["failures"]) == ["asleep"]
    assert set(cli("tools", "--agent", "star", "--json").json["failures"]) == {"asleep", "other"}


def test_names_are_checked_while_the_file_has_another_fault(listed: Cli) -> None:
    listed("tools")
    listed.agents(AGENTS + "\n## Third\n---\nmode: unknown\n---\nNo.\n\n## Fourth\ntools: [demo_count]\n")
    ran = listed("check")
    assert ran.code == 1
    assert "Third.mode: " in ran.out
    assert f"Counter.tools: {UNKNOWN}" in ran.out
    assert "AGENTS.md:7: Empty: has no tools: its patterns match no tool" in ran.out
    assert "'## Fourth' looks like an agent, but has no front matter, so it is read as text" in ran.out


def test_check_reports_an_agent_whose_tools_are_all_hidden(listed: Cli) -> None:
    listed("tools")
    listed.agents("## Forgetful\n---\ntools: [demo_forget]\n---\nForget.\n")
    ran = listed("check")
    assert ran.code == 0
    assert "AGENTS.md:1: Forgetful: has no tools: all matching tools are hidden (write tools)" in ran.out
    reason = "AGENTS.md:1: Forgetful: has no tools: all matching tools are hidden (write tools)"
    assert reason in listed("tools", "--agent", "forgetful").err
    assert "Forgetful" not in listed("check", TOOLYARD_WRITE_TOOLS="allow").out


def test_a_chat_reports_unknown_names(cli_with_chat: CliWithChat) -> None:
    cli_with_chat.agents("## Writer\n---\ntools: [chat_look, chat_lok]\n---\nWrite.\n")
    cli_with_chat("tools")
    ran = cli_with_chat("chat", "--agent", "writer", "-p", "say done")
    assert ran.code == 0
    assert "Writer.tools: unknown tool 'chat_lok'\nhint: did you mean 'chat_look'?\n" in ran.err
