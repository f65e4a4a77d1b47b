"""Servers that send without end to clients that do not read: memory stays bounded, responses arrive."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.gateway.conftest import LegacyClient, ModernClient, events, passthrough_entry
from tests.web.conftest import environment, write_config

from toolyard.config.settings.table import Settings
from toolyard.core.composition import build_core
from toolyard.gateway.endpoint import Endpoint
from toolyard.gateway.gateway import Gateway
from toolyard.gateway.http.event_streams import EventStream
from toolyard.gateway.http.sessions import HttpSession, HttpSessions, UnreadResponses
from toolyard.gateway.incoming_request import LegacySession
from toolyard.types.account import Principal
from toolyard.types.call import Caller, Surface
from toolyard.types.server import Configuration

Until = Callable[[Callable[[], bool]], Awaitable[None]]

MEBIBYTE_BYTES = 1024 * 1024
FLOODING = """
import json, pathlib, sys
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def flood():
    for number in range(9):
        send(method="notifications/message", params={"level": "error", "data": "x" * 900_000})
for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        info = {"name": "flooding", "version": "1"}
        version = message["params"]["protocolVersion"]
        offers = {"tools": {}, "logging": {}}
        send(id=id, result={"protocolVersion": version, "capabilities": offers, "serverInfo": info})
    elif method == "tools/list":
        hints = {"readOnlyHint": True}
        names = "during", "after"
        tools = [{"name": name, "inputSchema": {"type": "object"}, "annotations": hints} for name in names]
        send(id=id, result={"tools": tools})
    elif method == "tools/call":
        name = message["params"]["name"]
        if name == "during":
            flood()
        send(id=id, result={"content": [{"type": "text", "text": "done"}]})
        if name == "after":
            flood()
        pathlib.Path(sys.argv[1]).write_text("sent")
    elif id is not None and method is not None:
        send(id=id, result={})
