"""``toolyard import``, ``approve`` and ``settings``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

CURSOR = {"mcpServers": {"files": {"command": "npx", "args": ["-y", "files@1.0.0"]}}}
CODEX = '[mcp_servers.docs]\nurl = "https://docs.example/mcp"\n'


@pytest.fixture
def others(cli: Cli) -> Any:
    """A home in which two other clients have servers."""
    for name, text in ((".cursor/mcp.json", json.dumps(CURSOR)), (".codex/config.toml", CODEX)):
        path = cli.home / name
        path.parent.mkdir()
        path.write_text(text)
    (cli.home / "work").mkdir()
    return cli


def test_import_shows_findings_and_writes_nothing_by_default(others: Any) -> None:
    result = others("import", cwd=others.home / "work")
    assert result.code == 0
    assert [line.split("\t")[:4] for line in result.lines] == [
        ["files", "new", "Cursor", "npx -y files@1.0.0"],
        ["docs", "new", "Codex", "https://docs.example/mcp"],
    ]
    assert result.err == "note: nothing was written\nhint: use --write to write the file\n"
    assert not others.data.exists()


def test_import_writes_one_merged_file_and_keeps_a_backup(others: Any) -> None:
    target = others.write({"mcpServers": {"mine": {"command": "x"}}})
    result = others("import", "--write", cwd=others.home / "work")
    assert result.code == 0
    assert set(json.loads(target.read_text())["mcpServers"]) == {"mine", "files", "docs"}
    (backup,) = others.data.glob("mcp.json.bak-*")
    assert json.loads(backup.read_text()) == {"mcpServers": {"mine": {"command": "x"}}}
    again = others("import", "--write", cwd=others.home / "work")
    assert [line.split("\t")[1] for line in again.lines] == ["there", "there"]
    assert f"note: nothing new for {target}\n" in again.err


def test_import_takes_clients_and_files_and_another_target(others: Any) -> None:
    result = others("import", "cursor", "--to", "out.json", "--write", "--json", cwd=others.home / "work")
    assert (result.code, result.json["written"], [one["id"] for one in result.json["added"]]) == (
        0,
        True,
        ["files"],
    )
    assert "files" in json.loads((others.home / "work/out.json").read_text())["mcpServers"]
    dry = others("import", others.home / ".codex/config.toml", "--dry-run")
    assert dry.lines[0].startswith("docs\tnew\tCodex")


def test_files_of_a_project_must_be_named(cli: Cli, unusual_server: dict[str, Any]) -> None:
    path = cli.write({"mcpServers": {"odd": unusual_server}}, ".mcp.json")
    result = cli("import", "--write")
    assert (result.code, result.out) == (0, "")
    assert f"hint: import it with `toolyard import {path}`" in result.err
    assert not (cli.data / "mcp.json").exists()


def test_a_source_that_cannot_be_read_is_an_error(cli: Cli) -> None:
    (cli.home / "broken.json").write_text('{"mcpServers": ')
    result = cli("import", "broken.json", "--write")
    assert (result.code, "broken.json:1:" in result.err) == (2, True)
    assert not (cli.data / "mcp.json").exists()


def test_approve_shows_the_file_and_remembers_it(
    cli: Cli, unusual_server: dict[str, Any], starts_file: Path
) -> None:
    path = cli.write({"mcpServers": {"odd": {**unusual_server, "env": {"KEY": "${HOME}"}}}}, ".mcp.json")
    result = cli("approve")
    assert result.code == 2
    assert "error: cannot ask for confirmation here, so nothing was approved\nhint: --yes" in result.err
    for words in (
        f"{path}  new",
        "odd  new  trusted",
        "unusual_tools_server.py",
        "sets            KEY=${HOME}",
        "reads from you  HOME",
    ):
        assert words in result.out
    assert not starts_file.exists()
    assert cli("tools").out == ""
    assert cli("approve", "--yes").lines[-1] == "approved"
    assert "odd_typed\t" in cli("tools").out
    assert cli("approve").lines[-1] == "approved already"


def test_approve_shows_values_and_warns_of_variables_that_change_the_program(
    cli: Cli, unusual_server: dict[str, Any]
) -> None:
    (cli.home / "hooks").mkdir()
    env = {
        "PYTHONPATH": "hooks\u200b:hooks",
        "LEVEL": "debug",
        "API_TOKEN": "abc-123",
        "MODE": "ghp_0123456789abc",
    }
    path = cli.write(
        {"mcpServers": {"odd": {**unusual_server, "env": env, "cwd": str(cli.home)}}}, ".mcp.json"
    )
    lines = cli("approve", path, "--yes").lines
    for line in (
        r"  sets            PYTHONPATH=hooks\u200b:hooks",
        "  sets            LEVEL=debug",
        "  sets            API_TOKEN=***",
        "  sets            MODE=***",
        "  warning: PYTHONPATH changes which code is run",
        f"  warning: it runs code from this project ({cli.home}, hooks), "
        "which can change without a new approval",
    ):
        assert line in lines
    assert not any("LEVEL changes" in line for line in lines)
    server = cli("approve", path, "--json").json["review"]["servers"][0]
    assert server["environment"][0] == {
        "name": "PYTHONPATH",
        "value": r"hooks\u200b:hooks",
        "changes_execution": True,
    }


def test_approve_shows_the_key_file_that_would_be_read(cli: Cli) -> None:
    oauth = {"grant": "client_credentials", "clientId": "toolyard", "privateKeyFile": "~/.ssh/id_rsa"}
    path = cli.write({"mcpServers": {"far": {"url": "https://far.example/mcp", "oauth": oauth}}}, ".mcp.json")
    result = cli("approve", path, "--yes")
    assert "  signs in with   ~/.ssh/id_rsa" in result.lines
    assert cli("approve", path, "--json").json["review"]["servers"][0]["key_file"] == "~/.ssh/id_rsa"


def test_a_changed_file_waits_again_and_the_approved_state_stays(
    cli: Cli, unusual_server: dict[str, Any]
) -> None:
    path = cli.write({"mcpServers": {"odd": unusual_server}}, ".mcp.json")
    cli("approve", "--yes")
    cli.write(
        {"mcpServers": {"odd": unusual_server, "evil": {"command": "rm", "args": ["-rf", "x"]}}}, ".mcp.json"
    )
    result = cli("tools")
    assert "odd_typed\t" in result.out
    assert f"note: {path}: changed since it was approved; the approved content stays in use\n" in result.err
    shown_result = cli("approve", path, "--json")
    assert shown_result.code == 2
    assert shown_result.json["approved"] is False
    assert {one["id"]: one["change"] for one in shown_result.json["review"]["servers"]} == {
        "odd": "same",
        "evil": "new",
    }


def test_settings_have_value_origin_and_description_and_hide_secrets(cli: Cli) -> None:
    cli.data.mkdir()
    (cli.data / "toolyard.toml").write_text('secret_key = "very-secret-indeed"\nport = 9000\n')
    result = cli("settings", TOOLYARD_WRITE_TOOLS="ask", TOOLYARD_WRITE_TOOL="x")
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in result.lines}
    assert rows["port"][:2] == ["9000", f"{cli.data / 'toolyard.toml'}:2"]
    assert rows["write_tools"][:2] == ["ask", "TOOLYARD_WRITE_TOOLS"]
    assert rows["secret_key"][0] == "(set, hidden)"
    assert rows["host"][1] == "default"
    assert "very-secret" not in result.out
    assert "note: TOOLYARD_WRITE_TOOL: this variable has no effect" in result.err
    by_name = {row["name"]: row for row in cli("settings", "--json").json}
    assert by_name["secret_key"]["value"] == "(set, hidden)"
    assert by_name["port"]["variable"] == "TOOLYARD_PORT"
