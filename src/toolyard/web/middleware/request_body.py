"""Request bodies: read whole, within a size, a time and the memory that all of them may hold."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping

from starlette.types import Message, Receive, Scope

from toolyard.config.settings.table import Settings
from toolyard.web.access.request_context import get_request_context
from toolyard.web.middleware.refusals import RequestRefusal

__all__ = [
    "BodyMemory",
    "BodyRefused",
    "ClientDisconnected",
    "RequestBody",
    "RequestBodyLimits",
    "get_body_limit",
    "has_body",
    "is_public_form",
]

_MAX_PUBLIC_FORM_BYTES = 64 * 1024
"""Forms that anybody may send: names and passwords."""
_MAX_FORM_BYTES = 1024 * 1024
_MAX_CHAT_FORM_BYTES = 2 * 1024 * 1024
"""A message of 200,000 characters, which is what the page takes, whatever they are: of Chinese, each is nine
bytes in a form."""
_MAX_API_BYTES = 8 * 1024 * 1024
"""Arguments of a tool may hold a file."""
_BODY_TIMEOUT_SECONDS = 60.0
_MAX_ANONYMOUS_BYTES_PER_ADDRESS = 1024 * 1024
_MAX_ANONYMOUS_BYTES = 16 * 1024 * 1024
"""Open forms on their way at one time. They are counted apart, so that they take nothing from known users."""
_RETRY_AFTER_SECONDS = 1
_MAX_JSON_VALUES = 200_000
"""Values in a body of JSON. To read millions of them takes seconds, in which nobody else is served."""
_JSON_STRING_PATTERN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""A text of JSON, or what is left where it does not end."""