"""


def flooding(marker: Path) -> dict[str, Any]:
    """The entry of a server that sends nine large log messages, and creates ``marker`` when all are sent."""
    return {"command": sys.executable, "args": ["-I", "-S", "-c", FLOODING, str(marker)]}


async def test_a_session_without_a_stream_keeps_few_bytes_for_its_client(
    open_site: Any, http: aiohttp.ClientSession, tmp_path: Path, wait_until: Until
) -> None:
    marker = tmp_path / "sent"
    services = await open_site({"bad": flooding(marker), "one": passthrough_entry("one")})
    client = LegacyClient(http, f"{services.url}/mcp")
    await client.begin()
    await client.ask("logging/setLevel", {"level": "debug"})
    assert (await client.call("bad_after")).text == "done"
    await wait_until(marker.exists)
    head = {**client.head(""), "Accept": "text/event-stream"}
    body = b""
    async with http.get(client.url, headers=head) as response:
        # Everything that was kept is sent first; then the stream is idle.
        while chunk := await _read_decompressed(response):
            body += chunk
    logs = [each for each in events(body) if each["method"] == "notifications/message"]
    assert 1 <= len(logs) <= 2
    assert "elicitation" in (await ModernClient(http, client.url).call("one_told")).text


async def _read_decompressed(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await asyncio.wait_for(response.content.readany(), 2)
    except TimeoutError:
        return b""


async def test_over_standard_streams_a_client_that_does_not_read_gets_responses_and_few_notifications(
    tmp_path: Path, wait_until: Until
) -> None:
    marker = tmp_path / "sent"
    write_config(tmp_path, {"bad": flooding(marker)})
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "toolyard", "stdio",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment(tmp_path),
        limit=MEBIBYTE_BYTES,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(id: int, method: str, **params: Any) -> None:
        assert process.stdin is not None
        request = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        process.stdin.write(json.dumps(request).encode() + b"\n")

    try:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}
        ask(1, "initialize", **hello)
        ask(2, "logging/setLevel", level="debug")
        for _ in range(2):
            await asyncio.wait_for(process.stdout.readline(), 60)
        ask(3, "tools/call", name="bad_during", arguments={})
        await wait_until(marker.exists)
        logs = 0
        while (document := json.loads(await asyncio.wait_for(process.stdout.readline(), 60))).get("id") != 3:
            logs += document["method"] == "notifications/message"
        assert document["result"]["content"][0]["text"] == "done"
        assert 1 <= logs <= 6  # The reader of the test itself has room for two.
    finally:
        process.kill()
        await process.wait()


# The parts.


async def _write_stream(stream: EventStream) -> list[Any]:
    chunks: list[bytes] = []

    async def send(message: Any) -> None:
        chunks.append(message.get("body", b""))

    await stream.write_to(send)
    return events(b"".join(chunks))


@pytest.mark.parametrize("kind", [{}, {"id": "question"}], ids=["notifications", "questions"])
@pytest.mark.parametrize("name", [None, "resumable"])
async def test_an_unread_stream_keeps_few_bytes_and_the_response(
    name: str | None, kind: dict[str, Any]
) -> None:
    stream = EventStream(name, max_kept_bytes=10_000)
    for _ in range(100):
        stream.put({**kind, "method": "x", "params": {"data": "y" * 1000}})
    assert stream.kept_bytes <= 10_000
    stream.put({"id": 1, "result": {"data": "y" * 20_000}})
    stream.end()
    messages = await _write_stream(stream)
    assert 5 <= len(messages) <= 10
    assert messages[-1]["id"] == 1


async def test_a_stream_that_is_read_keeps_few_bytes_for_a_client_that_returns() -> None:
    stream = EventStream("s", max_kept_bytes=10_000)
    reading = asyncio.ensure_future(_write_stream(stream))
    for _ in range(100):
        stream.put({"method": "x", "params": {"data": "y" * 1000}})
        for _ in range(5):
            await asyncio.sleep(0)
        assert stream.kept_bytes <= 10_000
    stream.end()
    assert len(await reading) == 100


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    core = build_core(Configuration({}), Settings(), data_dir=tmp_path)
    gateway = Gateway(
        core.manager,
        core.tool_directory,
        core.call_path,
        core.meta_tools,
        core.name_assigner,
        core.locks,
    )
    yield gateway
    await gateway.close()
    await core.close()


def begin(sessions: HttpSessions, gateway: Gateway, name: str) -> HttpSession:
    endpoint = Endpoint(gateway, Caller(Principal(name), Surface.MODEL_DIRECT))
    return sessions.start(endpoint, LegacySession("2025-11-25", {}, {}))


def leave_unread(session: HttpSession, size: int) -> Callable[[], bool]:
    """Add a response that the client does not read. Return a function that says if it is still there."""
    stream = session.open_stream()
    stream.put({"id": 1, "result": "x" * size})
    session.finish_stream(stream, was_read=False)
    return lambda: session.find_resumable(f"{stream.name}/0") is not None


async def test_unread_responses_of_one_person_use_bounded_memory_in_all_sessions(gateway: Gateway) -> None:
    sessions = HttpSessions()
    ben = leave_unread(begin(sessions, gateway, "ben"), MEBIBYTE_BYTES)
    ann = [leave_unread(begin(sessions, gateway, "ann"), 4 * MEBIBYTE_BYTES) for _ in range(10)]
    open_sessions = [is_there() for is_there in ann]
    assert open_sessions == [False] * 3 + [True] * 7  # 32 MiB hold seven with their framing.
    assert ben()
    huge = leave_unread(begin(sessions, gateway, "ann"), 33 * MEBIBYTE_BYTES)
    assert huge()
    assert not any(is_there() for is_there in ann)
    await sessions.close()


async def test_unread_responses_of_all_use_bounded_memory_and_the_largest_share_pays(
    gateway: Gateway,
) -> None:
    sessions = HttpSessions(UnreadResponses(max_bytes_per_owner=5_000, max_bytes=6_000))
    ann, ben = begin(sessions, gateway, "ann"), begin(sessions, gateway, "ben")
    hers = [leave_unread(ann, 1000) for _ in range(4)]
    his = [leave_unread(ben, 1000) for _ in range(3)]
    assert [is_there() for is_there in hers] == [False, False, True, True]
    assert all(is_there() for is_there in his)
    # The bytes of a session that ended are free again.
    await sessions.end(ann)
    his += [leave_unread(ben, 1000)]
    assert all(is_there() for is_there in his)
    await sessions.close()
