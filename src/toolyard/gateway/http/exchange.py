"""One HTTP request and its response, on plain ASGI.

``ListenRequests`` has the requests that only listen; they end when their caller loses access.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import TracebackType
from typing import Any, Self, TypeAlias

from toolyard.errors import ToolyardError
from toolyard.gateway.http.event_streams import Send
from toolyard.protocol.codec import encode
from toolyard.protocol.constants import INVALID_REQUEST
from toolyard.protocol.jsonrpc import Message, RequestId, RpcFailure, build_failure_message

__all__ = [
    "DisconnectWatcher",
    "HttpExchange",
    "HttpRequestRejected",
    "ListenRequests",
    "Receive",
    "Scope",
    "accepts_media_type",
]


Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
ReadBody: TypeAlias = Callable[[], Awaitable[bytes]]

_DISCONNECT_CHECK_SECONDS = 0.05
"""Delay before the first check whether the client is still connected; most responses are finished earlier."""
_JSON_CONTENT_TYPE = (b"content-type", b"application/json")


class HttpRequestRejected(Exception):
    """Raised for a request that gets no endpoint: HTTP status, message, headers and JSON-RPC error code."""

    def __init__(
        self, status: int, message: str, headers: dict[str, str] | None = None, code: int = INVALID_REQUEST
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.message = message
        self.headers = headers or {}


@dataclass(slots=True, eq=False)
class HttpExchange:
    """One HTTP request and its response."""

    scope: Scope
    headers: Mapping[str, str]
    """Headers by their names in lower case; the values of a repeated one are joined."""
    receive: Receive
    send: Send
    read_body: ReadBody
    """Returns the whole body of the request, which it limits in size and time."""

    async def respond(
        self,
        status: int,
        message: Message | Sequence[Message] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        body = b"" if message is None else encode(message)
        out = [(b"content-length", str(len(body)).encode())]
        if message is not None:
            out.append(_JSON_CONTENT_TYPE)
        out += [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        await self.send({"type": "http.response.start", "status": status, "headers": out})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    async def respond_error(self, status: int, id: RequestId | None, failure: RpcFailure) -> None:
        await self.respond(status, build_failure_message(id, failure))


@dataclass(slots=True, eq=False)
class DisconnectWatcher:
    """Context manager that cancels its body when the client disconnects, and suppresses that cancellation."""

    _receive: Receive
    gone: bool = False
    primed: bool = False
    """Whether the client knows how to resume the stream."""
    writing: asyncio.Future[bool] | None = None
    _watching: asyncio.Task[None] | None = None
    _task: asyncio.Task[Any] | None = None
    _timer: asyncio.TimerHandle = field(init=False)

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(loop)
        # Started late: most requests are answered before, and need no second task.
        self._timer = loop.call_later(_DISCONNECT_CHECK_SECONDS, self._start_watch)
        return self

    def _start_watch(self) -> None:
        self._watching = asyncio.get_running_loop().create_task(self._watch_disconnect())

    async def _watch_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if self._task is not None:
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if self.writing is not None:
            self.writing.cancel()
        task, self._task = self._task, None
        # A cancelled task keeps its frames, and these would keep this object.
        self._watching = self.writing = None
        if self.gone and isinstance(error, asyncio.CancelledError) and task is not None:
            # The cancellation was ours and ends here. Without this, the task would count as cancelled for any
            # later timeout (see asyncio.timeout).
            task.uncancel()
            return True
        return False


@lru_cache(maxsize=64)
def accepts_media_type(accept: str, media_type: str | None = None) -> bool:
    """Return whether a client accepts a media type; without one, both types that we send."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    if "*/*" in kinds:
        return True
    wanted = {media_type} if media_type is not None else {"application/json", "text/event-stream"}
    return wanted <= kinds or all(f"{each.partition('/')[0]}/*" in kinds for each in wanted - kinds)


log = logging.getLogger("toolyard.gateway")

_SERVICE_UNAVAILABLE = 503


class ListenRequests:
    """The listening requests of one process."""

    def __init__(self, authorize: Callable[[Scope], Awaitable[object]]) -> None:
        """``authorize`` raises HttpRequestRejected for callers without access."""
        self._authorize = authorize
        self._open_requests: dict[object, tuple[Scope, Callable[[], object]]] = {}

    @contextlib.contextmanager
    def track(self, scope: Scope, end: Callable[[], object]) -> Generator[None]:
        """Register a request while it listens; ``end`` ends it."""
        key = object()
        self._open_requests[key] = (scope, end)
        try:
            yield
        finally:
            del self._open_requests[key]

    async def reauthorize(self) -> None:
        """Authorize all listening requests again, and end those that lost access."""
        for scope, end in list(self._open_requests.values()):
            try:
                await self._authorize(scope)
            except HttpRequestRejected as away:
                # A caller who cannot be checked for a while, such as during a database outage, keeps the
                # stream.
                if away.status != _SERVICE_UNAVAILABLE:
                    end()
            except ToolyardError as error:
                log.warning("cannot check whether a stream is still allowed: %s", error.cause)
