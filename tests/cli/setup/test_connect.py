"""``toolyard connect --write``: add the entry to the real files of each client, and remove it."""

from __future__ import annotations

import json
import os
import stat
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.config.importers.formats import read_foreign_file

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

HOME_FILES = {
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "cline": ".cline/data/settings/cline_mcp_settings.json",
    "codex": ".codex/config.toml",
    "copilot": ".copilot/mcp-config.json",
    "cursor": ".cursor/mcp.json",
    "gemini": ".gemini/settings.json",
    "opencode": ".config/opencode/opencode.json",
    "qwen": ".qwen/settings.json",
    "vscode": ".config/Code/User/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "zed": ".config/zed/settings.json",
}
BEFORE = {
    "claude-code": """{
  "numStartups": 12,
  "projects": {"/home/ann/work": {"allowedTools": [], "mcpServers": {"own": {"command": "own-server"}}}},
  "mcpServers": {
    "files": {"type": "stdio", "command": "npx", "args": ["-y", "files"], "env": {}}
  },
  "oauthAccount": {"accountUuid": "1"}
}
""",
    "claude-desktop": '{"mcpServers":{"files":{"command":"npx","args":["-y","files"]}},"scale":0}',
    "codex": """model = "gpt-6" # the good one

[mcp_servers.files]
command = "npx"
args = ["-y", "files"]

# what work uses
[profiles.work]
model = "gpt-6-mini"
""",
    "cursor": '{\n\t"mcpServers": {\n\t\t"files": {\n\t\t\t"command": "npx"\n\t\t}\n\t}\n}\n',
    "opencode": """{
  "$schema": "https://opencode.ai/config.json",
  // which models
  "model": "anthropic/claude", /* the default */
  "mcp": {
    "files": { "type": "local", "command": ["npx", "-y", "files"], "enabled": true }, // from npm
  },
}
""",
    "cline": '{"mcpServers": {"files": {"type": "stdio", "command": "npx", "disabled": false}}}',
    "copilot": '{"mcpServers": {"files": {"type": "local", "command": "npx", "tools": ["*"]}}}\n',
    "gemini": """{
  "security": {"auth": {"selectedType": "gemini-api-key"}}, // how to sign in
  "mcpServers": {"files": {"command": "npx", "args": ["-y", "files"]}}
}
""",
    "qwen": '{\n  "model": {"name": "qwen3"},\n  "mcpServers": {\n    "files": {"command": "npx"}\n  }\n}\n',
    "windsurf": '{"mcpServers": {"files": {"command": "npx", "args": []}}}',
    "zed": """// Zed settings
{
  "theme": "One Dark",
  "context_servers": {
    "files": { "command": "npx", "args": ["-y", "files"], "env": {} },
  },
}
""",
    "vscode": """{
    // asked for when a server starts
    "inputs": [{ "type": "promptString", "id": "key", "description": "Key" }],
    "servers": {
        "files": { "type": "stdio", "command": "npx" }
    }
}
""",
}
CLIENTS = list(HOME_FILES)
REMOTE = [name for name in CLIENTS if name != "claude-desktop"]
SCRIPT = Path(sys.executable).with_name("toolyard")


@pytest.fixture
def connected_cli(cli: Cli) -> Any:
    """A home in which every client already has a file."""
    for client, name in HOME_FILES.items():
        path = cli.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(BEFORE[client])
    return cli


def import_servers(file: Path) -> Any:
    """Return the servers that our own importer reads from a file."""
    return {server.name: server.entry for server in read_foreign_file(file).servers}


@pytest.mark.parametrize("client", CLIENTS)
def test_an_entry_is_added_beside_existing_ones(connected_cli: Any, client: str) -> None:
    file = connected_cli.home / HOME_FILES[client]
    result = connected_cli("connect", client, "--write", "--agent", "planner", "--config", "c.json")
    assert (result.code, result.err) == (0, "")
    assert result.lines[0] == f"wrote {file}"
    (backup,) = file.parent.glob(f"{file.name}.bak-*")
    assert backup.read_text() == BEFORE[client]
    servers = import_servers(file)
    assert {"files", "toolyard"} <= set(servers)
    entry = servers["toolyard"]
    words = [entry["command"], *entry["args"]]
    assert words[-3:] == ["stdio", "--agent", "planner"]
    assert ["--data-dir", str(connected_cli.data), "--config", str(connected_cli.home / "c.json")] == words[
        -7:-3
    ]
    assert Path(words[0]).is_absolute()


