"""The body of a request, whole before anybody looks at it: not too long, and not for ever on its way."""

from __future__ import annotations

import asyncio
import re

from starlette.types import Message, Receive, Scope

__all__ = ["MOST_VALUES", "BodyLate", "BodyTooLong", "BodyTooMany", "Gone", "has_body", "limit_for", "whole"]

_STRANGER = 64 * 1024
"""Where anybody may send a form: names and passwords."""
_FORM = 1024 * 1024
_CHAT = 2 * 1024 * 1024
"""A message of 200,000 characters, which is what the page takes, whatever they are: of Chinese, each is nine
bytes in a form."""
_API = 8 * 1024 * 1024
"""Arguments of a tool may hold a file."""
MOST_VALUES = 200_000
"""Values in a body of JSON. To read millions of them takes seconds, in which nobody else is served."""
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""A text of JSON, or what is left where it does not end."""


class BodyTooLong(Exception):
    """There is more than may come."""


class BodyTooMany(Exception):
    """There are more values in it than may come."""


class BodyLate(Exception):
    """It did not arrive in time."""


class Gone(Exception):
    """Whoever sent it left before its end."""


def limit_for(path: str) -> int:
    """Bytes that a request to this path may bring."""
    if path.startswith(("/api/", "/mcp")):
        return _API
    if path.startswith(("/ui/sign-in", "/ui/invite/")):
        return _STRANGER
    return _CHAT if path.startswith("/ui/chat") else _FORM


def has_body(scope: Scope) -> bool:
    """Whether a request says that it brings something."""
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 ")):
            return True
    return False


async def whole(scope: Scope, receive: Receive, limit: int, seconds: float) -> Receive:
    """Read the body to its end, and hand it on as one message. Raises BodyTooLong, BodyTooMany, BodyLate or
    Gone.

    The server in front of us waits for ever for a body that never comes, so the clock is here.
    """
    said = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if said.isdigit() and int(said) > limit:
        raise BodyTooLong
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise Gone
                body += message.get("body", b"")
                if len(body) > limit:
                    raise BodyTooLong
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise BodyLate from None
    if limit == _API and _too_many(body):
        raise BodyTooMany
    waiting: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _too_many(body: bytearray) -> bool:
    """Each value in a list or object but the first has a comma before it, and each of these begins with its
    bracket. In texts they mean nothing; so texts are left out, unless they are too many themselves."""
    if len(body) <= MOST_VALUES or _marks(body) <= MOST_VALUES:
        return False
    quotes = body.count(b'"') - body.count(b'\\"')
    return quotes > 4 * MOST_VALUES or _marks(_TEXT.sub(b"", body)) > MOST_VALUES


def _marks(body: bytes | bytearray) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")
