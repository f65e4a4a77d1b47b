"""Streamable HTTP: every message a POST, answers as JSON or as an event stream."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, cast

import aiohttp
from multidict import istr

from toolyard.auth import AuthProvider
from toolyard.errors import BadAnswer, HttpStatus, OutcomeUnknown, ServerError, SessionLost, Unreachable
from toolyard.net import Answer, Net
from toolyard.protocol.byte_buffer import Gather, Raw
from toolyard.protocol.codec import decode, encode
from toolyard.protocol.framing import Oversize, SseEvent, SseParser
from toolyard.protocol.id_recovery import in_place_of
from toolyard.protocol.incremental_decoder import IN_PLACE_BYTES, OverLimit, decode_message
from toolyard.protocol.mirrored_headers import standard_headers
from toolyard.protocol.pending import Id, Message, is_answer
from toolyard.transports.http_requests import (
    Requests,
    body_excerpt,
    drain,
    fault,
    is_lost_session,
    is_rpc_error,
    refusal,
    tells_lost_session,
    wants_session,
)
from toolyard.transports.transport import MESSAGE_LIMIT, Receiver, TransportFacts, in_one_line, unreadable
from toolyard.types.server import HttpSpec

__all__ = ["HttpTransport"]

log = logging.getLogger("toolyard.http")

_DELETE = 2.0
_RESUMES = 5
_RETRY = 1.0
_RETRY_LEAST = 0.1
_RETRY_MOST = 30.0

_VERSION = istr("MCP-Protocol-Version")
_SESSION = istr("Mcp-Session-Id")

_HANDSHAKE = ("server/discover", "initialize")
"""What is asked before it is known whether there are sessions."""


class HttpTransport:
    """One server behind one URL."""

    def __init__(
        self,
        spec: HttpSpec,
        net: Net,
        auth: AuthProvider | None = None,
        *,
        guarded: bool = False,
        limit: int = MESSAGE_LIMIT,
    ) -> None:
        self._requests = Requests(spec, net, auth, guarded=guarded)
        self._limit = limit
        self._receiver: Receiver | None = None
        self._modern = True
        self._session: str | None = None
        self._returns = 0
        self._plain: dict[str, str] = {
            istr("Accept"): "application/json, text/event-stream",
            istr("Content-Type"): "application/json",
        }
        self._base = dict(self._plain)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def closing_cancels(self) -> bool:
        return self._modern

    @property
    def uses_headers(self) -> bool:
        return self._modern

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def adopt(self, version: str, *, modern: bool) -> None:
        self._modern = modern
        self._base = {**self._plain, _VERSION: version}
        if modern:
            self._session = None
        elif self._session is not None:
            self._base[_SESSION] = self._session

    def facts(self) -> TransportFacts:
        return TransportFacts(session=self._session is not None, returns=self._returns)

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        method = message.get("method")
        own = self._base if method != "initialize" else self._plain
        if self._modern and method is not None and method != "initialize":
            own = {**own, **standard_headers(method, message.get("params"))}
        if headers:
            own = {**own, **headers}
        if self._receiver is None:
            raise Unreachable("the connection is closed")
        response = await self._requests.send("POST", self._requests.url, own, encode(message))
        try:
            await self._take(response, message.get("id") if method is not None else None, method)
        except BaseException:
            response.close()
            raise

    async def _take(self, response: Answer, id: Id | None, method: str | None) -> None:
        if response.status in (200, 202, 204):
            if method == "initialize" and (session := response.headers.get(_SESSION)):
                self._adopt_session(session)
            if id is None:
                self._finish(response)
            elif response.content_type == "application/json":
                await self._take_json(response, id)
            elif response.content_type == "text/event-stream":
                await self._take_stream(response, id)
            else:
                raise await self._no_answer(response)
            return
        error = await refusal(response)
        if not isinstance(error, HttpStatus) or not self._delivered(error, id, method):
            raise error

    def _adopt_session(self, session: str) -> None:
        if not session.isascii() or not session.isprintable():
            raise BadAnswer("its session id has characters that no session id may have")
        self._session = session

    async def _take_json(self, response: Answer, id: Id) -> None:
        body = await self._read(response)
        try:
            message = await decode_message(body)
        except OverLimit as error:
            raise BadAnswer(f"its answer {error}") from None
        except ValueError:
            raise BadAnswer(f"answered something that is not JSON: {_text(body)}") from None
        if self._session is not None and is_lost_session(message):
            raise SessionLost("no longer knows our session")
        self._deliver(message, len(body))
        batch = cast("list[object]", message) if isinstance(message, list) else [message]
        if not any(is_answer(part, id) for part in batch):
            raise BadAnswer("answered the request with something else than its answer")

    async def _read(self, response: Answer) -> Raw:
        expected = response.content_length or 0
        if expected > self._limit:
            raise BadAnswer(_too_long(expected, self._limit))
        body = Gather(self._limit, expected)
        try:
            while chunk := await response.more():
                if body.size + len(chunk) > self._limit:
                    raise BadAnswer(_too_long(body.size + len(chunk), self._limit))
                body.add(chunk)
            return body.take()
        except (aiohttp.ClientError, OSError) as error:
            raise fault(error, self._requests.url) from error
        finally:
            # What came of a broken answer shall not live as long as its error.
            body.take()

    async def _no_answer(self, response: Answer) -> BadAnswer:
        if response.status != 200:
            response.close()
            return BadAnswer(f"answered a request with HTTP {response.status} and no answer")
        body = await body_excerpt(response)
        kind = response.headers.get("Content-Type", "no content type")
        return BadAnswer(
            f"answered {in_one_line(kind, 80)} instead of JSON: {_text(body)}",
            hint="is this the address of an MCP server?",
        )

    def _delivered(self, error: HttpStatus, id: Id | None, method: str | None) -> bool:
        """Whether a refusal's body was the answer itself, in the words of JSON-RPC."""
        try:
            message: object = decode(error.body) if error.body else None
        except ValueError:
            message = None
        if self._session is not None and tells_lost_session(error):
            raise SessionLost("no longer knows our session")
        if self._session is None and method not in _HANDSHAKE and wants_session(error, message):
            raise SessionLost("wants a session, which it did not when we began")
        if id is None or error.status >= 500 or not is_rpc_error(message):
            return False
        # A request that could not be read is answered without its id; the HTTP exchange tells whose it is.
        self._deliver({**message, "id": id})
        return True

    # Event streams.

    async def _take_stream(self, response: Answer, id: Id) -> None:
        stream = _Stream(self._limit)
        failures = 0
        try:
            while True:
                error = await self._read_stream(response, stream, id)
                if stream.answered:
                    self._finish(response)
                    return
                if self._modern or not stream.last_id:
                    raise error or OutcomeUnknown("ended the event stream before its answer")
                failures = 0 if stream.moved else failures + 1
                if failures > _RESUMES:
                    raise error or OutcomeUnknown("kept ending the event stream before its answer")
                await asyncio.sleep(stream.retry)
                response.close()
                stream.moved = False
                response = await self._reopen(stream)
        except BaseException:
            response.close()
            raise

    async def _read_stream(self, response: Answer, stream: _Stream, id: Id | None) -> ServerError | None:
        """Deliver what comes until the answer or the end. The fault, where the stream broke."""
        parser = SseParser(self._limit)
        try:
            while chunk := await response.more():
                await self._take_events(parser.feed(chunk), stream, id)
                if stream.answered:
                    return None
        except (aiohttp.ClientError, OSError) as error:
            return fault(error, self._requests.url)
        return None

    async def _take_events(self, events: list[SseEvent], stream: _Stream, id: Id | None) -> None:
        # Apart from the reading, so that no event is kept while the next one is waited for.
        for event in events:
            if not stream.notice(event) or self._receiver is None:
                continue
            data = cast("Raw", event.data)
            if len(data) > IN_PLACE_BYTES and not self._receiver.accepts(data):
                continue
            message = await _decode_event(data)
            if id is not None and is_answer(message, id):
                stream.answered = True
                if self._session is not None and is_lost_session(message):
                    raise SessionLost("no longer knows our session")
            self._deliver(message, len(data))

    def _finish(self, response: Answer) -> None:
        if response.ended:
            response.close()
        else:
            # A task that is cancelled before its first step does nothing at all.
            self._background(drain(response)).add_done_callback(lambda _: response.close())

    async def _reopen(self, stream: _Stream) -> Answer:
        headers = {**self._base, "Accept": "text/event-stream"}
        del headers["Content-Type"]
        if stream.last_id:
            headers["Last-Event-ID"] = stream.last_id
        response = await self._requests.send("GET", self._requests.url, headers)
        if response.status == 200 and response.content_type == "text/event-stream":
            return response
        error = await refusal(response)
        if stream.last_id:
            raise OutcomeUnknown(f"ended the event stream before its answer, then {error.cause}")
        raise error

    def listen(self) -> None:
        """Open the stream on which a legacy server speaks of its own accord. Many have none."""
        if not self._modern:
            self._background(self._listen())

    async def _listen(self) -> None:
        stream, pause, opened = _Stream(self._limit), _RETRY, 0.0
        clock = asyncio.get_running_loop().time
        while self._receiver is not None:
            try:
                response = await self._reopen(stream)
            except ServerError as error:
                if not self._may_come(error, back=bool(opened)):
                    log.debug("no stream of its own: %s", error)
                    return
                if self._session is None:
                    # Whoever comes back may know nothing of where we were.
                    stream.last_id = ""
                pause = min(pause * 2, _RETRY_MOST)
            else:
                self._returns += bool(opened) and self._session is None and not stream.last_id
                opened = clock()
                try:
                    await self._read_stream(response, stream, None)
                except ServerError as error:
                    log.debug("listens no more: %s", error)
                    return
                finally:
                    response.close()
                steady = stream.last_id or clock() - opened > pause
                pause = max(stream.retry, _RETRY) if steady else min(pause * 2, _RETRY_MOST)
            await asyncio.sleep(pause)

    def _may_come(self, error: ServerError, *, back: bool) -> bool:
        """Whether a stream may yet be had. Where there was one, a refusal may be that of a proxy, or of a
        server that is starting."""
        if isinstance(error, Unreachable | OutcomeUnknown):
            return True
        return back and isinstance(error, HttpStatus) and (error.status >= 500 or self._session is None)

    # The rest.

    def _deliver(self, message: object, size: int = 0) -> None:
        if self._receiver is not None:
            self._receiver.on_message(message, size)

    def _background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        receiver, self._receiver = self._receiver, None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if receiver is None or self._session is None:
            return
        with contextlib.suppress(ServerError, TimeoutError):
            async with asyncio.timeout(_DELETE):
                headers = {key: value for key, value in self._base.items() if key != "Content-Type"}
                response = await self._requests.send("DELETE", self._requests.url, headers)
                response.close()


class _Stream:
    """What is remembered of an event stream across its connections."""

    __slots__ = ("answered", "last_id", "limit", "moved", "retry")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.last_id = ""
        self.retry = _RETRY
        self.moved = False
        self.answered = False

    def notice(self, event: SseEvent) -> bool:
        """Remember where the stream is. Return whether the event has a message."""
        if event.id is not None:
            self.last_id = event.id
        if event.retry is not None:
            self.retry = min(max(event.retry / 1000, _RETRY_LEAST), _RETRY_MOST)
        self.moved = True
        if isinstance(event.data, Oversize):
            raise BadAnswer(_too_long(event.data.size, self.limit))
        return bool(event.data) and event.event == "message"


async def _decode_event(data: Raw) -> object | None:
    """Decode a message, or return the error for the call that it answers; None where it answers none."""
    try:
        return await decode_message(data)
    except ValueError as error:
        log.debug("an event that cannot be decoded: %s", bytes(data[:200]))
        return in_place_of(data, unreadable(data, error))


def _too_long(size: int, limit: int) -> str:
    return f"its answer is {size} bytes long or more, over the limit of {limit}"


def _text(body: Raw) -> str:
    return in_one_line(str(body[:1000], "utf-8", "replace"))
