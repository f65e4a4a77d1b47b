"""Servers that send without being asked: over a limit they are disconnected for a while, with the reason."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp.web
import pytest
from tests.tool_calls import call_tool

from toolyard.clients import Callbacks, ConnectionManager
from toolyard.clients.unsolicited_traffic import ListChangeThrottle, TrafficLimits, TrafficMeter
from toolyard.errors import OutcomeUnknown, Unreachable
from toolyard.transports.stdio import transport as stdio_transport
from toolyard.types.server import HttpSpec, ProtocolEra, Server, State, StdioSpec, Timeouts

Beside = Callable[..., AbstractAsyncContextManager[ConnectionManager]]
Until = Callable[[Callable[[], bool]], Any]

PATIENT = Timeouts(connect=60.0, silence=60.0, call=60.0)
LOG = {"method": "notifications/message", "params": {"level": "info", "data": "x"}}
TOO_MANY = "was disconnected: it sent more than 1,000 unsolicited messages within 10 s"
TOO_MANY_LINES = "was disconnected: it sent more than 10,000 lines that are not messages within 10 s"
TOO_MANY_LOG_LINES = "was disconnected: it sent more than 100,000 lines to its standard error within 10 s"
TOO_MANY_LOG_BYTES = "was disconnected: it sent more than 50,000,000 bytes to its standard error within 10 s"
TOO_MUCH = "was disconnected: it sent more than 10,000,000 bytes of unsolicited messages within 10 s"

STDIO = """
import json, sys
kind = sys.argv[1]
long = {"content": [{"type": "text", "text": "y" * 2_000_000}]}
def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()
def log(data):
    send(method="notifications/message", params={"level": "info", "data": data})
