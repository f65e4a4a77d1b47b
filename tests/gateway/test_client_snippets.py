"""Snippets for clients: what they hold, and that our own importer reads them as the client would."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from toolyard.cli.app import run_command
from toolyard.gateway.client_snippets import CLIENT_FORMATS, ConnectionMethod, build_snippet, gateway_url

KEYS = {"opencode": "mcp", "vscode": "servers", "zed": "context_servers"}
URL_KEYS = {"gemini": "httpUrl", "qwen": "httpUrl", "windsurf": "serverUrl"}


def read(client: str, way: ConnectionMethod) -> Any:
    text = build_snippet(client, way).text
    if client == "codex":
        return tomllib.loads(text)["mcp_servers"]["toolyard"]
    return json.loads(text)[KEYS.get(client, "mcpServers")]["toolyard"]


@pytest.mark.parametrize("client", CLIENT_FORMATS)
def test_a_client_starts_the_program(client: str) -> None:
    entry = read(client, ConnectionMethod(("toolyard", "stdio", "--agent", "helper")))
    words = entry["command"] if client == "opencode" else [entry["command"], *entry["args"]]
    assert words == ["toolyard", "stdio", "--agent", "helper"]


@pytest.mark.parametrize("client", [name for name in CLIENT_FORMATS if name != "claude-desktop"])
def test_a_client_goes_to_the_address_with_a_token_that_is_to_be_filled_in(client: str) -> None:
    entry = read(client, ConnectionMethod(url="https://yard.example/mcp", needs_token=True))
    assert entry[URL_KEYS.get(client, "url")] == "https://yard.example/mcp"
    if client == "codex":
        assert entry["bearer_token_env_var"] == "TOOLYARD_TOKEN"
    else:
        assert entry["headers"] == {"Authorization": "Bearer ty_…"}
    assert "headers" not in read(client, ConnectionMethod(url="http://127.0.0.1:8300/mcp"))


def test_addresses_are_those_of_the_gateway() -> None:
    assert gateway_url("http://x/") == "http://x/mcp"
    assert gateway_url("http://x", agent="a b") == "http://x/mcp/agents/a%20b"
    assert gateway_url("http://x", server="s") == "http://x/mcp/servers/s"


def test_the_command_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["connect", "claude-code", "--url", "http://127.0.0.1:8300", "--bundle", "b"]) == 0
    output = capsys.readouterr().out
    assert "claude mcp add --transport http toolyard http://127.0.0.1:8300/mcp/bundles/b" in output
    assert run_command(["connect", "claude-desktop", "--url", "http://x"]) == 2
    assert run_command(["connect", "vscode", "--agent", "a", "--server", "b"]) == 2
    assert run_command(["connect", "none"]) == 2