@pytest.mark.parametrize("client", CLIENTS)
def test_it_goes_out_again_and_leaves_the_file_as_it_was(connected_cli: Any, client: str) -> None:
    file = connected_cli.home / HOME_FILES[client]
    assert connected_cli("connect", client, "--write").code == 0
    assert connected_cli("connect", client, "--remove").code == 0
    assert file.read_text().split() == BEFORE[client].split()
    again = connected_cli("connect", client, "--remove")
    assert (again.code, again.out) == (0, f"nothing to do: {file} has no entry for Toolyard\n")


@pytest.mark.parametrize("client", REMOTE)
def test_an_address_with_a_token_is_for_the_owner_alone(connected_cli: Any, client: str) -> None:
    file, token = connected_cli.home / HOME_FILES[client], connected_cli.home / "token"
    token.write_text("ty_secret\n")
    file.chmod(0o644)
    words = ("connect", client, "--write", "--url", "https://yard.example/", "--token-file", token)
    result = connected_cli(*words)
    assert (result.code, result.err) == (0, "")
    assert "ty_secret" not in result.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    entry = import_servers(file)["toolyard"]
    assert entry["url"] == "https://yard.example/mcp"
    assert entry["headers"] == {"Authorization": "Bearer ty_secret"}
    file_bytes = file.read_bytes()
    again = connected_cli(*words)
    assert (again.code, again.out) == (0, f"nothing to do: {file} is up to date\n")
    assert file.read_bytes() == file_bytes
    assert len(list(file.parent.glob(f"{file.name}.bak-*"))) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_without_a_file_gets_one(cli: Cli, client: str) -> None:
    result = cli("connect", client, "--write", "--json")
    assert (result.code, result.json["change"], result.json["backup"]) == (0, "added", None)
    assert result.json["file"] == str(cli.home / HOME_FILES[client])
    assert import_servers(Path(result.json["file"]))["toolyard"]["args"][-1] == "stdio"


def test_the_file_of_the_project_and_any_other(cli: Cli) -> None:
    cli("connect", "claude-code", "--write", "--project")
    assert "toolyard" in json.loads((cli.home / ".mcp.json").read_text())["mcpServers"]
    cli("connect", "codex", "--write", "--to", "other.toml")
    assert "toolyard" in tomllib.loads((cli.home / "other.toml").read_text())["mcp_servers"]
    (cli.home / "opencode.jsonc").write_text('{"mcp": {"servers": {}}} // second version\n')
    cli("connect", "opencode", "--write", "--project")
    text = (cli.home / "opencode.jsonc").read_text()
    assert text.endswith("// second version\n")
    assert import_servers(cli.home / "opencode.jsonc")["toolyard"]["args"][-1] == "stdio"


def test_a_project_with_a_file_that_we_read_ourselves_gets_an_explicit_path(cli: Cli) -> None:
    for _ in range(2):
        cli("connect", "claude-code", "--write", "--project")
        entry = json.loads((cli.home / ".mcp.json").read_text())["mcpServers"]["toolyard"]
        assert entry["args"][-3:] == ["--config", str(cli.data / "mcp.json"), "stdio"]
    (cli.home / "toolyard.mcp.json").write_text("{}")
    cli("connect", "claude-code", "--write", "--project")
    entry = json.loads((cli.home / ".mcp.json").read_text())["mcpServers"]["toolyard"]
    assert "--config" not in entry["args"]


def test_the_snippet_for_a_project_names_the_file_to_read(cli: Cli) -> None:
    document = cli("connect", "claude-code", "--json").json
    entry = json.loads(document["text"])["mcpServers"]["toolyard"]
    assert (document["file"], entry["args"][-3:]) == (
        ".mcp.json",
        ["--config", str(cli.data / "mcp.json"), "stdio"],
    )


def test_a_file_to_read_that_is_not_there_yet_is_told(cli: Cli) -> None:
    (file := cli.data / "mcp.json").unlink(missing_ok=True)
    assert f"{file} does not exist yet" in cli("connect", "claude-code").err
    for words in (("--url", "http://127.0.0.1:8420"), ("--remove", "--project")):
        assert "does not exist yet" not in cli("connect", "claude-code", *words).err
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")
    assert cli("connect", "claude-code").err == ""


