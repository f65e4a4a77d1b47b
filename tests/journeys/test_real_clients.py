"""Clients that others wrote, through the gateway as people run it: ``toolyard serve`` with accounts and a
token, and ``toolyard stdio``. Behind it are servers of the legacy era and one that speaks both."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import LEGACY, NODE, ROOT, ProgramStarter

from toolyard.accounts import AccountService
from toolyard.config.settings.table import Settings
from toolyard.store import Database
from toolyard.types.account import Right, Role, TokenScope

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PROGRAM = (sys.executable, "-P", "-m", "toolyard")
HERE = ROOT / "tests/real_clients"
MODERN, OLD = "2026-07-28", "2025-11-25"
NOTE = "toolyard://sdk/test://note"
"""Two servers have it, so it stands behind its server's name."""
MODULES = NODE.parent
FASTMCP = ROOT / ".envs/bench-fastmcp/bin/python"
NODE_22 = ROOT / ".envs/conformance/node_modules/node/bin/node"
INSPECTOR = MODULES / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
CLIENT_COMMANDS = {
    "tools/list": (),
    "tools/call": ("--tool-name", "every_get-sum", "--tool-arg", "a=2", "b=40"),
    "resources/read": ("--uri", NOTE),
    "prompts/get": ("--prompt-name", "sdk_ask", "--prompt-args", "topic=bees"),
}

ORIGIN = (ROOT / "tests/servers/sdk_server.py", "streamable-http", "--port", "{port}")


@dataclass(frozen=True)
class ClientProgram:
    """A program that looks at everything and prints what it saw, and the version it should agree on."""

    words: tuple[str, ...]
    version: str


def python(program: Path | str, script: str, era: str) -> ClientProgram:
    words = (str(program), "-W", "ignore", str(HERE / script), era)
    return ClientProgram(words, OLD if era == "legacy" else MODERN)


def typescript(major: str, era: str) -> ClientProgram:
    return ClientProgram(
        ("node", str(HERE / "typescript_sdk.cjs"), major, era), OLD if era == "legacy" else MODERN
    )


CLIENTS = {
    "python sdk 2, modern": python(sys.executable, "python_sdk.py", "auto"),
    "python sdk 2, legacy": python(sys.executable, "python_sdk.py", "legacy"),
    "python sdk 1": python(LEGACY / "python", "python_sdk.py", "legacy"),
    "typescript sdk 2, modern": typescript("2", "auto"),
    "typescript sdk 2, legacy": typescript("2", "legacy"),
    "typescript sdk 1": typescript("1", "legacy"),
    "fastmcp, modern": python(FASTMCP, "fastmcp_client.py", "auto"),
    "fastmcp, legacy": python(FASTMCP, "fastmcp_client.py", "legacy"),
}


# The gateway.


@dataclass(frozen=True)
class GatewayAccess:
    """Where the servers are to be had, and for whom."""

    data: Path
    url: str
    token: str

    @property
    def ways(self) -> dict[str, tuple[str, ...]]:
        return {
            "http": (self.url, self.token),
            "stdio": (*PROGRAM, "stdio", "--data-dir", str(self.data)),
        }


async def token(folder: Path) -> str:
    """The text of a token that may call."""
    database = await Database.open(folder, url=None, secret_key=None)
    user = await database.accounts.add_user("ann", Role.USER)
    await database.accounts.set_password_hash(user.id, "none that fits")
    people = AccountService(database.accounts, Settings())
    _, text = await people.create_token(user, "test", TokenScope(frozenset({Right.CALL})), None)
    await database.close()
    return text


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayAccess]:
    folder, programs = tmp_path_factory.mktemp("served"), ProgramStarter()
    origins = {
        "every": programs(NODE / "mcp-server-everything", "streamableHttp", PORT="{port}"),
        "sdk": programs(sys.executable, *ORIGIN),
        "old": programs(LEGACY / "python", *ORIGIN),
    }
    servers = {name: {"url": f"{origin.url}/mcp", "shared": True} for name, origin in origins.items()}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    # The servers are not started by Toolyard, and listing three of them may take long on a busy machine.
    (folder / "toolyard.toml").write_text('write_tools = "allow"\nlist_deadline = 60\n')
    secret = asyncio.run(token(folder))
    words = (*PROGRAM, "serve", "--data-dir", folder, "--port", "{port}")
    server_program = programs(*words, HOME=str(folder), TOOLYARD_PEOPLE_MODE="password")
    yield GatewayAccess(folder, f"{server_program.url}/mcp", secret)
    programs.stop()


async def run(home: Path, *words: str) -> Any:
    """What a client printed."""
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "HOME": str(home), "NODE_PATH": str(MODULES)},
    )
    stdout, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, errors.decode()
    return json.loads(stdout)


@pytest.mark.parametrize("way", ["http", "stdio"])
@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_lists_calls_reads_and_answers(gateway: GatewayAccess, name: str, way: str) -> None:
    client = CLIENTS[name]
    result = await run(gateway.data, *client.words, way, *gateway.ways[way])
    assert result["version"] == client.version
    assert {"every_get-sum", "every_echo", "sdk_echo", "sdk_greet"} <= set(result["tools"])
    assert {NOTE, NOTE.replace("sdk", "old")} <= set(result["resources"])
    assert {"every_simple-prompt", "sdk_ask"} <= set(result["prompts"])
    assert result["sum"].endswith("42.")
    assert result["echo"] == "höhö"
    assert result["note"] == "a note"
    assert result["prompt"] == "Tell me about bees"
    assert result["greeted"] == ["hello Ann after round-one", "hello Ann"]
    assert result["pondered"] == ["because", "because"]


@pytest.mark.parametrize("way", ["http", "stdio"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspectors_command_line(gateway: GatewayAccess, era: str, way: str) -> None:
    command = (str(NODE_22), str(INSPECTOR), "--cli", "--quiet", "--format", "json", "--protocol-era", era)
    head, target = ("--header", f"Authorization: Bearer {gateway.token}"), (gateway.url,)
    if way == "stdio":
        head, target = (), gateway.ways[way]

    async def ask(method: str) -> Any:
        words = (*command, "--method", method, *CLIENT_COMMANDS[method], *head, "--", *target)
        return (await run(gateway.data, *words))["result"]

    assert {"every_get-sum", "sdk_echo"} <= {tool["name"] for tool in (await ask("tools/list"))["tools"]}
    assert (await ask("tools/call"))["content"][0]["text"].endswith("42.")
    assert (await ask("resources/read"))["contents"][0]["text"] == "a note"
    assert (await ask("prompts/get"))["messages"][0]["content"]["text"] == "Tell me about bees"
