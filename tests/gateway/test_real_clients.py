"""Clients that others wrote, through the gateway: over HTTP and over standard streams."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import LEGACY
from tests.gateway.conftest import HERE, odd
from tests.web.conftest import environment, write_config

CLIENTS = {
    "sdk 2, modern": (sys.executable, "auto", "2026-07-28"),
    "sdk 2, legacy": (sys.executable, "legacy", "2025-11-25"),
    "sdk 1": (str(LEGACY / "python"), None, "2025-11-25"),
}


async def run(program: str, mode: str | None, *words: str) -> Any:
    env = {**os.environ, **({} if mode is None else {"SDK_MODE": mode})}
    process = await asyncio.create_subprocess_exec(
        program, "-W", "ignore", str(HERE / "sdk_client.py"), *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=env,
    )  # fmt: skip
    printed, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    return json.loads(printed)


def check(seen: Any, version: str) -> None:
    assert seen["version"] == version
    assert {"one_odd", "one_ask"} <= set(seen["tools"])
    assert seen["odd"] == "odd"
    assert seen["asked"] == {"action": "accept", "content": {"name": "Ann"}}
    assert seen["prompts"] == ["one_hello"]
    assert seen["resources"] == ["odd://same", "odd://one"]


@pytest.mark.parametrize("client", CLIENTS)
async def test_over_http(open_site: Any, client: str) -> None:
    site = await open_site({"one": odd("one")})
    program, mode, version = CLIENTS[client]
    check(await run(program, mode, "http", f"{site.url}/mcp"), version)


@pytest.mark.parametrize("client", CLIENTS)
async def test_over_standard_streams(tmp_path: Path, client: str) -> None:
    write_config(tmp_path, {"one": odd("one")})
    program, mode, version = CLIENTS[client]
    gateway = (sys.executable, "-m", "toolyard", "stdio", "--data-dir", str(tmp_path))
    check(await run(program, mode, "stdio", *gateway), version)


# Standard streams, letter by letter.


class Lines:
    """``toolyard stdio``, spoken to by hand."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def ask(self, line: bytes) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + b"\n")
        return json.loads(await asyncio.wait_for(self.process.stdout.readline(), 30))


@pytest.fixture
async def lines(tmp_path: Path) -> Any:
    started: list[Lines] = []

    async def start(servers: dict[str, Any], *words: str) -> Lines:
        write_config(tmp_path, servers)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "toolyard", "stdio", *words,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment(tmp_path),
        )  # fmt: skip
        started.append(Lines(process))
        return started[-1]

    yield start
    for each in started:
        if each.process.returncode is None:
            each.process.kill()
        await each.process.wait()


def message(id: int, method: str, params: Any = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}).encode()


async def test_it_ends_with_its_input_and_its_children_with_it(lines: Any, until: Any) -> None:
    import psutil

    gateway = await lines({"one": odd("one")})
    answer = await gateway.ask(message(1, "tools/call", {"name": "one_told"}))
    assert answer["result"]["content"][0]["text"] == "{}"
    children = psutil.Process(gateway.process.pid).children(recursive=True)
    assert children
    gateway.process.stdin.close()
    assert await asyncio.wait_for(gateway.process.wait(), 15) == 0
    await until(lambda: not any(child.is_running() for child in children))
    assert await gateway.process.stdout.read() == b""


async def test_what_is_no_message_is_answered_and_the_rest_goes_on(lines: Any) -> None:
    gateway = await lines({"one": odd("one")})
    assert (await gateway.ask(b"{"))["error"]["code"] == -32700
    assert (await gateway.ask(b"7"))["error"]["code"] == -32600
    assert (await gateway.ask(message(1, "no/such")))["error"]["code"] == -32601
    assert (await gateway.ask(message(2, "ping"))) == {"jsonrpc": "2.0", "id": 2, "result": {}}


async def test_one_server_under_its_own_names(lines: Any) -> None:
    gateway = await lines({"one": odd("one"), "two": odd("two")}, "--server", "two")
    listed = await gateway.ask(message(1, "tools/list"))
    assert "odd" in {tool["name"] for tool in listed["result"]["tools"]}
    answer = await gateway.ask(message(2, "prompts/get", {"name": "hello"}))
    assert answer["result"]["messages"][0]["content"]["text"] == "hello from two"


async def test_a_server_that_there_is_not_is_told_before_anything_starts(lines: Any) -> None:
    gateway = await lines({"one": odd("one")}, "--server", "three")
    assert await asyncio.wait_for(gateway.process.wait(), 15) == 3
    assert await gateway.process.stdout.read() == b""