def test_a_token_that_is_none_is_told(cli: Cli) -> None:
    for words in (
        ("connect", "cursor", "--write", "--url", "http://x", "--token"),
        ("--remote", "http://x", "tools"),
    ):
        result = cli(*words, TOOLYARD_REMOTE_TOKEN="ty_x\nX-Admin: 1")
        assert (result.code, result.err.splitlines()[0]) == (
            2,
            "error: TOOLYARD_REMOTE_TOKEN: not a valid token",
        )


def test_a_token_in_a_project_is_warned_of(cli: Cli) -> None:
    words = ("connect", "vscode", "--write", "--project", "--url", "http://127.0.0.1:1", "--token")
    result = cli(*words, TOOLYARD_REMOTE_TOKEN="ty_x")
    assert (result.code, result.err.splitlines()[-1]) == (0, "hint: do not share or commit this file")


def test_a_comment_that_would_be_lost_stops_it_and_the_snippet_is_shown(cli: Cli) -> None:
    file = cli.home / ".cursor/mcp.json"
    file.parent.mkdir()
    text = '{"mcpServers": {"toolyard": {"command": "x" /* by hand */}}}'
    file.write_text(text)
    token = cli.home / "token"
    token.write_text("ty_secret")
    for more in ((), ("--url", "http://127.0.0.1:1", "--token-file", token)):
        result = cli("connect", "cursor", "--write", *more)
        assert result.code == 2
        assert result.out.startswith("Add this to .cursor/mcp.json:")
        assert "ty_secret" not in result.out
        assert "the text to be replaced contains comments" in result.err
        assert "hint: edit the file by hand" in result.err
        assert (file.read_text(), len(list(file.parent.iterdir()))) == (text, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--write", "--remove"), "--write and --remove cannot be combined"),
        (("--project",), "--project and --to only apply to writing"),
        (("--write", "--project", "--to", "x"), "--project and --to cannot be combined"),
        (("--token",), "--token requires --url"),
        (("--url", "yard.example"), "--url yard.example: not a valid web address"),
        (("--write", "--url", "http://x", "--token"), "no token was given"),
        (("--write", "--url", "http://x", "--token-file", "absent"), "--token-file absent"),
    ],
)
def test_words_that_make_no_sense_write_nothing(cli: Cli, words: tuple[str, ...], message: str) -> None:
    result = cli("connect", "cursor", *words)
    assert result.code == 2
    assert message in result.err
    assert list(cli.home.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "message"),
    [("pipe", "the file is empty"), ("device", "not a valid token"), ("directory", "Is a directory")],
)
def test_a_token_file_that_is_not_a_file_does_not_block(cli: Cli, kind: str, message: str) -> None:
    os.mkfifo(cli.home / "pipe")
    token = {"pipe": cli.home / "pipe", "device": "/dev/zero", "directory": cli.home}[kind]
    result = cli("connect", "cursor", "--write", "--url", "http://127.0.0.1:1", "--token-file", token)
    assert (result.code, f"--token-file {token}: {message}" in result.err) == (2, True), result.err


def test_a_token_can_come_through_a_pipe(cli: Cli) -> None:
    words = ("connect", "cursor", "--write", "--url", "http://127.0.0.1:1", "--token-file", "/dev/stdin")
    assert cli(*words, input="ty_piped\n").code == 0
    assert "ty_piped" in (cli.home / ".cursor/mcp.json").read_text()


def test_unreadable_and_unwritable_files_are_named(cli: Cli) -> None:
    file = cli.home / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_text("{")
    broken = cli("connect", "cursor", "--write")
    assert (broken.code, file.read_text()) == (2, "{")
    assert f"{file}:1: not valid JSON" in broken.err
    result = cli("connect", "vscode", "--write", "--to", "/proc/nothing/mcp.json")
    assert result.code == 2
    assert "cannot be written" in result.err
    desktop = cli("connect", "claude-desktop", "--write", "--url", "http://x")
    assert desktop.code == 2
    assert cli("connect", "claude-desktop", "--write", "--project").code == 2