for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        for _ in range(1001 * (kind == "pushes-first")):
            log("x")
        info = {"name": "bad", "version": "1"}
        send(id=id, result={"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info})
    elif method == "tools/list":
        send(id=id, result={"tools": []})
        send(method="notifications/tools/list_changed")
        send(method="notifications/message", params={"level": "info", "data": "listed"})
    elif method == "tools/call":
        if kind == "large-notification":
            log("x" * 2_000_000)
        elif kind == "params-first":
            params = {"data": "x" * 2_000_000}
            print(json.dumps({"params": params, "jsonrpc": "2.0", "method": "notifications/x"}))
        elif kind == "large-answer":
            send(id=id, result=long)
        elif kind == "large-answer-id-last":
            print(json.dumps({"jsonrpc": "2.0", "result": long, "id": id}))
        elif kind.startswith("progress-"):
            token = message["params"]["_meta"]["progressToken"]
            for at in range(int(kind[9:])):
                send(method="notifications/progress", params={"progressToken": token, "progress": at})
        send(id=id, result={"content": [{"type": "text", "text": "done"}]})
    elif method == "notifications/initialized":
        if kind == "pushes-many":
            for _ in range(1001):
                log("x")
        elif kind == "pushes-blank-lines":
            while True:
                sys.stdout.write("\\n" * 1000)
        elif kind == "pushes-other-lines":
            while True:
                sys.stdout.write("listening on port 1\\n" * 1000)
        elif kind == "logs-blank-lines":
            while True:
                sys.stderr.write("\\n" * 1000)
        elif kind == "logs-long-lines":
            while True:
                sys.stderr.write("x" * 1_000_000)
        elif kind == "pushes-much":
            log("x" * 36_000_000)
        elif kind == "pushes-answers":
            send(id=4711, result={"content": ["x" * 36_000_000]})
"""


def stdio(kind: str) -> Server:
    return Server(
        "bad", StdioSpec(sys.executable, ("-c", STDIO, kind)), protocol=ProtocolEra.LEGACY, timeouts=PATIENT
    )


async def say(manager: ConnectionManager) -> str:
    return (await call_tool(manager, "bad", "say", {}))["content"][0]["text"]


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("pushes-many", TOO_MANY),
        ("pushes-much", TOO_MUCH),
        ("pushes-answers", TOO_MUCH),
        ("pushes-blank-lines", TOO_MANY_LINES),
        ("pushes-other-lines", TOO_MANY_LINES),
        ("logs-blank-lines", TOO_MANY_LOG_LINES),
        ("logs-long-lines", TOO_MANY_LOG_BYTES),
    ],
)
async def test_a_child_that_pushes_without_a_call_is_disconnected_and_its_status_says_why(
    kind: str, cause: str, open_manager: Beside, wait_until: Until
) -> None:
    notifications: list[Any] = []
    callbacks = Callbacks(log=lambda _, params: notifications.append(params))
    async with open_manager(stdio(kind), callbacks=callbacks) as manager:
        with contextlib.suppress(OutcomeUnknown, Unreachable):
            await manager.ensure_connected("bad")
        await wait_until(lambda: manager.status("bad").state is State.FAILED)
        status = manager.status("bad")
        assert status.cause == cause
        assert status.next_retry is not None
        assert len(notifications) == (1000 if kind == "pushes-many" else 0)
        with pytest.raises(Unreachable, match="was disconnected") as exc_info:
            await say(manager)
        assert exc_info.value.hint is not None
        assert "the first call after" in exc_info.value.hint


async def test_a_flood_while_connecting_is_logged_once(
    open_manager: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_manager(stdio("pushes-first")) as manager:
        with pytest.raises((OutcomeUnknown, Unreachable)):
            await call_tool(manager, "bad", "say", {})
        assert manager.status("bad").state is State.FAILED
    lines = [each.getMessage() for each in caplog.records if TOO_MANY in each.getMessage()]
    assert len(lines) == 1, lines
    assert "not connecting for 5 s" in lines[0]


async def test_a_disconnected_server_is_connected_again_after_a_pause(
    open_manager: Beside, wait_until: Until
) -> None:
    limits = TrafficLimits(messages=10, reconnect_delays=(0.0,))
    async with open_manager(stdio("pushes-many"), traffic=limits) as manager:
        for connects in (1, 2, 3):
            with contextlib.suppress(OutcomeUnknown, Unreachable):
                await say(manager)
            await wait_until(lambda: manager.status("bad").state is State.FAILED)
            assert manager.status("bad").connects == connects


async def test_the_pause_does_not_grow_when_the_clock_is_set_back(
    open_manager: Beside, wait_until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = TrafficLimits(messages=10, reconnect_delays=(0.0,))
    async with open_manager(stdio("pushes-many"), traffic=limits) as manager:
        with contextlib.suppress(OutcomeUnknown, Unreachable):
            await say(manager)
        await wait_until(lambda: manager.status("bad").state is State.FAILED)
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() - 86_400.0)
        with contextlib.suppress(OutcomeUnknown, Unreachable):
            await say(manager)
        await wait_until(lambda: manager.status("bad").state is State.FAILED)
        assert manager.status("bad").connects == 2


@pytest.mark.parametrize(("last_delay", "message_count"), [(3600.0, 2), (0.05, 3)])
async def test_a_server_that_reports_a_change_with_every_listing_is_not_listed_without_end(
    open_manager: Beside, wait_until: Until, last_delay: float, message_count: int
) -> None:
    """Like a client that lists again after each notification."""
    changes: list[str] = []
    list_params: list[Any] = []
    callbacks = Callbacks(
        notification=lambda _, method, params: changes.append(method),
        log=lambda *log: list_params.append(log),
    )
    limits = TrafficLimits(list_change_delays=(0.0, 0.0, last_delay), list_change_quiet_seconds=3600.0)
    async with open_manager(stdio("changes"), callbacks=callbacks, traffic=limits) as manager:
        for times in range(1, 3):
            await manager.list_tools("bad")
            await wait_until(lambda times=times: len(changes) == times)
        for _ in range(5):
            await manager.list_tools("bad")
        await wait_until(lambda: len(list_params) == 7)
        await wait_until(lambda: len(changes) == message_count)
        assert set(changes) == {"notifications/tools/list_changed"}


async def test_progress_of_a_call_has_a_limit_of_its_own(open_manager: Beside) -> None:
    async with open_manager(stdio("progress-5000")) as manager:
        assert await say(manager) == "done"
        assert await say(manager) == "done"
        with pytest.raises(OutcomeUnknown, match="more than 10,000 progress notifications within 10 s"):
            while True:
                await say(manager)


@pytest.mark.parametrize("kind", ["large-notification", "params-first"])
async def test_a_notification_over_a_megabyte_is_dropped_and_the_call_goes_on(
    kind: str, open_manager: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode_sizes: list[int] = []
    decode = stdio_transport.decode_message

    async def note_and_decode(line: Any) -> Any:
        decode_sizes.append(len(line))
        return await decode(line)

    monkeypatch.setattr(stdio_transport, "decode_message", note_and_decode)
    notifications: list[Any] = []
    callbacks = Callbacks(
        log=lambda _, params: notifications.append(params),
        notification=lambda *message: notifications.append(message),
    )
    async with open_manager(stdio(kind), callbacks=callbacks) as manager:
        assert await say(manager) == "done"
        assert notifications == []
        assert manager.status("bad").state is State.READY
    # It is recognised by its beginning, unless its method stands behind its other members.
    assert len(decode_sizes) == (kind == "params-first")


@pytest.mark.parametrize("kind", ["large-answer", "large-answer-id-last"])
async def test_an_answer_over_a_megabyte_is_taken_wherever_its_id_stands(
    kind: str, open_manager: Beside
) -> None:
    async with open_manager(stdio(kind)) as manager:
        for _ in range(6):
            assert await say(manager) == "y" * 2_000_000


# Over HTTP.


class PushServer:
    """A server with a stream of its own on which it pushes notifications."""

    def __init__(self, push_bytes: bytes, times: int) -> None:
        self.url = ""
        self._pushed = push_bytes
        self._times = times
        self._older: aiohttp.web.StreamResponse | None = None
        self._over = asyncio.Event()

    def server(self, kind: str) -> Server:
        spec = HttpSpec(f"{self.url}/{kind}", type="sse" if kind == "older" else "http")
        return Server("bad", spec, protocol=ProtocolEra.LEGACY, timeouts=PATIENT)

    async def handle(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        if request.method == "GET":
            return await self._stream(request)
        message = await request.json()
        if message.get("method") == "initialize":
            info = {"name": "bad", "version": "1"}
            result: Any = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}
        elif "id" in message:
            result = {"content": [{"type": "text", "text": "done"}]}
        else:
            return aiohttp.web.Response(status=202)
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        if self._older is None:
            return aiohttp.web.json_response(answer)
        await self._older.write(b"data: %b\n\n" % json.dumps(answer).encode())
        return aiohttp.web.Response(status=202)

    async def _stream(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        stream = aiohttp.web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        if request.path == "/older":
            self._older = stream
            await stream.write(b"event: endpoint\ndata: /older\n\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(self._times):
                await stream.write(self._pushed)
        await self._over.wait()
        return stream

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        app = aiohttp.web.Application()
        app.router.add_route("*", "/{kind}", self.handle)
        runner = aiohttp.web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield
        finally:
            self._over.set()
            await runner.cleanup()


def log_of(size: int) -> bytes:
    params = {"level": "info", "data": "x" * size}
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params}).encode()


@pytest.mark.parametrize("kind", ["mcp", "older"])
@pytest.mark.parametrize(
    ("size", "times", "cause"), [(1, 1001, TOO_MANY), (36_000_000, 1, TOO_MUCH)], ids=["many", "much"]
)
async def test_an_http_server_that_pushes_without_a_call_is_disconnected_and_its_status_says_why(
    kind: str, size: int, times: int, cause: str, open_manager: Beside, wait_until: Until
) -> None:
    pushing = PushServer(b"data: %b\n\n" % log_of(size), times)
    callbacks = Callbacks(log=lambda *_: None, notification=lambda *_: None)
    async with pushing.run(), open_manager(pushing.server(kind), callbacks=callbacks) as manager:
        with contextlib.suppress(OutcomeUnknown, Unreachable):
            await manager.ensure_connected("bad")
        await wait_until(lambda: manager.status("bad").state is State.FAILED)
        assert manager.status("bad").cause == cause
        with pytest.raises(Unreachable, match="was disconnected"):
            await say(manager)


@pytest.mark.parametrize("kind", ["mcp", "older"])
@pytest.mark.parametrize(
    "lines",
    [b": \n", b"\n", b"id: 1\n", b"id: 1\n\n", b"x: 1\n", b"event: other\ndata: 1\n\n", b"data:\n\n"],
    ids=["comments", "blank lines", "ids", "ids of events", "unknown fields", "other events", "empty events"],
)
async def test_lines_of_an_event_stream_that_are_not_messages_are_limited(
    kind: str, lines: bytes, open_manager: Beside, wait_until: Until
) -> None:
    pushing = PushServer(lines * 1_000, 1_000)
    callbacks = Callbacks(notification=lambda *_: None)
    async with pushing.run(), open_manager(pushing.server(kind), callbacks=callbacks) as manager:
        with contextlib.suppress(OutcomeUnknown, Unreachable):
            await manager.ensure_connected("bad")
        await wait_until(lambda: manager.status("bad").state is State.FAILED)
        is_message = kind == "older" and lines.startswith(b"event")
        assert manager.status("bad").cause == (TOO_MANY if is_message else TOO_MANY_LINES)


@pytest.mark.parametrize("kind", ["mcp", "older"])
async def test_events_with_all_fields_and_comments_between_them_are_messages(
    kind: str, open_manager: Beside, wait_until: Until
) -> None:
    notifications: list[Any] = []
    event = b": ping\nevent: message\nid: 1\nretry: 1\ndata: %b\n\n" % log_of(1)
    pushing = PushServer(event * 50, 1)
    callbacks = Callbacks(log=lambda *log: notifications.append(log), notification=lambda *_: None)
    limits = TrafficLimits(messages=50, lines=50)
    async with (
        pushing.run(),
        open_manager(pushing.server(kind), callbacks=callbacks, traffic=limits) as manager,
    ):
        await manager.ensure_connected("bad")
        await wait_until(lambda: len(notifications) == 50)
        assert await say(manager) == "done"


def test_a_new_period_begins_when_the_last_is_over() -> None:
    meter = TrafficMeter(TrafficLimits(messages=2, progress=2, total_bytes=100))
    assert [meter.count(1, now) for now in (0.0, 1.0, 11.0, 12.0)] == [None] * 4
    assert meter.count(1, 13.0) is not None
    assert [meter.count(1, 30.0, "progress") for _ in range(2)] == [None] * 2
    assert meter.count(1, 30.0) is None
    assert "progress" in str(meter.count(1, 30.0, "progress"))
    assert "100 bytes" in str(meter.count(101, 60.0))


def test_changes_of_a_list_are_delivered_again_at_once_after_a_quiet_time() -> None:
    limits = TrafficLimits(list_change_delays=(0.0, 5.0, 60.0), list_change_quiet_seconds=100.0)
    throttle = ListChangeThrottle(limits)
    assert [throttle.next_delay(now) for now in (0.0, 1.0, 2.0, 6.5, 7.0)] == [0.0, 5.0, None, 60.0, None]
    assert [throttle.next_delay(now) for now in (66.6, 200.0, 300.1)] == [60.0, 60.0, 60.0]
    assert throttle.next_delay(500.0) == 0.0
