"""Failures and refusals name the cause and a next step that helps."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import toolyard

if TYPE_CHECKING:
    from tests.cli.conftest import Cli
    from tests.conftest import ProgramStarter

HTTP_SERVER = Path(__file__).parent / "streamable_http_server.py"
NOT_MCP = "is it an MCP server? It must write MCP messages to its stdout, and nothing else"


def hints(cli: Cli) -> dict[str, str]:
    return {each["server"]: each["hint"] for each in cli("servers", "--json").json}


def test_hints_for_programs_fit_the_cause(cli: Cli) -> None:
    missing = cli.home / "missing"
    missing.write_text("#!/no/such/program\n")
    text = cli.home / "text"
    text.write_text("hello")
    for each in (missing, text):
        each.chmod(0o755)
    noise = "for _ in range(10_000_000): print('hello')"
    trickle = "print('hello', flush=True); input(); input()"
    servers: dict[str, Any] = {
        "missing": {"command": str(missing)},
        "text": {"command": str(text)},
        "noise": {"command": sys.executable, "args": ["-I", "-S", "-c", noise]},
        "trickle": {
            "command": sys.executable,
            "args": ["-I", "-S", "-c", trickle],
            "timeouts": {"connect": 0.5},
        },
    }
    cli.write({"mcpServers": servers})
    found_hints = hints(cli)
    assert found_hints["noise"] == found_hints["trickle"] == NOT_MCP
    assert found_hints["missing"].startswith("correct the line that begins with #!")
    assert found_hints["text"].startswith("set 'command' to the program that runs it")


def test_hints_for_addresses_fit_the_cause(cli: Cli, start_program: ProgramStarter) -> None:
    url = start_program(sys.executable, "-I", HTTP_SERVER, "{port}").url
    servers: dict[str, Any] = {
        "fails": {"url": f"{url}/500"},
        "nothing": {"url": f"{url}/404"},
        "sse": {"type": "sse", "url": f"{url}/mcp"},
        "silent": {"type": "sse", "url": f"{url}/silent", "timeouts": {"connect": 0.5}},
        "program": {"url": f"{url}/mcp", "authProviderId": "x"},
    }
    cli.write({"mcpServers": servers})
    found_hints = hints(cli)
    stderr = cli("tools").err
    assert re.search(rf"error: server 'sse': answered with HTTP 405.*\nhint: {found_hints['sse']}\n", stderr)
    assert found_hints["fails"] == "the error is on the server's side: read its log, or try again later"
    assert found_hints["nothing"] == "is this the address of an MCP server? Many end in /mcp"
    assert (
        found_hints["sse"] == found_hints["silent"] == 'if it is a Streamable HTTP server, set "type": "http"'
    )
    assert found_hints["program"].endswith("elsewhere set 'headers' or 'oauth' in place of 'authProviderId'")


@pytest.mark.parametrize("trust", ["untrusted", "trusted"])
def test_a_server_without_a_feature_is_named_in_the_error(cli: Cli, demo: dict[str, Any], trust: str) -> None:
    allow = ["weekday", "no_such"] if trust == "untrusted" else ["no_such"]
    cli.write({"mcpServers": {"demo": {**demo, "trust": trust, "allowTools": allow}}})
    hint = "hint: `toolyard tools --server demo --all` shows the reasons"
    if trust == "untrusted":
        hint = "hint: tools of an untrusted server count as write tools: set write_tools to 'ask' or 'allow'"
        before = cli("check").out
        assert "server 'demo': will offer nothing: it is untrusted, and write_tools is 'reject'" in before
        assert hint in before
    for result in (cli("tools"), cli("servers")):
        assert "note: server 'demo' offers nothing: " in result.err
        assert hint in result.err
    output = cli("check").out
    assert "server 'demo': offers nothing: " in output
    assert hint in output
    if trust == "untrusted":
        assert "offers nothing" not in cli("tools", TOOLYARD_WRITE_TOOLS="ask").err


def test_invalid_entries_have_a_hint_in_every_listing(cli: Cli, demo: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"demo": demo, "number": {"command": 5}}})
    hint = "correct the entry; the other servers are not affected"
    assert hints(cli)["number"] == hint
    assert f"hint: {hint}\n" in cli("tools").err
    assert f"hint: {hint}\n" in cli("check").out


def test_the_server_of_a_bundle_with_other_faults_is_checked(cli: Cli) -> None:
    cli.write({"servers": {}, "bundles": {"b": {"serverId": "absent", "mode": "no mode"}}})
    out = cli("check").out
    assert "bundles.b.serverId: unknown server 'absent'" in out
    assert "bundles.b.mode: " in out


def test_a_tool_without_a_schema_is_called_and_requests_name_the_program(
    cli: Cli, start_program: ProgramStarter
) -> None:
    server = start_program(sys.executable, "-I", HTTP_SERVER, "{port}")
    cli.write({"mcpServers": {"small": {"url": f"{server.url}/mcp"}}})
    assert [line.split("\t")[0] for line in cli("tools").lines] == ["small_bare", "small_echo"]
    assert cli("call", "small_bare").out == "done\n"
    assert "tool 'bare' of server 'small': it has no inputSchema, which counts as {}" in cli("check").out
    with urllib.request.urlopen(f"{server.url}/user-agents", timeout=30) as answer:
        assert set(json.loads(answer.read())) == {f"toolyard/{toolyard.__version__}"}
