"""Reading of request bodies, limited in size, in time, and in the memory held by all of them.

Attachments of chats are not held in memory, but passed on as they arrive.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

from starlette.formparsers import MultiPartParser
from starlette.types import Message, Receive, Scope

from toolyard.config.settings.table import Settings
from toolyard.web.access.request_context import BODY_ARRIVED_KEY, REQUEST_CONTEXT_KEY, RequestContext
from toolyard.web.problem_details import ProblemDetails, build_problem

__all__ = [
    "BODY_TIMEOUT_SECONDS",
    "MAX_API_BYTES",
    "MAX_FORM_FIELDS",
    "UPLOAD_PATH",
    "BodyMemory",
    "BodyRefused",
    "ClientDisconnected",
    "RequestBody",
    "RequestBodyLimits",
    "StreamedBody",
    "get_body_limit",
    "get_file_limit",
    "has_body",
    "has_too_many_values",
    "is_public_form",
]

_MAX_PUBLIC_FORM_BYTES = 64 * 1024
"""Limit for forms without authentication, which hold names and passwords."""
_MAX_FORM_BYTES = 1024 * 1024
_MAX_CHAT_FORM_BYTES = 2 * 1024 * 1024
"""Limit for chat forms: a message of 200,000 characters, the maximum of the page, in any script. A Chinese
character takes nine bytes in a form."""
_MAX_TOOL_FORM_BYTES = 3 * 1024 * 1024
"""Limit for the tool selection of an instance: 10,000 names of up to 256 characters."""
MAX_FORM_FIELDS = 10_500
"""Limit of fields in a form. The tool selection has a field for each of up to 10,000 tools."""
UPLOAD_PATH = "/api/v1/attachments"
"""Path to which the bytes of an attachment are sent."""
_CHAT_PATH = "/ui/chat"
_MAX_FORM_FILES = 100
"""Limit of files in a chat form. It is the highest number that a setting allows for one message."""
_UPLOAD_SECONDS = 600.0
"""Time limit of a whole upload. Pauses in it have the limit of other bodies."""
_UPLOAD_MEMORY_BYTES = 1024 * 1024
"""Memory counted for an attachment: the chunk that is stored."""
_UPLOAD_FORM_MEMORY_BYTES = 4 * 1024 * 1024
"""Memory counted for a form with files: its texts, and the beginnings of the files."""
_FORM_SPOOL_BYTES = 16 * 1024
"""Part of each file of a form that is held in memory. The rest is in a temporary file without a name."""
MAX_API_BYTES = 8 * 1024 * 1024
"""Limit for the API and the gateway. Tool arguments may contain a file."""
BODY_TIMEOUT_SECONDS = 60.0
_MAX_ANONYMOUS_BYTES_PER_ADDRESS = 1024 * 1024
_MAX_ANONYMOUS_BYTES = 16 * 1024 * 1024
"""Limit for public forms in transit, counted apart so that they do not use up the memory of users."""
_RETRY_AFTER_SECONDS = 1
_MAX_JSON_VALUES = 200_000
"""Maximum number of values in a JSON body. Parsing millions would block the event loop for seconds."""
_LONG_NUMBER_DIGITS = 100
"""A run of so many digits counts as 100 values, because the time to parse an integer grows quadratically."""
_LONG_NUMBER = b"0" * _LONG_NUMBER_DIGITS
_DIGIT_MASK_TABLE = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))


class BodyRefused(Exception):
    """Raised for a body that is too long, too slow, or over the memory limit; carries the response."""

    def __init__(self, problem: ProblemDetails, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.headers = headers


class ClientDisconnected(Exception):
    """Raised when the client disconnects before the end of its body."""


def is_public_form(path: str) -> bool:
    """Return True for paths that accept a form without authentication."""
    return path == "/ui/sign-in" or path.startswith("/ui/invite/")


def get_body_limit(path: str) -> int:
    """Return the maximum body size for a path, in bytes."""
    if path.startswith(("/api/", "/mcp")):
        return MAX_API_BYTES
    if path.startswith(_CHAT_PATH):
        return _MAX_CHAT_FORM_BYTES
    if is_public_form(path):
        return _MAX_PUBLIC_FORM_BYTES
    return _MAX_TOOL_FORM_BYTES if path.startswith(("/ui/mcp/", "/ui/agents")) else _MAX_FORM_BYTES


def get_file_limit(path: str) -> int:
    """Return the maximum number of files in a form sent to a path."""
    return _MAX_FORM_FILES if path.startswith(_CHAT_PATH) else 0


def has_body(scope: Scope) -> bool:
    """Return True if the headers announce a body."""
    headers: dict[str, str] = scope[REQUEST_CONTEXT_KEY].headers
    # "Content-Length: 0" announces no body.
    return "transfer-encoding" in headers or bool(headers.get("content-length", "").strip("0 "))


class BodyMemory:
    """Accounts for the bytes of bodies held in memory, per owner and in total."""

    def __init__(self, max_bytes_per_owner: int, max_bytes: int) -> None:
        self._max_bytes_per_owner = max_bytes_per_owner
        self._max_bytes = max_bytes
        self._bytes_by_owner: Counter[str] = Counter()
        self.held_bytes = 0

    def reserve(self, owner: str, count: int) -> None:
        """Count bytes that were read. Raises BodyRefused, without counting them, beyond a limit."""
        if self._bytes_by_owner[owner] + count > self._max_bytes_per_owner:
            raise _build_busy_error(
                f"your requests in progress exceed {self._max_bytes_per_owner:,} bytes in total"
            )
        if self.held_bytes + count > self._max_bytes:
            raise _build_busy_error(f"all requests in progress exceed {self._max_bytes:,} bytes in total")
        self._bytes_by_owner[owner] += count
        self.held_bytes += count

    def release(self, owner: str, count: int) -> None:
        """Stop counting bytes that are no longer held."""
        self.held_bytes -= count
        self._bytes_by_owner[owner] -= count
        if not self._bytes_by_owner[owner]:
            del self._bytes_by_owner[owner]


class RequestBodyLimits:
    """Limits shared by all request bodies of a process."""

    def __init__(
        self,
        settings: Settings,
        *,
        timeout_seconds: float = BODY_TIMEOUT_SECONDS,
        anonymous_bytes_per_address: int = _MAX_ANONYMOUS_BYTES_PER_ADDRESS,
        anonymous_bytes: int = _MAX_ANONYMOUS_BYTES,
    ) -> None:
        """``timeout_seconds`` limits the arrival of a body; ``anonymous_…`` limit public forms."""
        self.timeout_seconds = timeout_seconds
        MultiPartParser.spool_max_size = _FORM_SPOOL_BYTES
        self.user_memory = BodyMemory(settings.request_memory_per_person, settings.request_memory)
        self.anonymous_memory = BodyMemory(anonymous_bytes_per_address, anonymous_bytes)
        self._upload_bytes = settings.attachment_bytes
        self._upload_form_bytes = (
            settings.attachment_bytes * settings.attachments_per_message + _MAX_CHAT_FORM_BYTES
        )
        self.form_files = BodyMemory(
            self._upload_form_bytes, max(self._upload_form_bytes, settings.request_memory)
        )
        """Bytes in temporary files, whose quota is checked only when the form is complete."""

    def get_upload_limit(self, scope: Scope) -> int | None:
        """Return the maximum size of a body that is passed on as it arrives; None for all others."""
        if scope["method"] != "POST":
            return None
        if scope["path"] == UPLOAD_PATH:
            return self._upload_bytes
        content_type: str = scope[REQUEST_CONTEXT_KEY].headers.get("content-type", "")
        is_form = content_type.startswith("multipart/form-data")
        return self._upload_form_bytes if is_form and get_file_limit(scope["path"]) else None


class StreamedBody:
    """The body of an upload. The caller must call ``release`` at the end of the request."""

    def __init__(self, body_limits: RequestBodyLimits, scope: Scope, receive: Receive, limit: int) -> None:
        self._limits = body_limits
        self._scope = scope
        self._receive = receive
        self._remaining_bytes = limit
        self._limit = limit
        self._is_form = scope["path"] != UPLOAD_PATH
        self._memory_bytes = _UPLOAD_FORM_MEMORY_BYTES if self._is_form else _UPLOAD_MEMORY_BYTES
        self._file_bytes = 0
        self._owner: str | None = None
        self._ends_at = 0.0
        self._is_complete = False

    async def read(self) -> None:
        """Check the head of the request. Raises BodyRefused."""
        context: RequestContext = self._scope[REQUEST_CONTEXT_KEY]
        _check_declared_length(context, self._limit)
        owner = context.user_id or ""
        self._limits.user_memory.reserve(owner, self._memory_bytes)
        self._owner, self._ends_at = owner, asyncio.get_running_loop().time() + _UPLOAD_SECONDS

    async def receive(self) -> Message:
        """Return the next piece, and the server's own messages after the last one.

        Raises BodyRefused or ClientDisconnected.
        """
        if self._is_complete:
            return await self._receive()
        loop, seconds = asyncio.get_running_loop(), self._limits.timeout_seconds
        try:
            async with asyncio.timeout_at(min(loop.time() + seconds, self._ends_at)):
                message = await self._receive()
        except TimeoutError:
            raise _build_timeout_error(seconds) from None
        if message["type"] != "http.request":
            raise ClientDisconnected
        count = len(message.get("body", b""))
        self._remaining_bytes -= count
        if self._remaining_bytes < 0:
            raise _build_too_long_error(self._limit)
        if self._is_form and self._owner is not None:
            self._limits.form_files.reserve(self._owner, count)
            self._file_bytes += count
        self._is_complete = not message.get("more_body", False)
        return message

    def release(self) -> None:
        """Stop counting the memory and the temporary files of the upload."""
        if self._owner is not None:
            self._limits.user_memory.release(self._owner, self._memory_bytes)
            self._limits.form_files.release(self._owner, self._file_bytes)
            self._owner = None


@dataclass(slots=True, eq=False)
class RequestBody:
    """The body of one request. The caller must call ``release`` at the end of the request."""

    _limits: RequestBodyLimits
    _scope: Scope
    _receive: Receive
    _limit: int
    """Maximum size for an authenticated user, in bytes."""
    _pending_message: Message | None = None
    _reservation: tuple[BodyMemory, str, int] | None = None

    async def receive(self) -> Message:
        """Return the whole body, once it was read, as the first message, and the server's own messages after
        that."""
        message, self._pending_message = self._pending_message, None
        return message or await self._receive()

    async def read(self) -> bytes:
        """Read the body to its end, and return it. Raises BodyRefused or ClientDisconnected.

        A request without an authenticated user is limited to the size of a public form.
        """
        context: RequestContext = self._scope[REQUEST_CONTEXT_KEY]
        if context.user_id is None:
            memory, owner, limit = self._limits.anonymous_memory, context.address, _MAX_PUBLIC_FORM_BYTES
        else:
            memory, owner, limit = self._limits.user_memory, context.user_id, self._limit
        _check_declared_length(context, limit)
        parts: list[bytes] = []
        size, seconds, is_complete = 0, self._limits.timeout_seconds, False
        try:
            # The HTTP server itself has no timeout for bodies. Most arrive together with the head.
            async with nullcontext() if BODY_ARRIVED_KEY in self._scope else asyncio.timeout(seconds):
                while not is_complete:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        raise ClientDisconnected
                    part: bytes = message.get("body", b"")
                    if size + len(part) > limit:
                        raise _build_too_long_error(limit)
                    # Counted as it arrives and not by the declared length: a client that announces much and
                    # sends nothing would otherwise use up the memory of its user.
                    memory.reserve(owner, len(part))
                    size += len(part)
                    self._reservation = (memory, owner, size)
                    parts.append(part)
                    is_complete = not message.get("more_body", False)
        except TimeoutError:
            raise _build_timeout_error(seconds) from None
        body = b"".join(parts)
        if limit == MAX_API_BYTES and len(body) > _MAX_JSON_VALUES and has_too_many_values(body):
            raise _build_too_many_values_error()
        self._pending_message = {"type": "http.request", "body": body, "more_body": False}
        return body

    def release(self) -> None:
        """Stop counting the bytes of the body."""
        if self._reservation is not None:
            memory, owner, count = self._reservation
            memory.release(owner, count)
            self._reservation = None


def _check_declared_length(context: RequestContext, limit: int) -> None:
    """Refuse by the declared length at once; a body without one is counted while it is read."""
    declared = context.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _build_too_long_error(limit)


def has_too_many_values(body: bytes) -> bool:
    """Estimate, without parsing, whether a JSON body exceeds the number of values.

    Each value follows a comma or an opening bracket, so these are counted. Inside strings they have no
    meaning: if the first count is too high, it is repeated without strings, unless there are too many strings
    already.
    """
    if _count_value_marks(body) <= _MAX_JSON_VALUES:
        return False
    # Without escapes, every second part between quotes is outside of strings. A regular expression over the
    # whole body would be much slower.
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
    return (
        unescaped.count(b'"') > 4 * _MAX_JSON_VALUES
        or _count_value_marks(b" ".join(unescaped.split(b'"')[::2])) > _MAX_JSON_VALUES
    )


def _count_value_marks(body: bytes) -> int:
    long_numbers = body.translate(_DIGIT_MASK_TABLE).count(_LONG_NUMBER)
    return body.count(b",") + body.count(b"[") + body.count(b"{") + long_numbers * _LONG_NUMBER_DIGITS


# Refusals. If the rest of a body is not read, the connection cannot be reused and must be closed.


def _build_too_long_error(limit: int) -> BodyRefused:
    detail = f"the body of a request to this address may have at most {limit:,} bytes"
    problem = build_problem(413, "too-long", "The request is too long", detail, "send less data at once")
    return BodyRefused(problem, {"Connection": "close"})


def _build_too_many_values_error() -> BodyRefused:
    detail = (
        f"a request may contain at most {_MAX_JSON_VALUES:,} values in all its lists and objects, where each"
        f" {_LONG_NUMBER_DIGITS} digits of a number count as {_LONG_NUMBER_DIGITS}"
    )
    hint = "send less data at once, or join many small values in one string"
    return BodyRefused(
        build_problem(413, "too-many-values", "The request contains too many values", detail, hint)
    )


def _build_timeout_error(seconds: float) -> BodyRefused:
    detail = f"the body of the request did not arrive within {seconds:g} s"
    problem = build_problem(408, "late", "The request took too long", detail, "try again")
    return BodyRefused(problem, {"Connection": "close"})


def _build_busy_error(detail: str) -> BodyRefused:
    hint = "try again when other requests have completed"
    problem = build_problem(503, "busy", "Too much data is being sent at once", detail, hint)
    return BodyRefused(problem, {"Retry-After": str(_RETRY_AFTER_SECONDS)})
