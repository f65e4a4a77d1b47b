"""``toolyard connect --all`` and ``disconnect``: change the files of every client, and restore them."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.setup.test_connect import BEFORE, CLIENTS, HOME_FILES, connected_cli

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

__all__ = ["connected_cli"]
CLIENTS_WITH_OWN_SERVERS = ("cline", "codex", "opencode", "windsurf", "zed")
"""Clients with a key that disables a server."""


def contents(cli: Any) -> dict[str, bytes]:
    return {client: (cli.home / name).read_bytes() for client, name in HOME_FILES.items()}


def own_entries(cli: Any, client: str) -> dict[str, Any]:
    """Return the servers of a client, in its own format."""
    file = cli.home / HOME_FILES[client]
    if file.suffix == ".toml":
        return tomllib.loads(file.read_text())["mcp_servers"]
    lines = [line.partition(" // ")[0] for line in file.read_text().splitlines() if not line.startswith("//")]
    root = json.loads(clean("\n".join(lines)))
    return root.get("mcpServers") or root.get("servers") or root.get("context_servers") or root.get("mcp")


def clean(text: str) -> str:
    import re

    text = re.sub(r"/\*.*?\*/|^\s*//.*$", "", text, flags=re.MULTILINE)
    return re.sub(r",(\s*[}\]])", r"\1", text)


def test_every_client_that_is_found_gets_the_entry_and_loses_it_again(connected_cli: Any) -> None:
    before = contents(connected_cli)
    result = connected_cli("connect", "--all")
    assert (result.code, "nothing was written" in result.err, contents(connected_cli)) == (0, True, before)
    assert "Gemini CLI\tgets Toolyard" in result.out
    command_result = connected_cli("connect", "--all", "--yes", "--json")
    assert (command_result.code, command_result.json["written"], command_result.json["problems"]) == (
        0,
        True,
        [],
    )
    assert {each["client"] for each in command_result.json["clients"]} == set(CLIENTS)
    for client in CLIENTS:
        assert set(own_entries(connected_cli, client)) == {"files", "toolyard"}, client
    again = connected_cli("connect", "--all", "--yes", "--json")
    assert {each["change"] for each in again.json["clients"]} == {"same"}
    # A second entry with other settings does not hide the first content.
    assert connected_cli("connect", "--all", "--yes", "--bundle", "web").code == 0
    assert connected_cli("disconnect", "--all", "--yes").code == 0
    assert contents(connected_cli) == before
    assert connected_cli("disconnect", "--all", "--yes").err == "note: no client has an entry for Toolyard\n"


def test_servers_of_clients_move_and_come_back(connected_cli: Any) -> None:
    before = contents(connected_cli)
    result = connected_cli("connect", "--all", "--replace", "--yes", "--json")
    assert (result.code, result.json["problems"]) == (0, [])
    mcp_servers = json.loads((connected_cli.data / "mcp.json").read_text())["mcpServers"]
    assert "toolyard" not in mcp_servers
    assert {"files", "own"} <= set(mcp_servers)
    for client in CLIENTS:
        entries = own_entries(connected_cli, client)
        if client in CLIENTS_WITH_OWN_SERVERS:
            assert entries["files"].get("enabled") is False or entries["files"]["disabled"] is True, client
        else:
            assert set(entries) == {"toolyard"}, client
    # Nothing is moved twice.
    again = connected_cli("connect", "--all", "--replace", "--yes", "--json")
    assert (again.json["imported"], again.json["written"]) == ([], False)
    assert connected_cli("disconnect", "--all", "--yes").code == 0
    assert contents(connected_cli) == before
    assert set(json.loads((connected_cli.data / "mcp.json").read_text())["mcpServers"]) == set(mcp_servers)


def test_later_edits_are_kept(connected_cli: Any) -> None:
    assert connected_cli("connect", "--all", "--replace", "--yes").code == 0
    cursor, codex = (connected_cli.home / HOME_FILES[name] for name in ("cursor", "codex"))
    cursor.write_text(cursor.read_text().replace("{", '{"later": 1,', 1))
    codex.write_text(f"{codex.read_text()}\n[later]\nkept = true # by hand\n")
    gemini = connected_cli.home / HOME_FILES["gemini"]
    document = json.loads(gemini.read_text().replace(" // how to sign in", ""))
    document["mcpServers"]["files"] = {"command": "mine"}
    gemini.write_text(json.dumps(document))
    assert connected_cli("disconnect", "--all", "--yes").code == 0
    after = json.loads(cursor.read_text())
    assert after == {"later": 1, "mcpServers": {"files": {"command": "npx"}}}
    later = ["[later]", "kept", "=", "true", "#", "by", "hand"]
    assert codex.read_text().split() == [*BEFORE["codex"].split(), *later]
    # A server that a person added again belongs to that person.
    assert json.loads(gemini.read_text())["mcpServers"] == {"files": {"command": "mine"}}


def test_a_file_that_did_not_exist_is_removed_again(cli: Cli) -> None:
    (cli.home / ".gemini").mkdir()
    assert cli("connect", "--all", "--yes").code == 0
    assert cli("disconnect", "gemini").code == 0
    assert not (cli.home / ".gemini/settings.json").exists()
    nobody = cli("connect", "codex", "--yes")
    assert (nobody.code, "--replace and --yes only apply to --all" in nobody.err) == (2, True)
    assert cli("connect").code == cli("disconnect").code == 2


def test_clients_are_found_in_the_folders_that_variables_name(cli: Cli) -> None:
    variables = {"CLAUDE_CONFIG_DIR": "claude", "XDG_CONFIG_HOME": "xdg", "CODEX_HOME": "codex"}
    env = {name: str(cli.home / folder) for name, folder in variables.items()}
    files = [
        cli.home / name for name in ("claude/.claude.json", "codex/config.toml", "xdg/zed/settings.json")
    ]
    for file in files:
        file.parent.mkdir(parents=True)
    assert cli("connect", "--all", "--yes", **env).code == 0
    assert all("toolyard" in file.read_text() for file in files)
    assert "Claude Code, Codex, Zed: " in cli("budget", **env).out
    assert cli("disconnect", "--all", "--yes", **env).code == 0
    assert not any(file.exists() for file in files)
    assert not (cli.home / ".claude.json").exists()


def test_a_file_that_cannot_be_changed_does_not_stop_the_others(connected_cli: Any) -> None:
    broken = connected_cli.home / HOME_FILES["cursor"]
    broken.write_text("{")
    os.chmod(connected_cli.home / HOME_FILES["zed"], 0o444)
    result = connected_cli("connect", "--all", "--yes")
    assert (result.code, f"{broken}:1: not valid JSON" in result.err, broken.read_text()) == (2, True, "{")
    assert "toolyard" in own_entries(connected_cli, "vscode")


def test_one_question_is_asked_at_a_terminal(connected_cli: Any, terminal: Any) -> None:
    before = contents(connected_cli)
    terminal_session = terminal("connect", "--all", "--replace")
    terminal_session.wait_for("A backup of each is kept.")
    terminal_session.type("n\n")
    assert terminal_session.end() == 0
    assert contents(connected_cli) == before


@pytest.mark.parametrize("client", CLIENTS)
def test_the_backup_that_is_gone_does_not_prevent_it(connected_cli: Any, client: str) -> None:
    file = connected_cli.home / HOME_FILES[client]
    assert connected_cli("connect", client, "--write").code == 0
    for backup in Path(file.parent).glob("*.bak-*"):
        backup.unlink()
    assert connected_cli("disconnect", client).code == 0
    assert file.read_text().split() == BEFORE[client].split()
