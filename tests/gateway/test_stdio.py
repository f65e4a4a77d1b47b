"""``toolyard stdio``, letter by letter. What others wrote is in ``tests/journeys/test_real_clients.py``."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.gateway.conftest import passthrough_entry
from tests.processes import is_running
from tests.web.conftest import environment, write_config

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Lines:
    """The program, spoken to by hand."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def ask(self, line: bytes) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + b"\n")
        return json.loads(await asyncio.wait_for(self.process.stdout.readline(), 90))


@pytest.fixture
async def lines(tmp_path: Path) -> Any:
    line_readers: list[Lines] = []

    async def start(servers: dict[str, Any], *words: str) -> Lines:
        write_config(tmp_path, servers)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "toolyard", "stdio", *words,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment(tmp_path),
        )  # fmt: skip
        line_readers.append(Lines(process))
        return line_readers[-1]

    yield start
    for each in line_readers:
        if each.process.returncode is None:
            each.process.kill()
        await each.process.wait()


def message(id: int, method: str, params: Any = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}).encode()


async def test_it_ends_with_its_input_and_its_children_with_it(
    lines: Any, wait_until: Callable[..., Awaitable[None]]
) -> None:
    import psutil

    gateway = await lines({"one": passthrough_entry("one")})
    answer = await gateway.ask(message(1, "tools/call", {"name": "one_told"}))
    assert answer["result"]["content"][0]["text"] == "{}"
    children = psutil.Process(gateway.process.pid).children(recursive=True)
    assert children
    gateway.process.stdin.close()
    assert await asyncio.wait_for(gateway.process.wait(), 30) == 0
    await wait_until(lambda: not any(is_running(child.pid) for child in children))
    assert await gateway.process.stdout.read() == b""


async def test_requests_before_the_end_of_the_input_are_answered(lines: Any) -> None:
    gateway = await lines({"one": passthrough_entry("one")})
    requests = [
        message(1, "tools/call", {"name": "one_told"}),
        message(2, "tools/call", {"name": "one_large", "arguments": {}}),
        message(3, "ping"),
    ]
    output, _ = await asyncio.wait_for(gateway.process.communicate(b"\n".join(requests) + b"\n"), 60)
    answers = {answer["id"]: answer for answer in map(json.loads, output.splitlines())}
    assert answers.keys() == {1, 2, 3}
    assert answers[1]["result"]["content"][0]["text"] == "{}"


async def test_an_invalid_message_is_answered_and_the_rest_goes_on(lines: Any) -> None:
    gateway = await lines({"one": passthrough_entry("one")})
    assert (await gateway.ask(b"{"))["error"]["code"] == -32700
    assert (await gateway.ask(b"7"))["error"]["code"] == -32600
    assert (await gateway.ask(message(1, "no/such")))["error"]["code"] == -32601
    assert (await gateway.ask(message(2, "ping"))) == {"jsonrpc": "2.0", "id": 2, "result": {}}


async def test_a_request_that_is_cancelled_before_it_begins_leaves_its_id_free(lines: Any) -> None:
    gateway = await lines({"one": passthrough_entry("one")})
    cancellation = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    batch = b"[%s,%s]\n" % (message(1, "tools/list"), json.dumps(cancellation).encode())
    gateway.process.stdin.write(batch)
    assert (await gateway.ask(message(2, "ping"))) == {"jsonrpc": "2.0", "id": 2, "result": {}}
    assert (await gateway.ask(message(1, "ping"))) == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_one_server_under_its_own_names(lines: Any) -> None:
    gateway = await lines(
        {"one": passthrough_entry("one"), "two": passthrough_entry("two")}, "--server", "two"
    )
    tool_page = await gateway.ask(message(1, "tools/list"))
    assert "odd" in {tool["name"] for tool in tool_page["result"]["tools"]}
    answer = await gateway.ask(message(2, "prompts/get", {"name": "hello"}))
    assert answer["result"]["messages"][0]["content"]["text"] == "hello from two"


async def test_a_server_that_there_is_not_is_told_before_anything_starts(lines: Any) -> None:
    gateway = await lines({"one": passthrough_entry("one")}, "--server", "three")
    assert await asyncio.wait_for(gateway.process.wait(), 30) == 3
    assert await gateway.process.stdout.read() == b""


async def test_nested_batches_are_invalid(lines: Any) -> None:
    gateway = await lines({"one": passthrough_entry("one")})
    answer = await gateway.ask(b"[" * 900 + b"]" * 900)
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)
    assert (await gateway.ask(message(1, "ping")))["result"] == {}
