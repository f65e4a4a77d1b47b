"""HTTP servers that misbehave: each status has a short cause, calls end, other servers keep working."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from tests.tool_calls import call_tool

from toolyard.clients import Callbacks, ConnectionManager, EraCache
from toolyard.clients.connector import server_fingerprint
from toolyard.errors import (
    BadAnswer,
    CallTimeout,
    HttpStatus,
    OutcomeUnknown,
    RpcError,
    ServerError,
    SessionLost,
    SignInNeeded,
    Throttled,
    Unreachable,
)
from toolyard.types.call import McpRequest
from toolyard.types.server import HttpSpec, ProtocolEra, Server, State, Timeouts

from .conftest import PATIENT

if TYPE_CHECKING:
    from tests.clients.conftest import HostileHttp
    from tests.conftest import ProgramStarter

Beside = Callable[..., AbstractAsyncContextManager[ConnectionManager]]
Within = Callable[[float], AbstractContextManager[None]]
Says = Callable[[Any, str], None]
Until = Callable[..., Any]

HOSTILE = Path(__file__).parent.parent / "hostile/http_server.py"

both_loops = pytest.mark.both_loops


def text_of(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


# Servers that never become ready, and servers that misbehave in a call.

BROKEN: dict[str, tuple[type[ServerError], str]] = {
    "resets-request": (OutcomeUnknown, "was lost: Connection reset by peer"),
    "closes": (OutcomeUnknown, "closed the connection before it answered"),
    "resets-answer": (OutcomeUnknown, "in the middle of its response"),
    "closes-in-answer": (OutcomeUnknown, "in the middle of its response"),
    "resets-event": (OutcomeUnknown, "in the middle of its response"),
    "no-last-chunk": (OutcomeUnknown, "in the middle of its response"),
    "sse-ends": (OutcomeUnknown, "ended the event stream before it responded"),
    "wrong-id-stream": (OutcomeUnknown, "ended the event stream before it responded"),
    "redirects-away": (Unreachable, "redirects to another origin: http://localhost:"),
    "redirects-for-ever": (Unreachable, "redirects more than 5 times"),
    "html": (BadAnswer, "answered with text/html instead of JSON: <!doctype html> <html><body>Welcome to"),
    "plain-text": (BadAnswer, "answered with text/plain instead of JSON: OK"),
    "no-type": (BadAnswer, "answered with no content type instead of JSON: OK"),
    "bad-json": (BadAnswer, "sent a response that is not JSON: "),
    "empty": (BadAnswer, "sent a response that is not JSON: an empty body"),
    "accepted": (BadAnswer, "answered a request with HTTP 202 and no response body"),
    "wrong-id": (BadAnswer, "answered the request with a message that is not its response"),
    "not-http": (BadAnswer, "sent an invalid HTTP response"),
    "tls-alert": (BadAnswer, "sent an invalid HTTP response"),
    "long-header": (BadAnswer, "sent an invalid HTTP response"),
    "headers-without-end": (BadAnswer, "sent an invalid HTTP response"),
    "bad-chunk": (BadAnswer, "sent an invalid HTTP response: Invalid character in chunk size"),
    "bad-chunk-later": (BadAnswer, "sent an invalid HTTP response: Invalid character in chunk size"),
    "badly-packed": (BadAnswer, "the body is not valid gzip data"),
    "oversize": (BadAnswer, "sent a response of 10000000000 bytes or more, over the limit of 1000000"),
    "oversize-without-length": (BadAnswer, "over the limit of 1000000"),
    "bomb": (BadAnswer, "over the limit of 1000000"),
    "sse-oversize": (BadAnswer, "over the limit of 1000000"),
    "sse-bad-json": (BadAnswer, 'sent a response that is not JSON: {"jsonrpc": "2.0", "id": '),
    "status-401": (SignInNeeded, "answered with HTTP 401 Unauthorized: the tea is cold"),
    "status-403": (SignInNeeded, "answered with HTTP 403 Forbidden: the tea is cold"),
    "status-404": (HttpStatus, "answered with HTTP 404 Not Found: the tea is cold"),
    "status-429": (Throttled, "answered with HTTP 429 Too Many Requests: the tea is cold"),
    "status-429-date": (Throttled, "answered with HTTP 429 Too Many Requests: the tea is cold"),
    "status-500": (HttpStatus, "answered with HTTP 500 Internal Server Error: the tea is cold"),
    "status-502": (HttpStatus, "answered with HTTP 502 Bad Gateway: the tea is cold"),
    "html-502": (HttpStatus, "answered with HTTP 502 Bad Gateway: an HTML page"),
    "status-503": (HttpStatus, "answered with HTTP 503 Service Unavailable: the tea is cold"),
    "status-503-later": (Throttled, "answered with HTTP 503 Service Unavailable: the tea is cold"),
    "oversize-refusal": (HttpStatus, "answered with HTTP 500 Internal Server Error: sorry sorry"),
}
STANDING: dict[str, dict[str, str]] = {
    "stalls": {},
    "stalls-after-head": {},
    "drips": {"every": "0.1"},
    "drips-refusal": {"every": "0.1"},
    "sse-without-end": {},
    "sse-line-without-end": {},
}


@both_loops
@pytest.mark.parametrize("mode", BROKEN)
async def test_a_server_that_cannot_be_used_says_why_and_the_others_work(
    mode: str, web: HostileHttp, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    kind, words = BROKEN[mode]
    # Nothing was executed while connecting.
    kind = Unreachable if kind is OutcomeUnknown else kind
    async with open_manager(web(mode, when="always"), message_limit=1_000_000) as manager:
        with max_duration(3), pytest.raises(ServerError) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert type(exc_info.value) is kind
        assert_cause(exc_info.value, words)
        status = manager.status("bad")
        assert status.state is (State.NEEDS_AUTH if kind is SignInNeeded else State.FAILED)
        assert_cause(status, words)


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("mode", BROKEN)
async def test_a_call_that_is_answered_badly_ends_with_the_right_error(
    mode: str, era: str, web: HostileHttp, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    kind, words = BROKEN[mode]
    if mode == "status-404" and era == "legacy":
        kind, words = SessionLost, "no longer knows our session"
    async with open_manager(web(mode, era=era), message_limit=1_000_000) as manager:
        await manager.ensure_connected("bad")
        with max_duration(3), pytest.raises(ServerError) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert type(exc_info.value) is kind
        assert_cause(exc_info.value, words)
        assert (await manager.list_tools("bad")).items[0]["name"] == "echo"


@both_loops
@pytest.mark.parametrize("mode", STANDING)
async def test_a_server_that_stands_still_is_given_up_after_the_connect_timeout(
    mode: str,
    web: HostileHttp,
    short: Timeouts,
    open_manager: Beside,
    max_duration: Within,
    assert_cause: Says,
) -> None:
    async with open_manager(web(mode, keys={"timeouts": short}, when="always", **STANDING[mode])) as manager:
        with max_duration(2), pytest.raises(Unreachable) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, "did not answer within 1 s")
        assert_cause(manager.status("bad"), "did not answer within 1 s")


@both_loops
@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("mode", STANDING)
async def test_a_call_that_stands_still_times_out_and_the_server_is_told(
    mode: str,
    era: str,
    web: HostileHttp,
    open_manager: Beside,
    max_duration: Within,
    assert_cause: Says,
    wait_until: Until,
) -> None:
    keys = {"timeouts": Timeouts(120, 0.5, 5)}
    async with open_manager(web(mode, keys=keys, era=era, **STANDING[mode])) as manager:
        await manager.ensure_connected("bad")
        with max_duration(1.5), pytest.raises(CallTimeout) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, "tools/call: no response or progress for 0.5 s")
        if era == "legacy":
            await wait_until(lambda: web.messages("notifications/cancelled"))
        if not mode.startswith("drips"):
            await wait_until(lambda: any(entry.get("hung_up") == "tools/call" for entry in web.seen()))
        assert manager.status("bad").state is State.READY


@both_loops
async def test_a_closed_port_is_named(open_manager: Beside, max_duration: Within, assert_cause: Says) -> None:
    with socket.socket() as silent_socket:
        silent_socket.bind(("127.0.0.1", 0))
        port = silent_socket.getsockname()[1]
        async with open_manager(Server("bad", HttpSpec(f"http://127.0.0.1:{port}/mcp"))) as manager:
            with max_duration(1), pytest.raises(Unreachable) as exc_info:
                await call_tool(manager, "bad", "echo")
            words = f"127.0.0.1:{port} cannot be reached: Connection refused"
            assert_cause(exc_info.value, words)
            assert exc_info.value.hint == "is the server running?"
            assert_cause(manager.status("bad"), words)


@both_loops
async def test_a_reset_in_the_middle_of_a_long_request_leaves_its_outcome_unknown(
    web: HostileHttp, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    async with open_manager(web("resets-in-body")) as manager:
        with max_duration(3), pytest.raises(OutcomeUnknown) as exc_info:
            await call_tool(manager, "bad", "echo", {"text": "x" * 20_000_000})
        assert_cause(exc_info.value, "127.0.0.1:")
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "next"})) == "next"


@pytest.mark.parametrize("era", ["modern", "legacy", "sse"])
async def test_a_server_that_went_away_and_came_back_is_found_again(
    era: str,
    start_program: ProgramStarter,
    open_manager: Beside,
    max_duration: Within,
    assert_cause: Says,
    wait_until: Until,
) -> None:
    program = start_program(sys.executable, "-I", HOSTILE, "{port}")
    spec = HttpSpec(f"{program.url}/good/key?era={era}", type="sse" if era == "sse" else "http")
    async with open_manager(Server("bad", spec, timeouts=PATIENT)) as manager:
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "before"})) == "before"
        program.stop()
        if era == "sse":  # Its stream ends with it.
            await wait_until(lambda: manager.status("bad").state is not State.READY)
        with max_duration(2), pytest.raises(ServerError) as exc_info:
            for _ in range(3):  # The first ones may use a kept connection that has just broken.
                with contextlib.suppress(OutcomeUnknown):
                    await call_tool(manager, "bad", "echo")
        assert type(exc_info.value) is Unreachable
        assert_cause(exc_info.value, "cannot be reached: Connection refused")
        program.start()
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "after"})) == "after"
        assert manager.status("bad").state is State.READY


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://no-such-host.invalid/mcp", "the host name no-such-host.invalid cannot be resolved"),
        ("http://127.0.0.1:99999/mcp", "cannot be used"),
        ("http:///mcp", "the request cannot be made"),
        ("mailto:someone", "the request cannot be made"),
        ("not a url", "the request cannot be made"),
        ("ftp://127.0.0.1/mcp", "the request cannot be made"),
    ],
)
async def test_an_address_that_leads_nowhere_is_named(
    url: str, words: str, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    async with open_manager(Server("bad", HttpSpec(url), timeouts=PATIENT)) as manager:
        with max_duration(5), pytest.raises(Unreachable) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, words)
        assert_cause(manager.status("bad"), words)


async def test_a_tls_address_of_a_plain_server_is_named(
    web: HostileHttp, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    url = web.url("good").replace("http:", "https:")
    async with open_manager(Server("bad", HttpSpec(url), timeouts=PATIENT)) as manager:
        with max_duration(3), pytest.raises(Unreachable) as exc_info:
            await call_tool(manager, "bad", "echo")
        # The same text each time, so that it is reported once.
        address = url.removeprefix("https://").partition("/")[0]
        assert exc_info.value.cause == f"TLS with {address} failed: wrong version number"
        assert exc_info.value.hint == "if the server does not use TLS, its URL begins with http://"


async def test_a_web_server_that_knows_no_post_is_named(open_manager: Beside, max_duration: Within) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as listening:
        thread = Thread(target=listening.serve_forever)
        thread.start()
        try:
            spec = HttpSpec(f"http://127.0.0.1:{listening.server_port}/")
            async with open_manager(Server("bad", spec, timeouts=PATIENT)) as manager:
                with max_duration(5), pytest.raises(HttpStatus) as exc_info:
                    await call_tool(manager, "bad", "echo")
        finally:
            listening.shutdown()
            thread.join()
    assert exc_info.value.status == 501
    assert exc_info.value.hint == "is this the address of an MCP server? Many end in /mcp"


async def test_many_bad_servers_at_once_fail_alone(
    web: HostileHttp, short: Timeouts, open_manager: Beside, max_duration: Within
) -> None:
    servers = [web(mode, when="always", keys={"id": mode}) for mode in BROKEN]
    servers += [web(mode, when="always", keys={"id": mode, "timeouts": short}) for mode in STANDING]
    async with open_manager(*servers, message_limit=1_000_000, parallel=100) as manager:
        with max_duration(10):
            records = {record.server: record for record in await manager.connect()}
        assert records.pop("good").state is State.READY
        for mode, record in records.items():
            assert record.state in (State.FAILED, State.NEEDS_AUTH)
            assert record.cause is not None
            # Some fill that second with so many bytes that they are disconnected before it ends.
            is_flood = mode in STANDING and "of unsolicited messages" in record.cause
            assert is_flood or BROKEN.get(mode, (None, "did not answer within 1 s"))[1] in record.cause


# Information in refusals.


async def test_a_refusal_keeps_the_retry_time_of_the_server(web: HostileHttp, open_manager: Beside) -> None:
    async with open_manager(web("status-401")) as manager:
        with pytest.raises(SignInNeeded) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert exc_info.value.status == 401
        assert exc_info.value.challenge == 'Bearer realm="tea", scope="pour"'
        assert manager.status("bad").state is State.NEEDS_AUTH
    async with open_manager(web("status-429")) as manager:
        with pytest.raises(Throttled) as throttled_info:
            await call_tool(manager, "bad", "echo")
        assert throttled_info.value.retry_after == 7
    async with open_manager(web("status-500")) as manager:
        with pytest.raises(HttpStatus) as refused_exc_info:
            await call_tool(manager, "bad", "echo")
        assert (refused_exc_info.value.status, refused_exc_info.value.body) == (500, b"the tea is\ncold")


async def test_a_server_that_wanted_credentials_once_is_ready_again(
    web: HostileHttp, open_manager: Beside
) -> None:
    async with open_manager(web("refuses-once")) as manager:
        with pytest.raises(SignInNeeded):
            await call_tool(manager, "bad", "echo")
        assert manager.status("bad").state is State.NEEDS_AUTH
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "now"})) == "now"
        status = manager.status("bad")
        assert (status.state, status.cause) == (State.READY, None)


async def test_a_json_rpc_error_counts_with_any_status(web: HostileHttp, open_manager: Beside) -> None:
    async with open_manager(web("rpc-error-400")) as manager:
        with pytest.raises(RpcError, match="no such tool") as exc_info:
            await call_tool(manager, "bad", "echo")
        assert exc_info.value.code == -32602


# Redirects.


@pytest.mark.parametrize("status", ["301", "302", "307", "308"])
async def test_a_redirect_within_the_origin_is_followed_and_remembered(
    status: str, web: HostileHttp, open_manager: Beside
) -> None:
    async with open_manager(web("redirects", status=status)) as manager:
        for text in ("one", "two"):
            assert text_of(await call_tool(manager, "bad", "echo", {"text": text})) == text
    assert sum("moved=1" not in entry["target"] for entry in web.seen()) == 1


async def test_headers_stay_with_their_origin(web: HostileHttp, open_manager: Beside) -> None:
    spec = HttpSpec(web.url("redirects-away", when="always"), headers={"Authorization": "Bearer secret"})
    async with open_manager(Server("bad", spec)) as manager:
        with pytest.raises(Unreachable, match="redirects to another origin"):
            await call_tool(manager, "bad", "echo")
    assert web.seen()[0]["headers"]["authorization"] == "Bearer secret"
    assert web.seen("-away") == []


@pytest.mark.parametrize("to", ["http://[::1", "mailto:someone", "//", "ftp://127.0.0.1/"])
async def test_a_redirect_to_no_address_at_all_is_an_error(
    to: str, web: HostileHttp, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    async with open_manager(web("redirects-nowhere", when="always", to=to)) as manager:
        with max_duration(2), pytest.raises(Unreachable) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, "redirects ")


# Oddities that are allowed.


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize(
    "mode", ["good", "batch", "odd-chunks", "no-length", "packed", "sse-answers", "sse-stays-open", "sse-odd"]
)
async def test_an_odd_answer_is_understood(
    mode: str, era: str, web: HostileHttp, open_manager: Beside, max_duration: Within
) -> None:
    async with open_manager(web(mode, era=era)) as manager:
        with max_duration(2):
            for text in ("one", "two", "three"):
                assert text_of(await call_tool(manager, "bad", "echo", {"text": text})) == text
        assert manager.status("bad").state is State.READY


@both_loops
@pytest.mark.parametrize("mode", ["good", "sse-answers"])
async def test_connections_are_used_again(mode: str, web: HostileHttp, open_manager: Beside) -> None:
    async with open_manager(web(mode)) as manager:
        for number in range(50):
            assert text_of(await call_tool(manager, "bad", "echo", {"text": str(number)})) == str(number)
    calls = web.messages("tools/call")
    assert len(calls) == 50
    assert len({call["connection"] for call in calls}) <= 3


async def test_a_modern_server_is_told_method_and_name_in_headers(
    web: HostileHttp, open_manager: Beside
) -> None:
    async with open_manager(web("good")) as manager:
        await call_tool(manager, "bad", "echo", {"text": "x"})
        with pytest.raises(RpcError, match="no such method"):
            await manager.connection("bad").request(McpRequest("resources/read", {"uri": "file:///ä"}))
    call = web.messages("tools/call")[0]
    assert call["headers"]["mcp-method"] == "tools/call"
    assert call["headers"]["mcp-name"] == "echo"
    assert call["headers"]["mcp-protocol-version"] == "2026-07-28"
    assert "mcp-session-id" not in call["headers"]


async def test_a_legacy_server_gets_its_session_and_version_and_a_goodbye(
    web: HostileHttp, open_manager: Beside
) -> None:
    async with open_manager(web("good", era="legacy")) as manager:
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "x"})) == "x"
    requests = web.seen()
    begin = [entry["message"].get("method") for entry in requests[:3]]
    assert begin == ["server/discover", "initialize", "notifications/initialized"]
    session = requests[2]["headers"]["mcp-session-id"]
    assert "mcp-session-id" not in requests[1]["headers"]
    assert requests[-1]["verb"] == "DELETE"
    assert requests[-1]["headers"]["mcp-session-id"] == session
    assert {entry["headers"].get("mcp-protocol-version") for entry in requests[2:]} == {"2025-06-18"}


async def test_the_era_is_remembered_and_the_second_connect_asks_no_more(
    web: HostileHttp, open_manager: Beside
) -> None:
    async with open_manager(web("good", era="legacy")) as manager:
        await call_tool(manager, "bad", "echo")
        await manager.restart("bad")
        await call_tool(manager, "bad", "echo")
    assert len(web.messages("server/discover")) == 1
    assert len(web.messages("initialize")) == 2


async def test_a_server_with_a_changed_era_is_probed_again(web: HostileHttp, open_manager: Beside) -> None:
    class Wrong(EraCache):
        def recall(self, key: str) -> Any:
            return super().recall(key) or "legacy"

    async with open_manager(web("good"), eras=Wrong()) as manager:
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "x"})) == "x"
        assert manager.status("bad").protocol_version == "2026-07-28"


async def test_a_remembered_older_transport_is_used_at_once(web: HostileHttp, open_manager: Beside) -> None:
    server = web("good", era="sse")
    server = replace(server, transport=replace(server.transport, type="http"))
    eras = EraCache()
    eras.remember(server_fingerprint(server), "sse")
    async with open_manager(server, eras=eras) as manager:
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "x"})) == "x"
    assert web.messages("server/discover") == []
    assert len(web.messages("initialize")) == 1
    assert eras.recall(server_fingerprint(server)) == "sse"


async def test_a_refused_server_falls_back_to_the_older_transport_and_remembers_it(
    web: HostileHttp, open_manager: Beside
) -> None:
    server = web("good", era="sse")
    server = replace(server, transport=replace(server.transport, type="http"))
    eras = EraCache()
    async with open_manager(server, eras=eras) as manager:
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "x"})) == "x"
    assert eras.recall(server_fingerprint(server)) == "sse"


async def test_a_server_of_another_era_than_configured_says_so(
    web: HostileHttp, open_manager: Beside, assert_cause: Says
) -> None:
    async with open_manager(web("good", era="legacy", keys={"protocol": ProtocolEra.MODERN})) as manager:
        with pytest.raises(BadAnswer) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, "does not support protocol version 2026-07-28")


# Timeouts and cancellation.


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_progress_keeps_a_call_alive_and_the_cap_ends_it(
    era: str, web: HostileHttp, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    progress_values: list[float] = []
    async with open_manager(web("good", era=era, keys={"timeouts": Timeouts(120, 2.0, 60)})) as manager:
        result = await call_tool(
            manager,
            "bad",
            "steps",
            {"count": 5, "every": 0.6},
            on_progress=lambda params: progress_values.append(params["progress"]),
        )
        assert text_of(result) == "done"
        assert progress_values == [0, 1, 2, 3, 4]
        steps, limits = {"count": 1000, "every": 0.1}, Timeouts(120, 2.0, 3.0)
        with max_duration(3), pytest.raises(CallTimeout) as exc_info:
            await call_tool(manager, "bad", "steps", steps, timeouts=limits)
        assert_cause(exc_info.value, "tools/call took longer than 3 s in all")


@both_loops
@pytest.mark.parametrize("era", ["modern", "legacy", "sse"])
async def test_a_cancelled_call_reaches_the_server_and_touches_no_other(
    era: str, web: HostileHttp, open_manager: Beside, wait_until: Until
) -> None:
    async with open_manager(web("good", era=era)) as manager:
        await manager.ensure_connected("bad")
        one = asyncio.ensure_future(call_tool(manager, "bad", "wait"))
        await wait_until(lambda: len(web.messages("tools/call")) == 1)
        other = asyncio.ensure_future(call_tool(manager, "bad", "wait"))
        await wait_until(lambda: len(web.messages("tools/call")) == 2)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        first, second = web.messages("tools/call")
        if era == "modern":
            hang_up = {"connection": first["connection"], "hung_up": "tools/call"}
            await wait_until(lambda: hang_up in web.seen())
            assert not web.messages("notifications/cancelled")
        else:
            await wait_until(lambda: web.messages("notifications/cancelled"))
            cancel_params = [entry["message"]["params"] for entry in web.messages("notifications/cancelled")]
            assert [params["requestId"] for params in cancel_params] == [first["message"]["id"]]
        assert {"connection": second["connection"], "hung_up": "tools/call"} not in web.seen()
        assert not other.done()
        other.cancel()


# Sessions.


@pytest.mark.parametrize("mode", ["forgets-404", "forgets-400", "forgets-200", "forgets-stream"])
async def test_a_server_that_forgot_its_session_gets_a_new_one_and_the_call_succeeds(
    mode: str, web: HostileHttp, open_manager: Beside
) -> None:
    async with open_manager(web(mode, era="legacy")) as manager:
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "kept"})) == "kept"
        assert len(web.messages("initialize")) == 2
        assert len(web.messages("tools/call")) == 2
        assert len(web.messages("server/discover")) == 1
        assert manager.status("bad").state is State.READY


@both_loops
async def test_all_calls_that_meet_a_forgotten_session_succeed(
    web: HostileHttp, open_manager: Beside
) -> None:
    async with open_manager(web("forgets-404", era="legacy")) as manager:
        await manager.ensure_connected("bad")
        results = await asyncio.gather(
            *(call_tool(manager, "bad", "echo", {"text": str(n)}) for n in range(10)), return_exceptions=True
        )
        assert [text_of(result) for result in results] == [str(n) for n in range(10)]  # type: ignore[arg-type]
        assert len(web.messages("initialize")) == 2


@both_loops
async def test_a_forgotten_session_does_not_take_a_running_call_along(
    web: HostileHttp, open_manager: Beside, wait_until: Until
) -> None:
    async with open_manager(web("forgets-404", era="legacy")) as manager:
        result_task = asyncio.ensure_future(call_tool(manager, "bad", "steps", {"count": 10, "every": 0.05}))
        await wait_until(lambda: web.messages("tools/call"))
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "kept"})) == "kept"
        assert not result_task.done()
        assert text_of(await result_task) == "done"
        assert len(web.messages("initialize")) == 2
        await wait_until(lambda: any(entry.get("verb") == "DELETE" for entry in web.seen()))


async def test_closing_ends_requests_of_a_forgotten_session(
    web: HostileHttp, open_manager: Beside, max_duration: Within, wait_until: Until
) -> None:
    async with open_manager(web("forgets-404", era="legacy")) as manager:
        result_task = asyncio.ensure_future(call_tool(manager, "bad", "wait"))
        await wait_until(lambda: web.messages("tools/call"))
        await call_tool(manager, "bad", "echo")
        with max_duration(1):
            await manager.close("bad")
            ends = await asyncio.gather(result_task, return_exceptions=True)
        assert isinstance(ends[0], OutcomeUnknown)


async def test_a_server_that_always_forgets_is_given_up(
    web: HostileHttp, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    async with open_manager(web("never-knows-its-session", era="legacy")) as manager:
        with max_duration(2), pytest.raises(SessionLost) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, "no longer knows our session")


async def test_a_session_id_that_cannot_be_one_is_refused(
    web: HostileHttp, open_manager: Beside, assert_cause: Says
) -> None:
    async with open_manager(web("bad-session-id", era="legacy", when="begin")) as manager:
        with pytest.raises(BadAnswer) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, "sent a session id with invalid characters")


async def test_a_repeatable_call_is_sent_again_when_its_outcome_is_unknown(
    web: HostileHttp, open_manager: Beside
) -> None:
    async with open_manager(web("closes")) as manager:
        with pytest.raises(OutcomeUnknown):
            await call_tool(manager, "bad", "echo")
        assert len(web.messages("tools/call")) == 1
        with pytest.raises(OutcomeUnknown):
            await call_tool(manager, "bad", "echo", repeatable=True)
        assert len(web.messages("tools/call")) == 3


# Event streams that end early.


async def test_a_stream_that_ends_early_is_resumed_where_it_stopped(
    web: HostileHttp, open_manager: Beside
) -> None:
    async with open_manager(web("sse-resumes", era="legacy")) as manager:
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "in the end"})) == "in the end"
    assert [entry["resumed"] for entry in web.seen() if "resumed" in entry] == ["one", "two"]
    assert len(web.messages("tools/call")) == 1


async def test_a_stream_of_the_modern_era_is_not_resumed(
    web: HostileHttp, open_manager: Beside, assert_cause: Says
) -> None:
    async with open_manager(web("sse-resumes")) as manager:
        with pytest.raises(OutcomeUnknown) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, "ended the event stream before it responded")


async def test_a_resumption_that_is_refused_leaves_the_outcome_unknown(
    web: HostileHttp, open_manager: Beside, assert_cause: Says
) -> None:
    async with open_manager(web("sse-resumption-refused", era="legacy")) as manager:
        with pytest.raises(OutcomeUnknown) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(
            exc_info.value,
            "ended the event stream before it responded, then answered with HTTP 404 Not Found",
        )


async def test_a_resumed_stream_is_closed_when_its_call_times_out(
    web: HostileHttp, open_manager: Beside, max_duration: Within, wait_until: Until
) -> None:
    limits = {"timeouts": Timeouts(120, 0.8, 5)}
    async with open_manager(web("sse-resumes", keys=limits, era="legacy", then="stall")) as manager:
        with max_duration(2.5), pytest.raises(CallTimeout):
            await call_tool(manager, "bad", "echo")
        await wait_until(lambda: any(entry.get("hung_up") == "GET" for entry in web.seen()))


async def test_a_stream_that_ends_again_and_again_does_not_make_us_hammer(
    web: HostileHttp, open_manager: Beside, max_duration: Within
) -> None:
    limits = {"timeouts": Timeouts(120, 2.0, 60)}
    async with open_manager(web("sse-resumes-for-ever", keys=limits, era="legacy")) as manager:
        with max_duration(2.5), pytest.raises(ServerError):
            await call_tool(manager, "bad", "echo")
    assert 1 < sum("resumed" in entry for entry in web.seen()) < 30


async def test_listening_to_a_stream_that_ends_at_once_does_not_make_us_hammer(
    web: HostileHttp, open_manager: Beside, wait_until: Until
) -> None:
    callbacks = Callbacks(notification=lambda *_: None)
    async with open_manager(web("listening-ends-at-once", era="legacy"), callbacks=callbacks) as manager:
        await manager.ensure_connected("bad")
        await wait_until(lambda: any(entry.get("verb") == "GET" for entry in web.seen()))
        await asyncio.sleep(0.5)
    assert sum(entry.get("verb") == "GET" for entry in web.seen()) < 10


async def test_a_listening_stream_without_measure_harms_no_call(
    web: HostileHttp, open_manager: Beside, wait_until: Until
) -> None:
    callbacks = Callbacks(notification=lambda *_: None)
    listening = web("listening-oversize", era="legacy")
    async with open_manager(listening, callbacks=callbacks, message_limit=100_000) as manager:
        await manager.ensure_connected("bad")
        await wait_until(lambda: any(entry.get("verb") == "GET" for entry in web.seen()))
        for text in ("one", "two"):
            assert text_of(await call_tool(manager, "bad", "echo", {"text": text})) == text


async def test_a_notification_answered_with_an_open_stream_does_not_block(
    web: HostileHttp, open_manager: Beside, max_duration: Within
) -> None:
    async with open_manager(web("notification-stays-open", era="legacy")) as manager:
        with max_duration(3):
            assert text_of(await call_tool(manager, "bad", "echo", {"text": "x"})) == "x"


# The transport of 2024-11-05.


@both_loops
async def test_a_server_of_the_older_transport_works(web: HostileHttp, open_manager: Beside) -> None:
    async with open_manager(web("good", era="sse")) as manager:
        texts = [str(number) for number in range(10)]
        results = await asyncio.gather(*(call_tool(manager, "bad", "echo", {"text": text}) for text in texts))
        assert [text_of(result) for result in results] == texts
        assert manager.status("bad").protocol_version == "2025-06-18"


async def test_a_server_of_the_older_transport_is_found_by_its_plain_address_and_remembered(
    web: HostileHttp, open_manager: Beside
) -> None:
    async with open_manager(Server("bad", HttpSpec(web.url("good", era="sse")))) as manager:
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "x"})) == "x"
        request_count = len(web.seen())
        await manager.restart("bad")
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "y"})) == "y"
    begin = [entry for entry in web.seen()[request_count:] if "verb" in entry]
    assert (begin[0]["verb"], begin[1]["message"]["method"]) == ("GET", "initialize")


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("http://localhost:PORT/good/x?era=sse", "sent an endpoint URL of another origin: http://localhost:"),
        ("https://127.0.0.1:PORT/", "sent an endpoint URL of another origin: https://127.0.0.1:"),
        ("//example.com/", "sent an endpoint URL of another origin: http://example.com/"),
        ("http://[::1", "sent an endpoint that is not a valid URL: http://[::1"),
        ("mailto:someone", "sent an endpoint"),
    ],
)
async def test_an_endpoint_elsewhere_is_refused(
    to: str, words: str, web: HostileHttp, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    async with open_manager(web("endpoint", era="sse", when="always", to=to)) as manager:
        with max_duration(2), pytest.raises(BadAnswer) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, words)
        assert_cause(manager.status("bad"), words)
    assert {entry["verb"] for entry in web.seen() if "verb" in entry} == {"GET"}


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("no-endpoint", "did not answer within 1 s"),
        ("stream-ends-at-once", "ended its event stream"),
        ("status-500", "answered with HTTP 500 Internal Server Error: the tea is cold"),
        ("html", "answered with text/html instead of an event stream"),
        ("stalls", "did not answer within 1 s"),
        ("sse-oversize", "over the limit of 1000000"),
        ("resets-event", "in the middle of its response"),
        ("sse-without-end", "did not answer within 1 s"),
    ],
)
async def test_a_stream_that_never_names_its_endpoint_is_given_up(
    mode: str,
    words: str,
    web: HostileHttp,
    short: Timeouts,
    open_manager: Beside,
    max_duration: Within,
    assert_cause: Says,
) -> None:
    keys = {"timeouts": short} if "did not answer" in words else {}
    async with open_manager(
        web(mode, keys=keys, era="sse", when="always"), message_limit=1_000_000
    ) as manager:
        with max_duration(3), pytest.raises((Unreachable, BadAnswer)) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, words)


@both_loops
async def test_a_stream_that_ends_leaves_outcomes_unknown_and_the_next_call_reconnects(
    web: HostileHttp, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    async with open_manager(web("stream-ends", era="sse")) as manager:
        with max_duration(2), pytest.raises(OutcomeUnknown) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, "ended its event stream")
        status = manager.status("bad")
        assert status.state is State.IDLE
        assert_cause(status, "ended its event stream")
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "again"})) == "again"


async def test_a_repeatable_call_survives_the_end_of_the_stream(
    web: HostileHttp, open_manager: Beside
) -> None:
    async with open_manager(web("stream-ends", era="sse")) as manager:
        result = await call_tool(manager, "bad", "echo", {"text": "again"}, repeatable=True)
        assert text_of(result) == "again"
