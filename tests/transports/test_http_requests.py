"""One HTTP request: credentials, words of servers in our sentences, and known ways to lose a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from toolyard.auth.provider import Challenge
from toolyard.errors import HttpStatus, OutcomeUnknown, Unreachable
from toolyard.net import OutboundHttp
from toolyard.transports.http_requests import (
    ServerHttpClient,
    is_session_lost_message,
    is_session_lost_status,
    translate_request_error,
)
from toolyard.transports.transport import LogTail, to_single_line
from toolyard.types.server import HttpSpec


class Keys:
    """Has a number of keys, of which the last one opens."""

    def __init__(self, *keys: str) -> None:
        self.keys = list(keys)
        self.challenges: list[Challenge] = []

    async def headers(self) -> Mapping[str, str]:
        return {"Authorization": self.keys[0]}

    async def challenged(self, challenge: Challenge) -> bool:
        self.challenges.append(challenge)
        if len(self.keys) > 1:
            self.keys.pop(0)
            return True
        return False


@pytest.mark.parametrize(
    ("keys", "status", "header_lines"),
    [
        (["right"], 200, ["right"]),
        (["old", "right"], 200, ["old", "right"]),
        (["old", "older", "right"], 200, ["old", "older", "right"]),
        (["old", "older", "oldest", "right"], 401, ["old", "older", "oldest"]),
        (["old"], 401, ["old"]),
    ],
)
async def test_refused_credentials_are_renewed_at_most_twice_and_nothing_is_sent_in_vain(
    keys: list[str],
    status: int,
    header_lines: list[str],
    url: Callable[..., str],
    net: OutboundHttp,
    list_requests: Callable[[], Any],
) -> None:
    auth = Keys(*keys)
    address = url("wants-the-right-key", when="always")
    requests = ServerHttpClient(
        HttpSpec(address, headers={"Authorization": "configured", "X-More": "yes"}), net, auth
    )
    response = await requests.send("POST", requests.url, {"Content-Type": "application/json"}, b"{}")
    assert response.status == status
    response.close()
    assert [entry["headers"]["authorization"] for entry in list_requests()] == header_lines
    assert {entry["headers"]["x-more"] for entry in list_requests()} == {"yes"}
    for challenge in auth.challenges:
        assert challenge.params == {"realm": "tea", "resource_metadata": 'http://tea/"here'}


async def test_a_guarded_request_does_not_reach_a_private_address(
    url: Callable[..., str], net: OutboundHttp, list_requests: Callable[[], Any]
) -> None:
    requests = ServerHttpClient(HttpSpec(url("good")), net, None, guarded=True)
    with pytest.raises(Unreachable, match="its address is private"):
        await requests.send("POST", requests.url, {}, b"{}")
    assert list_requests() == []


async def test_no_cookie_is_kept(
    url: Callable[..., str], net: OutboundHttp, list_requests: Callable[[], Any]
) -> None:
    requests = ServerHttpClient(HttpSpec(url("sets-cookie", when="always")), net, None)
    for _ in range(2):
        (await requests.send("POST", requests.url, {}, b"{}")).close()
    assert ["cookie" in entry["headers"] for entry in list_requests()] == [False, False]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (aiohttp.ServerDisconnectedError(), OutcomeUnknown, "closed the connection before it answered"),
        (aiohttp.ClientPayloadError("x"), OutcomeUnknown, "in the middle of its response"),
        (aiohttp.InvalidURL("x"), Unreachable, "the request cannot be made"),
        (ValueError("a\nb"), Unreachable, "the request cannot be made: a b"),
        (ConnectionResetError(104, "x"), OutcomeUnknown, "was lost: Connection reset by peer"),
        (
            aiohttp.ClientConnectionResetError("closing\ntransport"),
            OutcomeUnknown,
            "was lost: closing transport",
        ),
        (OSError(), OutcomeUnknown, "was lost: OSError"),
    ],
)
async def test_each_fault_says_whether_the_server_may_have_seen_the_request(
    error: Exception, kind: type[Exception], words: str
) -> None:
    transport_error = translate_request_error(error, URL("http://host:80/mcp"))
    assert type(transport_error) is kind
    assert words in transport_error.cause


LOST_SESSION_ERRORS = [
    (-32001, "Session not found"),
    (-32000, "Bad Request: No valid session ID provided"),
    (-32600, "Session terminated"),
    (-32600, "Invalid session ID"),
    (-32000, "Session with given ID not found"),
    (-32002, "Server not initialized"),
    (-32000, "Bad Request: Server not initialized"),
    (-32001, "session expired"),
    (-32001, "Unknown session"),
]
KEPT_SESSION_ERRORS = [
    (-32602, "Session not found"),
    (-32000, "No such tool"),
    (-32000, "the database is closed"),
    (-32001, "Request timed out"),
    (-32600, "obsession"),
    (-32000, "no active session for this project: call open_session first"),
    (-32000, "the browser session is closed"),
]


@pytest.mark.parametrize(("code", "message"), LOST_SESSION_ERRORS)
async def test_known_ways_to_say_that_a_session_is_gone(code: int, message: str) -> None:
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}}
    assert is_session_lost_message(body)
    assert is_session_lost_status(HttpStatus("", status=400, body=message.encode()))
    assert not is_session_lost_status(HttpStatus("", status=500, body=message.encode()))


@pytest.mark.parametrize(("code", "message"), KEPT_SESSION_ERRORS)
async def test_other_errors_do_not_end_a_session(code: int, message: str) -> None:
    assert not is_session_lost_message(
        {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}}
    )


async def test_a_404_with_any_body_ends_a_session() -> None:
    assert is_session_lost_status(HttpStatus("", status=404, body=b"<html>"))
    assert not is_session_lost_status(HttpStatus("", status=400, body=b"x" * 5000 + b"session not found"))
    assert not is_session_lost_message(None)
    assert not is_session_lost_message({"error": "session not found"})


@given(st.text(), st.integers(1, 50))
def test_a_servers_words_stand_in_one_printable_line(words: str, width: int) -> None:
    line = to_single_line(words, width)
    assert len(line) <= width
    assert line.isprintable()
    assert "  " not in line


def test_colours_and_line_breaks_are_taken_out() -> None:
    assert to_single_line("\x1b[1;31mError:\x1b[0m\r\n\tno\x07 tea ") == "Error: no\ufffd tea"


@given(st.lists(st.text(max_size=30)), st.integers(1, 5))
def test_a_ring_keeps_the_last_lines(lines: list[str], limit: int) -> None:
    ring = LogTail(max_lines=limit, max_line_chars=10)
    for line in lines:
        ring.add(line)
    assert ring.lines == [line[:10] for line in lines][-limit:]


async def test_an_address_that_is_none_is_refused_before_anything_is_sent(net: OutboundHttp) -> None:
    with pytest.raises(Unreachable, match="cannot be used") as exc_info:
        ServerHttpClient(HttpSpec("http://me:hunter2@[::1?token=hunter2"), net, None)
    assert "hunter2" not in str(exc_info.value)