class BodyRefused(Exception):
    """Raised for a body that is too long, too slow or too much at this time; carries the response."""

    def __init__(self, refusal: RequestRefusal, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal
        self.headers = headers


class ClientDisconnected(Exception):
    """Raised when the client leaves before the end of its body."""


def is_public_form(path: str) -> bool:
    """Return whether anybody may send a form to this path."""
    return path == "/ui/sign-in" or path.startswith("/ui/invite/")


def get_body_limit(path: str) -> int:
    """Return how many bytes a request to this path may bring."""
    if path.startswith(("/api/", "/mcp")):
        return _MAX_API_BYTES
    if is_public_form(path):
        return _MAX_PUBLIC_FORM_BYTES
    return _MAX_CHAT_FORM_BYTES if path.startswith("/ui/chat") else _MAX_FORM_BYTES


def has_body(scope: Scope) -> bool:
    """Return whether a request announces a body."""
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 ")):
            return True
    return False


class BodyMemory:
    """Counts the bytes of bodies that are held at one time: of each owner, and in all."""

    def __init__(self, max_bytes_per_owner: int, max_bytes: int) -> None:
        self._max_bytes_per_owner = max_bytes_per_owner
        self._max_bytes = max_bytes
        self._bytes_by_owner: Counter[str] = Counter()
        self.held_bytes = 0

    def reserve(self, owner: str, count: int) -> None:
        """Count bytes that were read. Raises BodyRefused where they are too many, and counts nothing."""
        if self._bytes_by_owner[owner] + count > self._max_bytes_per_owner:
            raise _build_busy_error(
                f"the requests of this account hold {self._max_bytes_per_owner:,} bytes at one time at most"
            )
        if self.held_bytes + count > self._max_bytes:
            raise _build_busy_error(
                f"requests hold {self._max_bytes:,} bytes at one time at most, of everyone together"
            )
        self._bytes_by_owner[owner] += count
        self.held_bytes += count

    def release(self, owner: str, count: int) -> None:
        """Bytes that were counted are held no more."""
        self.held_bytes -= count
        self._bytes_by_owner[owner] -= count
        if not self._bytes_by_owner[owner]:
            del self._bytes_by_owner[owner]


class RequestBodyLimits:
    """The bodies of all requests of a process."""

    def __init__(
        self,
        settings: Settings,
        *,
        timeout_seconds: float = _BODY_TIMEOUT_SECONDS,
        anonymous_bytes_per_address: int = _MAX_ANONYMOUS_BYTES_PER_ADDRESS,
        anonymous_bytes: int = _MAX_ANONYMOUS_BYTES,
    ) -> None:
        """``seconds`` is how long a body may take to arrive. ``unknown_…`` bound the open forms."""
        self.seconds = timeout_seconds
        self.user_memory = BodyMemory(settings.request_memory_per_person, settings.request_memory)
        self.anonymous_memory = BodyMemory(anonymous_bytes_per_address, anonymous_bytes)


class RequestBody:
    """The body of one request. ``release`` must be called when the request has ended."""

    def __init__(self, body_limits: RequestBodyLimits, scope: Scope, receive: Receive) -> None:
        self._limits = body_limits
        self._scope = scope
        self._receive = receive
        self._pending_message: Message | None = None
        self._is_read_started = False
        self._reservation: tuple[BodyMemory, str, int] | None = None

    async def receive(self) -> Message:
        """Return the whole body as the first message, reading it if need be; then what else there is.

        Raises BodyRefused or Gone. A request whose head has not proved whose it is may bring no more than an
        open form.
        """
        if not self._is_read_started:
            await self.read()
        message, self._pending_message = self._pending_message, None
        return message or await self._receive()

    async def read(self) -> None:
        """Read the body to its end. Raises BodyRefused or Gone."""
        self._is_read_started = True
        passage, path = get_request_context(self._scope), self._scope["path"]
        if passage.user_id is None:
            memory, owner, limit = self._limits.anonymous_memory, passage.address, _MAX_PUBLIC_FORM_BYTES
        else:
            memory, owner, limit = self._limits.user_memory, passage.user_id, get_body_limit(path)

        def reserve_bytes(count: int) -> None:
            memory.reserve(owner, count)
            before = 0 if self._reservation is None else self._reservation[2]
            self._reservation = (memory, owner, before + count)

        seconds = self._limits.seconds
        try:
            # The HTTP server waits for ever for a body that never comes.
            async with asyncio.timeout(seconds):
                body = await _read_body(self._scope, self._receive, limit, reserve_bytes)
        except TimeoutError:
            raise _build_timeout_error(seconds) from None
        if limit == _MAX_API_BYTES and _has_too_many_values(body):
            raise _build_too_many_values_error()
        self._pending_message = {"type": "http.request", "body": body, "more_body": False}

    def release(self) -> None:
        """The body is held no more."""
        if self._reservation is not None:
            memory, owner, count = self._reservation
            memory.release(owner, count)
            self._reservation = None


async def _read_body(
    scope: Scope, receive: Receive, limit: int, reserve_bytes: Callable[[int], None]
) -> bytes:
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if declared.isdigit() and int(declared) > limit:
        raise _build_too_long_error(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnected
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _build_too_long_error(limit)
        reserve_bytes(len(part))
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _has_too_many_values(body: bytes) -> bool:
    """Each value in a list or object but the first has a comma before it, and each of these begins with its
    bracket. In texts they mean nothing; so texts are left out, unless they are too many themselves."""
    if len(body) <= _MAX_JSON_VALUES or _count_value_marks(body) <= _MAX_JSON_VALUES:
        return False
    quotes = body.count(b'"') - body.count(b'\\"')
    return (
        quotes > 4 * _MAX_JSON_VALUES
        or _count_value_marks(_JSON_STRING_PATTERN.sub(b"", body)) > _MAX_JSON_VALUES
    )


def _count_value_marks(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


# Refusals. Where the rest of a body is not read, nothing else can come over the connection.


def _build_too_long_error(limit: int) -> BodyRefused:
    detail = f"a request to this address brings at most {limit:,} bytes"
    refusal = RequestRefusal(413, "too-long", "The request is too long", detail, "send less at once")
    return BodyRefused(refusal, {"Connection": "close"})


def _build_too_many_values_error() -> BodyRefused:
    detail = f"a request holds at most {_MAX_JSON_VALUES:,} values, counted through all lists and objects"
    hint = "send less at once, or many small values as one text"
    return BodyRefused(
        RequestRefusal(413, "too-many-values", "The request holds too many values", detail, hint)
    )


def _build_timeout_error(seconds: float) -> BodyRefused:
    detail = f"the body of the request did not arrive within {seconds:g} s"
    refusal = RequestRefusal(408, "late", "The request took too long", detail, "try again")
    return BodyRefused(refusal, {"Connection": "close"})


def _build_busy_error(detail: str) -> BodyRefused:
    hint = "wait until other requests have been answered, and try again"
    refusal = RequestRefusal(503, "busy", "Too much is being sent at once", detail, hint)
    return BodyRefused(refusal, {"Retry-After": str(_RETRY_AFTER_SECONDS)})
