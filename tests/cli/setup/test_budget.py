"""``toolyard budget``: costs for clients and agents, unused tools, and proposals that can be applied."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.sqlite_template import copy_template

from toolyard.catalog.token_costs import SavingKind, ToolCost, propose_savings
from toolyard.config import load_settings
from toolyard.store import Database
from toolyard.types.audit import AuditEntry

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

AGENTS = "## Counter\n---\ntools: [demo_count]\n---\nCounts.\n"


@pytest.fixture
def cli_with_server(cli: Cli, demo: dict[str, Any]) -> Cli:
    cli.write({"mcpServers": {"demo": demo}}, cli.data / "mcp.json")
    return cli


def record_calls(folder: Path, *tools: str, days_ago: float = 1) -> None:
    """Write calls into the audit log, as a serving Toolyard does."""

    async def write() -> None:
        database = await Database.open_from_settings(load_settings(folder), folder)
        now = time.time()
        await database.audit.write(AuditEntry(at=now - 60 * 86_400, action="sign_in", actor="ann"))
        for tool in tools:
            entry = AuditEntry(at=now - days_ago * 86_400, action="tool.call", actor="ann", target=tool)
            await database.audit.write(entry)
        await database.close()

    copy_template(folder)
    asyncio.run(write())


def test_without_an_audit_log_usage_is_unknown(cli_with_server: Cli) -> None:
    result = cli_with_server("budget")
    assert result.code == 0
    assert result.lines[0].startswith("demo\t2\t?\t")
    assert result.lines[-1] == "within the budget of 20000 tokens"
    assert "which tools were used is not known" in result.err
    report = cli_with_server("budget", "--limit", "10", "--json").json
    assert [each["apply"] for each in report["proposals"]] == ["meta"]
    assert report["views"][0]["tokens"] == sum(tool["tokens"] for tool in report["tools"])
    refused_result = cli_with_server("budget", "--limit", "10", "--apply", "tools")
    assert (refused_result.code, "'tools' is not a current proposal" in refused_result.err) == (2, True)


def test_unused_tools_are_denied_with_one_word(cli_with_server: Cli) -> None:
    record_calls(cli_with_server.data, "demo/count", "demo/count", days_ago=2)
    record_calls(cli_with_server.data, "demo/weekday", days_ago=40)
    report = cli_with_server("budget", "--limit", "80", "--json").json
    calls = {tool["tool"]: tool["calls"] for tool in report["tools"]}
    assert calls["count"] == 2
    assert calls["weekday"] == 0
    result = cli_with_server("budget", "--limit", "80")
    assert "toolyard budget --apply tools: deny" in result.out
    assert cli_with_server("budget", "--limit", "80", "--weeks", "8", "--json").json != report
    assert cli_with_server("budget", "--limit", "80", "--apply", "tools").code == 0
    entry = json.loads((cli_with_server.data / "mcp.json").read_text())["mcpServers"]["demo"]
    assert "count" not in entry["denyTools"]
    assert cli_with_server("budget", "--limit", "80").lines[-1] == "within the budget of 80 tokens"


def test_used_tools_become_bundles_with_one_word(cli_with_server: Cli) -> None:
    record_calls(cli_with_server.data, "demo/count")
    assert cli_with_server("budget", "--limit", "80", "--apply", "bundles").code == 0
    bundles = json.loads((cli_with_server.data / "mcp.json").read_text())["bundles"]
    assert bundles == {"demo-used": {"serverId": "demo", "mode": "direct", "allowTools": ["count"]}}
    assert [
        tool["name"] for tool in cli_with_server("tools", "--bundle", "demo-used", "--json").json["tools"]
    ] == ["demo_count"]


def test_connected_clients_and_agents_have_their_own_costs(cli_with_server: Cli) -> None:
    (cli_with_server.data / "AGENTS.md").write_text(AGENTS)
    for client in ("cursor", "opencode"):
        assert cli_with_server("connect", client, "--write").code == 0
    assert cli_with_server("connect", "codex", "--write", "--server", "demo").code == 0
    report = cli_with_server("budget", "--limit", "80", "--json").json
    views = {view["view"]: view for view in report["views"]}
    assert views["everything"]["clients"] == ["Cursor", "opencode"]
    assert views["server demo"]["clients"] == ["Codex"]
    assert 0 < views["agent counter"]["tokens"] < views["everything"]["tokens"]
    before = (cli_with_server.home / ".codex/config.toml").read_text()
    assert cli_with_server("budget", "--limit", "80", "--apply", "meta").code == 0
    cursor = json.loads((cli_with_server.home / ".cursor/mcp.json").read_text())["mcpServers"]["toolyard"]
    assert cursor["args"][-3:] == ["stdio", "--mode", "meta"]
    opencode = json.loads((cli_with_server.home / ".config/opencode/opencode.json").read_text())["mcp"][
        "toolyard"
    ]
    assert opencode["command"][-3:] == ["stdio", "--mode", "meta"]
    # A client with a restricted set of tools is left unchanged.
    assert (cli_with_server.home / ".codex/config.toml").read_text() == before
    views = {view["view"]: view for view in cli_with_server("budget", "--json").json["views"]}
    assert views["mode meta"]["clients"] == ["Cursor", "opencode"]
    assert cli_with_server("disconnect", "--all", "--yes").code == 0
    assert not (cli_with_server.home / ".cursor/mcp.json").exists()


def test_the_largest_unused_tools_go_first_and_no_more_than_needed() -> None:
    costs = [ToolCost("a", "big", 500, 0), ToolCost("a", "small", 10, 0), ToolCost("b", "used", 100, 3)]
    tools, bundles, meta = propose_savings(costs, 90, 150)
    assert (tools.kind, tools.tokens, tools.tools) == (SavingKind.TOOLS, 110, {"a": ["big"]})
    assert (bundles.kind, bundles.tokens, bundles.tools) == (SavingKind.BUNDLES, 100, {"b": ["used"]})
    assert (meta.kind, meta.tokens) == (SavingKind.META, 90)
    assert [each.kind for each in propose_savings(costs, 90, 95)] == ["meta", "tools", "bundles"]
    assert propose_savings(costs, 90, 610) == []
