"""``toolyard add``, ``remove``, ``enable``, ``disable`` and ``edit``: real files, real servers."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.setup.test_login import PROGRAM, configure, read_redirect
from tests.conftest import ListeningProgram, ProgramStarter

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

COMMENTED_CONFIG = """{
  // servers of Ann
  "mcpServers": {
    "files": { "command": "npx", /* from npm */ "args": ["-y", "files"] }, // keep
    "docs": {
      // the good one
      "url": "https://docs.example/mcp",
    },
  },
  "bundles": {}, // none yet
}
"""


@pytest.fixture(scope="module")
def program() -> Iterator[ListeningProgram]:
    programs = ProgramStarter()
    yield programs(sys.executable, "-I", PROGRAM, "{port}")
    programs.stop()


def entries(cli: Cli, name: str = "mcp.json") -> Any:
    return json.loads((cli.data / name).read_text())["mcpServers"]


def test_a_command_is_added_started_and_listed(cli: Cli, demo: dict[str, Any]) -> None:
    result = cli("add", "demo", "--env", "MODE=fast", "--", demo["command"], *demo["args"])
    assert (result.code, result.err) == (0, "")
    assert result.lines == [f"wrote {cli.data / 'mcp.json'}: added 'demo'", "'demo' works: 3 tools"]
    assert entries(cli) == {"demo": {**demo, "env": {"MODE": "fast"}}}
    assert stat.S_IMODE((cli.data / "mcp.json").stat().st_mode) == 0o600
    again = cli("add", "demo", "--", "other")
    assert (again.code, "already has 'demo'" in again.err) == (2, True)
    assert cli("add", "demo", "--replace", "--no-check", "--", "other").code == 0
    assert entries(cli) == {"demo": {"command": "other"}}


def test_the_rest_of_the_file_stays_as_it_is(cli: Cli) -> None:
    file = cli.write(COMMENTED_CONFIG)
    assert cli("add", "new", "https://new.example/mcp", "--no-check").code == 0
    added_text = '    "new": {\n      "url": "https://new.example/mcp"\n    },\n  },\n  "bundles"'
    assert file.read_text() == COMMENTED_CONFIG.replace('  },\n  "bundles"', added_text)
    (backup,) = cli.data.glob("mcp.json.bak-*")
    assert backup.read_text() == COMMENTED_CONFIG
    assert cli("remove", "new").code == 0
    assert file.read_text() == COMMENTED_CONFIG
    assert cli("disable", "files", "docs").code == 0
    assert cli("disable", "files").out == f"nothing to do: {file} is up to date\n"
    states = cli("check", "--json").json["configuration"]["servers"]
    assert [state["enabled"] for state in states.values()] == [False, False]
    assert file.read_text() == COMMENTED_CONFIG.replace('"files"] }', '"files"], "enabled": false }').replace(
        '/mcp",\n', '/mcp",\n      "enabled": false,\n'
    )
    assert cli("enable", "files").code == 0
    assert '"files"], "enabled": true }, // keep' in file.read_text()
    assert cli("edit", "docs", "label=Docs", "timeouts.call=60", "enabled=").code == 0
    assert '      "label": "Docs",\n      "timeouts": {\n        "call": 60\n      },\n' in file.read_text()
    assert "// the good one" in file.read_text()
    assert cli("remove", "docs").code == 0
    assert "// servers of Ann" in file.read_text()
    assert "the good one" not in file.read_text()


def test_an_edit_that_would_break_the_file_is_refused(cli: Cli) -> None:
    file = cli.write(COMMENTED_CONFIG)
    result = cli("edit", "docs", "timeouts.call=soon")
    assert (result.code, "expected a number of seconds above 0" in result.err) == (2, True)
    assert file.read_text() == COMMENTED_CONFIG
    unknown = cli("disable", "dosc")
    assert (unknown.code, "did you mean 'docs'?" in unknown.err) == (2, True)
    # An entry that is already invalid does not prevent its own removal.
    cli.write('{"mcpServers": {"bad": {"command": 5}, "good": {"command": "x"}}}')
    assert cli("remove", "bad").code == 0
    assert entries(cli) == {"good": {"command": "x"}}
    file.chmod(0o444)
    if os.geteuid() != 0:
        assert "read-only" in cli("remove", "good").err


def test_secrets_are_written_as_variables(cli: Cli, hostile_http: ListeningProgram) -> None:
    result = cli(
        *("add", "api", f"{hostile_http.url}/?fault=none", "--header", "Authorization: Bearer s3cret-1234"),
        *("--header", "X-Plain: yes", "--header", "X-API-Key: from-the-shell"),
        SHELL_KEY="from-the-shell",
    )
    assert result.code == 0
    assert entries(cli)["api"]["headers"] == {
        "Authorization": "Bearer ${API_TOKEN}",
        "X-Plain": "yes",
        "X-API-Key": "${SHELL_KEY}",
    }
    assert "s3cret" not in result.out + result.err
    assert "hint: set API_TOKEN wherever Toolyard runs" in result.err
    assert "read from the variable SHELL_KEY" in result.err
    # The server was contacted with the value that is not in the file.
    assert "'api' works" in result.out
    assert cli("add", "raw", "https://x.example", "--header", "X-Key: v", "--literal", "--no-check").code == 0
    assert entries(cli)["raw"]["headers"] == {"X-Key": "v"}


def test_secrets_in_addresses_and_arguments_are_written_as_variables(cli: Cli) -> None:
    one = {"url": "https://x.example/mcp?apiKey=s3cret-1234&page=1"}
    two = {"command": "npx", "args": ["remote", "--header", "Authorization: Bearer s3cret-5678"]}
    text = json.dumps({"mcpServers": {"one": one, "two": two}})
    result = cli("add", "--no-check", "-", input=text)
    assert result.code == 0
    assert entries(cli)["one"]["url"] == "https://x.example/mcp?apiKey=${ONE_API_KEY}&page=1"
    assert entries(cli)["two"]["args"] == ["remote", "--header", "Authorization: Bearer ${TWO_TOKEN}"]
    assert "hint: set ONE_API_KEY wherever Toolyard runs" in result.err
    assert "s3cret" not in result.out + result.err
    assert cli("add", "--no-check", "--replace", "--literal", "-", input=text).code == 0
    assert entries(cli) == {"one": one, "two": two}


def test_a_file_with_literal_secrets_is_readable_by_its_owner_only(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "shared.json"
    file.write_text('{"mcpServers": {}}')
    file.chmod(0o644)
    add_options = ("--header", "Authorization: Bearer s3cret-1234", "--no-check", "--to", str(file))
    assert cli("add", "one", "https://x.example", *add_options).code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert cli("add", "two", "https://x.example", "--literal", *add_options).code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    backups = list(tmp_path.glob("shared.json.bak-*"))
    assert {stat.S_IMODE(each.stat().st_mode) for each in backups} == {0o600}


@pytest.mark.parametrize(
    ("words", "text", "expected"),
    [
        (("p",), '{"command": "a", "args": ["b"]}', {"p": {"command": "a", "args": ["b"]}}),
        ((), '"q": {"url": "https://q.example/mcp"},', {"q": {"url": "https://q.example/mcp"}}),
        ((), '{"mcpServers": {"@a/b": {"command": "c"}}}', {"a-b": {"command": "c"}}),
        (
            (),
            '{"servers": {"v": {"type": "stdio", "command": "c"}}}',
            {"v": {"type": "stdio", "command": "c"}},
        ),
        (
            (),
            '{"mcp": {"o": {"type": "local", "command": ["c", "d"], "environment": {"A": "{env:B}"}}}}',
            {"o": {"type": "stdio", "command": "c", "args": ["d"], "env": {"A": "${B}"}}},
        ),
        ((), '[mcp_servers.t]\ncommand = "c"', {"t": {"command": "c"}}),
        (
            ("k",),
            '{"command": "c", "env": {"A_TOKEN": "0123456789", "PORT": "80"}}',
            {"k": {"command": "c", "env": {"A_TOKEN": "${A_TOKEN}", "PORT": "80"}}},
        ),
    ],
)
def test_a_pasted_entry_is_added(cli: Cli, words: tuple[str, ...], text: str, expected: Any) -> None:
    stdin = cli("add", *words, *(("-",) if words else ()), "--no-check", input=text)
    assert stdin.code == 0, stdin.err
    assert entries(cli) == expected
    if not text.startswith("["):
        (cli.data / "mcp.json").unlink()
        assert cli("add", *words, text, "--no-check").code == 0
        assert entries(cli) == expected


def test_a_paste_that_cannot_be_used_says_why(cli: Cli) -> None:
    for text, words in (
        ('{"command": "a"}', "the entry has no name"),
        ('{"mcpServers": ', "the pasted text"),
        ('{"a": 5}', "expected servers by name"),
        ("", "nothing was given to add"),
    ):
        result = cli("add", input=text)
        assert (result.code, words in result.err) == (2, True), result.err
    assert not cli.data.exists()


def test_a_server_that_fails_is_kept_and_says_why(cli: Cli) -> None:
    result = cli("add", "gone", "--json", "--", "no-such-program")
    assert result.code == 0
    assert result.json["servers"]["gone"]["state"] == "failed"
    assert "command not found" in result.json["servers"]["gone"]["cause"]
    assert entries(cli) == {"gone": {"command": "no-such-program"}}


def test_the_file_of_a_project_is_changed_on_request_only(cli: Cli, unusual_server: dict[str, Any]) -> None:
    file = cli.write({"mcpServers": {"odd": unusual_server}}, ".mcp.json")
    own = cli("add", "mine", "--no-check", "--", "x")
    assert f"note: in this folder {file} is used instead" in own.err
    assert set(entries(cli)) == {"mine"}
    hint = cli("disable", "odd")
    assert (hint.code, f"the server is in {file}: add --project" in hint.err) == (2, True)
    result = cli("add", "other", "--project", "--no-check", "--", "x")
    assert "needs your approval" in result.err
    assert cli("approve", "--yes").code == 0
    approved_result = cli("disable", "other", "--project")
    assert (approved_result.code, approved_result.err) == (0, "")
    assert cli("check", "--json").json["configuration"]["waiting"] is None
    fresh = cli.home / "fresh"
    fresh.mkdir()
    (cli.home / ".mcp.json").unlink()
    assert cli("add", "mine", "--project", "--no-check", "--", "x", cwd=fresh).code == 0
    assert (fresh / "toolyard.mcp.json").is_file()
    assert cli("check", "--json", cwd=fresh).json["configuration"]["waiting"] is None


def test_a_server_that_requires_it_is_signed_in_to_at_once(cli: Cli, program: Any, terminal: Any) -> None:
    configure(program, "{}")
    terminal_session = terminal("add", "guarded", f"{program.url}/mcp", COLUMNS="2000")
    terminal_session.wait_for("paste its final address here")
    url = next(line for line in terminal_session.plain.splitlines() if line.startswith("http"))
    terminal_session.type(f"{read_redirect(url)}\n")
    assert terminal_session.end() == 0
    assert "signed in to 'guarded': 2 tools" in terminal_session.plain
    # Without a terminal the next step is named.
    result = cli("add", "other", f"{program.url}/mcp?again")
    assert (result.code, "hint: run `toolyard login other`" in result.err) == (0, True), result.err


def test_the_file_is_edited_in_an_editor_and_replaced_only_if_valid(
    cli: Cli, terminal: Any, tmp_path: Path
) -> None:
    before = COMMENTED_CONFIG.replace("\n", "\r\n")
    file = cli.write(before)
    file.write_bytes(before.encode())
    program = tmp_path / "editor.py"
    program.write_text(
        "import sys, pathlib\nfile = pathlib.Path(sys.argv[1])\ntext = file.read_text()\n"
        "again = 'broken' in text\n"
        "file.write_text(text.replace('broken: 1', '\"label\": \"D\"') if again else "
        "text.replace('\"url\"', 'broken: 1, \"url\"'))\n"
    )
    terminal_session = terminal("edit", EDITOR=shlex.join((sys.executable, str(program))))
    terminal_session.wait_for("Edit again?")
    assert file.read_bytes().decode() == before
    terminal_session.type("y\n")
    assert terminal_session.end() == 0, terminal_session.plain
    assert file.read_bytes().decode() == before.replace('"url"', '"label": "D", "url"')
    assert cli("edit").code == 2
