"""``toolyard doctor``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cli.conftest import Cli
    from tests.conftest import ListeningProgram


def test_each_step_of_a_start_has_its_time(
    cli: Cli, demo: dict[str, Any], unusual_server: dict[str, Any]
) -> None:
    cli.write({"mcpServers": {"demo": demo, "odd": unusual_server}})
    result = cli("doctor", "--json")
    assert result.code == 0
    modern, legacy = result.json["servers"]
    assert [step["name"] for step in modern["steps"]] == ["command", "spawn", "server/discover", "tools/list"]
    assert modern["steps"][2]["detail"] == "modern era, 2026-07-28, toolyard-demo 1.0.0"
    assert [step["name"] for step in legacy["steps"]] == [
        *("command", "spawn", "server/discover", "initialize", "tools/list")
    ]
    assert legacy["steps"][2]["refusal"] == "Method not found"
    assert legacy["steps"][4]["detail"].startswith("11 tools, about ")
    assert legacy["steps"][4]["detail"].endswith("; 1 in quarantine")
    assert all(step["seconds"] >= 0 for server in (modern, legacy) for step in server["steps"])


def test_every_failure_has_a_next_step(cli: Cli, hostile_http: ListeningProgram) -> None:
    cli.write(
        {
            "mcpServers": {
                "gone": {"command": "no-such-command-anywhere"},
                "dies": {"command": "sh", "args": ["-c", "echo no key >&2; exit 4"]},
                "slow": {"command": "sleep", "args": ["30"], "timeouts": {"connect": 0.3}},
                "closed": {"url": f"{hostile_http.url}/status-401/x?when=always"},
                "nobody": {"url": "http://127.0.0.1:9/mcp"},
                "off": {"command": "x", "disabled": True},
            }
        }
    )
    result = cli("doctor")
    assert result.code == 3
    assert "ok  data directory" in result.out
    for words in (
        "no  command                 -  command not found: no-such-command-anywhere\nhint: install it",
        "exited with code 4: no key",
        "      stderr: no key\nhint: run its command in a terminal",
        "did not answer within 0.3 s\nhint: raise 'timeouts.connect'",
        "127.0.0.1:9 cannot be reached",
        "off  stdio x  off\n  --  turned off in its entry",
        "5 of 5 servers failed: gone, dies, slow, closed, nobody",
    ):
        assert words in result.out, result.out
    server = next(one for one in cli("doctor", "closed", "--json").json["servers"])
    assert (server["ok"], bool(server["hint"])) == (False, True)


def test_a_command_that_is_a_path_is_tried_from_the_folder_of_its_server(
    cli: Cli, demo: dict[str, Any], tmp_path: Path
) -> None:
    program = tmp_path / "program.sh"
    program.write_text(f"#!/bin/sh\nexec {shlex.join((demo['command'], *demo['args']))}\n")
    program.chmod(0o755)
    plain = tmp_path / "plain.txt"
    plain.write_text("words\n")
    cli.write(
        {
            "mcpServers": {
                "near": {"command": "./program.sh", "cwd": str(tmp_path)},
                "plain": {"command": str(plain)},
            }
        }
    )
    near, other = cli("doctor", "--json").json["servers"]
    assert (near["ok"], near["steps"][0]["name"]) == (True, "spawn")
    assert other["cause"] == f"no permission to run {plain}"
    assert other["hint"].startswith("set 'command' to the program that runs it")
    program.chmod(0o644)
    assert cli("doctor", "near", "--json").json["servers"][0]["hint"] == "chmod +x ./program.sh"


def test_only_the_named_ones_are_started(
    cli: Cli, demo: dict[str, Any], unusual_server: dict[str, Any], starts_file: Path
) -> None:
    cli.write({"mcpServers": {"demo": demo, "odd": unusual_server}})
    result = cli("doctor", "demo")
    assert (result.code, result.lines[-1]) == (0, "1 server works")
    assert not starts_file.exists()


def test_a_configuration_that_cannot_be_read_is_told_after_the_machine(cli: Cli) -> None:
    cli.write("{")
    result = cli("doctor")
    assert (result.code, "--  python" in result.out, "mcp.json:1" in result.err) == (2, True, True)


def test_a_data_directory_that_is_a_file_is_told(cli: Cli) -> None:
    cli.data.write_text("")
    result = cli("doctor")
    assert "no  data directory" in result.out


QUOTING_SERVER = """
import json, os, sys
for line in sys.stdin:
    error = {"code": -32000, "message": "the key " + os.environ["API_KEY"] + " has expired"}
    print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "error": error}), flush=True)
"""


def test_a_secret_that_a_server_quotes_in_a_step_is_not_shown(cli: Cli) -> None:
    server = {"command": sys.executable, "args": ["-c", QUOTING_SERVER], "env": {"API_KEY": "canary-5c1d77"}}
    cli.write({"mcpServers": {"quoting": server}})
    result = cli("doctor", "--json")
    (found_server,) = result.json["servers"]
    refusals = [step["refusal"] for step in found_server["steps"] if step["refusal"] is not None]
    assert refusals == ["the key *** has expired"] * 2
    assert "canary" not in result.out + cli("doctor").out
