"""Request bodies: read whole, within a size, a time and the memory that all of them may hold."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping

from starlette.types import Message, Receive, Scope

from toolyard.config.settings.table import Settings
from toolyard.web.access.request_context import passage_of
from toolyard.web.middleware.refusals import Refusal

__all__ = [
    "BodyMemory",
    "BodyRefused",
    "Gone",
    "RequestBodies",
    "RequestBody",
    "has_body",
    "is_open_form",
    "limit_for",
]

_OPEN_FORM_BYTES = 64 * 1024
"""Forms that anybody may send: names and passwords."""
_FORM_BYTES = 1024 * 1024
_CHAT_BYTES = 2 * 1024 * 1024
"""A message of 200,000 characters, which is what the page takes, whatever they are: of Chinese, each is nine
bytes in a form."""
_API_BYTES = 8 * 1024 * 1024
"""Arguments of a tool may hold a file."""
_BODY_SECONDS = 60.0
_UNKNOWN_BYTES_PER_ADDRESS = 1024 * 1024
_UNKNOWN_BYTES = 16 * 1024 * 1024
"""Open forms on their way at one time. They are counted apart, so that they take nothing from known users."""
_RETRY_SECONDS = 1
_MAX_VALUES = 200_000
"""Values in a body of JSON. To read millions of them takes seconds, in which nobody else is served."""
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""A text of JSON, or what is left where it does not end."""


class BodyRefused(Exception):
    """Raised for a body that is too long, too slow or too much at this time; carries the response."""

    def __init__(self, refusal: Refusal, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal
        self.headers = headers


class Gone(Exception):
    """Raised when the client leaves before the end of its body."""


def is_open_form(path: str) -> bool:
    """Return whether anybody may send a form to this path."""
    return path == "/ui/sign-in" or path.startswith("/ui/invite/")


def limit_for(path: str) -> int:
    """Return how many bytes a request to this path may bring."""
    if path.startswith(("/api/", "/mcp")):
        return _API_BYTES
    if is_open_form(path):
        return _OPEN_FORM_BYTES
    return _CHAT_BYTES if path.startswith("/ui/chat") else _FORM_BYTES


def has_body(scope: Scope) -> bool:
    """Return whether a request announces a body."""
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 ")):
            return True
    return False


class BodyMemory:
    """Counts the bytes of bodies that are held at one time: of each owner, and in all."""

    def __init__(self, per_owner: int, total: int) -> None:
        self._per_owner = per_owner
        self._total = total
        self._owners: Counter[str] = Counter()
        self.held = 0

    def take(self, owner: str, count: int) -> None:
        """Count bytes that were read. Raises BodyRefused where they are too many, and counts nothing."""
        if self._owners[owner] + count > self._per_owner:
            raise _busy(f"the requests of this account hold {self._per_owner:,} bytes at one time at most")
        if self.held + count > self._total:
            raise _busy(f"requests hold {self._total:,} bytes at one time at most, of everyone together")
        self._owners[owner] += count
        self.held += count

    def release(self, owner: str, count: int) -> None:
        """Bytes that were counted are held no more."""
        self.held -= count
        self._owners[owner] -= count
        if not self._owners[owner]:
            del self._owners[owner]


class RequestBodies:
    """The bodies of all requests of a process."""

    def __init__(
        self,
        settings: Settings,
        *,
        seconds: float = _BODY_SECONDS,
        unknown_per_address: int = _UNKNOWN_BYTES_PER_ADDRESS,
        unknown_total: int = _UNKNOWN_BYTES,
    ) -> None:
        """``seconds`` is how long a body may take to arrive. ``unknown_…`` bound the open forms."""
        self.seconds = seconds
        self.known = BodyMemory(settings.request_memory_per_person, settings.request_memory)
        self.unknown = BodyMemory(unknown_per_address, unknown_total)


class RequestBody:
    """The body of one request. ``release`` must be called when the request has ended."""

    def __init__(self, bodies: RequestBodies, scope: Scope, receive: Receive) -> None:
        self._bodies = bodies
        self._scope = scope
        self._receive = receive
        self._waiting: Message | None = None
        self._begun = False
        self._taken: tuple[BodyMemory, str, int] | None = None

    async def receive(self) -> Message:
        """Return the whole body as the first message, reading it if need be; then what else there is.

        Raises BodyRefused or Gone. A request whose head has not proved whose it is may bring no more than an
        open form.
        """
        if not self._begun:
            await self.read()
        message, self._waiting = self._waiting, None
        return message or await self._receive()

    async def read(self) -> None:
        """Read the body to its end. Raises BodyRefused or Gone."""
        self._begun = True
        passage, path = passage_of(self._scope), self._scope["path"]
        if passage.owner is None:
            memory, owner, limit = self._bodies.unknown, passage.address, _OPEN_FORM_BYTES
        else:
            memory, owner, limit = self._bodies.known, passage.owner, limit_for(path)

        def take(count: int) -> None:
            memory.take(owner, count)
            before = 0 if self._taken is None else self._taken[2]
            self._taken = (memory, owner, before + count)

        seconds = self._bodies.seconds
        try:
            # The HTTP server waits for ever for a body that never comes.
            async with asyncio.timeout(seconds):
                body = await _read(self._scope, self._receive, limit, take)
        except TimeoutError:
            raise _late(seconds) from None
        if limit == _API_BYTES and _has_too_many_values(body):
            raise _too_many_values()
        self._waiting = {"type": "http.request", "body": body, "more_body": False}

    def release(self) -> None:
        """The body is held no more."""
        if self._taken is not None:
            memory, owner, count = self._taken
            memory.release(owner, count)
            self._taken = None


async def _read(scope: Scope, receive: Receive, limit: int, take: Callable[[int], None]) -> bytes:
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if declared.isdigit() and int(declared) > limit:
        raise _too_long(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Gone
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_long(limit)
        take(len(part))
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _has_too_many_values(body: bytes) -> bool:
    """Each value in a list or object but the first has a comma before it, and each of these begins with its
    bracket. In texts they mean nothing; so texts are left out, unless they are too many themselves."""
    if len(body) <= _MAX_VALUES or _marks(body) <= _MAX_VALUES:
        return False
    quotes = body.count(b'"') - body.count(b'\\"')
    return quotes > 4 * _MAX_VALUES or _marks(_TEXT.sub(b"", body)) > _MAX_VALUES


def _marks(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


# Refusals. Where the rest of a body is not read, nothing else can come over the connection.


def _too_long(limit: int) -> BodyRefused:
    detail = f"a request to this address brings at most {limit:,} bytes"
    refusal = Refusal(413, "too-long", "The request is too long", detail, "send less at once")
    return BodyRefused(refusal, {"Connection": "close"})


def _too_many_values() -> BodyRefused:
    detail = f"a request holds at most {_MAX_VALUES:,} values, counted through all lists and objects"
    hint = "send less at once, or many small values as one text"
    return BodyRefused(Refusal(413, "too-many-values", "The request holds too many values", detail, hint))


def _late(seconds: float) -> BodyRefused:
    detail = f"the body of the request did not arrive within {seconds:g} s"
    refusal = Refusal(408, "late", "The request took too long", detail, "try again")
    return BodyRefused(refusal, {"Connection": "close"})


def _busy(detail: str) -> BodyRefused:
    hint = "wait until other requests have been answered, and try again"
    refusal = Refusal(503, "busy", "Too much is being sent at once", detail, hint)
    return BodyRefused(refusal, {"Retry-After": str(_RETRY_SECONDS)})
