"""Streamable HTTP transport: each message is a POST; responses are JSON or an event stream."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import cast

import aiohttp
from multidict import istr

from toolyard.auth import AuthProvider
from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.errors import BadAnswer, HttpStatus, OutcomeUnknown, ServerError, SessionLost, Unreachable
from toolyard.net import HttpResponse, OutboundHttp
from toolyard.protocol.codec import decode, encode
from toolyard.protocol.eras import ERAS, era_of_version
from toolyard.protocol.framing import (
    SSE_STEP_BYTES,
    ByteBuffer,
    MessageBytes,
    OversizeLine,
    SseEvent,
    SseParser,
)
from toolyard.protocol.incremental_decoder import MAX_ONE_STEP_BYTES, MessageLimitExceeded, decode_message
from toolyard.protocol.jsonrpc import Message, RequestId, build_error_for_unreadable, is_response_to
from toolyard.protocol.mirrored_headers import build_standard_headers
from toolyard.transports import http_requests
from toolyard.transports.transport import (
    MAX_MESSAGE_BYTES,
    NOT_MCP_URL_HINT,
    Receiver,
    TransportInfo,
    describe_decode_error,
    to_single_line,
)
from toolyard.types.server import HttpSpec

__all__ = ["StreamableHttpTransport"]

log = logging.getLogger("toolyard.http")

_DELETE_TIMEOUT_SECONDS = 2.0
_MAX_FRUITLESS_RESUMPTIONS = 5
"""Maximum number of consecutive resumptions of an event stream that deliver no event."""
_DEFAULT_RETRY_SECONDS = 1.0
_MIN_RETRY_SECONDS = 0.1
_MAX_RETRY_SECONDS = 30.0

_VERSION_HEADER = istr("MCP-Protocol-Version")
_SESSION_HEADER = istr("Mcp-Session-Id")

_HANDSHAKE_METHODS = ("server/discover", "initialize")
"""Methods sent before it is known whether the server uses session ids."""


class StreamableHttpTransport:
    """Connection to one server URL.

    In an era without sessions every request is independent: closing its response stream cancels it. With
    sessions the server may assign a session id, which must accompany every request, and an interrupted event
    stream can be resumed with ``Last-Event-ID``.
    """

    def __init__(
        self,
        spec: HttpSpec,
        net: OutboundHttp,
        auth: AuthProvider | None = None,
        *,
        guarded: bool = False,
        limit: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._http_client = http_requests.ServerHttpClient(spec, net, auth, guarded=guarded)
        self._max_message_bytes = limit
        self._receiver: Receiver | None = None
        self._era = ERAS[0]
        self._session_id: str | None = None
        self._stream_reconnects = 0
        self._initial_headers: dict[str, str] = {
            istr("Accept"): "application/json, text/event-stream",
            istr("Content-Type"): "application/json",
        }
        self._negotiated_headers = dict(self._initial_headers)
        self._tasks = BackgroundTasks()

    @property
    def cancels_on_disconnect(self) -> bool:
        return not self._era.has_sessions

    @property
    def mirrors_headers(self) -> bool:
        return self._era.mirrors_headers

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def set_protocol_version(self, version: str) -> None:
        self._era = era_of_version(version)
        self._negotiated_headers = {**self._initial_headers, _VERSION_HEADER: version}
        if not self._era.has_sessions:
            self._session_id = None
        elif self._session_id is not None:
            self._negotiated_headers[_SESSION_HEADER] = self._session_id

    def get_info(self) -> TransportInfo:
        return TransportInfo(stream_reconnects=self._stream_reconnects)

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        method = message.get("method")
        # ``initialize`` starts a session, so it must carry neither the id of an earlier one nor a negotiated
        # version.
        all_headers = self._negotiated_headers if method != "initialize" else self._initial_headers
        if self._era.mirrors_headers and method is not None and method != "initialize":
            all_headers = {**all_headers, **build_standard_headers(method, message.get("params"))}
        if headers:
            all_headers = {**all_headers, **headers}
        if self._receiver is None:
            raise Unreachable("the connection is closed")
        response = await self._http_client.send("POST", self._http_client.url, all_headers, encode(message))
        try:
            await self._handle_response(response, message.get("id") if method is not None else None, method)
        except BaseException:
            # Also when the caller is cancelled: without sessions, closing the response stream is what cancels
            # the request at the server.
            response.close()
            raise

    async def _handle_response(
        self, response: HttpResponse, id: RequestId | None, method: str | None
    ) -> None:
        if response.status in (200, 202, 204):
            if method == "initialize" and (session := response.headers.get(_SESSION_HEADER)):
                self._set_session_id(session)
            # A notification or a response of ours: the server acknowledges it with 202 and without a message.
            if id is None:
                self._finish_response(response)
            elif response.content_type == "application/json":
                await self._handle_json(response, id)
            elif response.content_type == "text/event-stream":
                await self._handle_event_stream(response, id)
            else:
                raise await self._unexpected_response_error(response)
            return
        error = await http_requests.read_error_response(response)
        if not isinstance(error, HttpStatus) or not self._deliver_rpc_error(error, id, method):
            raise error

    def _set_session_id(self, session_id: str) -> None:
        # The specification (Session Management) allows visible ASCII only. Anything else would be sent back
        # in a header of every request.
        if not session_id.isascii() or not session_id.isprintable():
            raise BadAnswer("sent a session id with invalid characters")
        self._session_id = session_id

    async def _handle_json(self, response: HttpResponse, id: RequestId) -> None:
        body = await self._read_body(response)
        try:
            message = await decode_message(body)
        except MessageLimitExceeded as error:
            raise BadAnswer(f"sent a response that {error}") from None
        except ValueError:
            raise BadAnswer(f"sent a response that is not JSON: {_format_body_excerpt(body)}") from None
        if self._session_id is not None and http_requests.is_session_lost_message(message):
            raise SessionLost("no longer knows our session")
        self._deliver_message(message, len(body))
        batch = cast("list[object]", message) if isinstance(message, list) else [message]
        # Checked after delivery, since other messages of the batch are still wanted. Without the error the
        # call would wait for its timeout, although no more can arrive on this exchange.
        if not any(is_response_to(part, id) for part in batch):
            raise BadAnswer("answered the request with a message that is not its response")

    async def _read_body(self, response: HttpResponse) -> MessageBytes:
        expected = response.content_length or 0
        if expected > self._max_message_bytes:
            raise BadAnswer(_format_too_long(expected, self._max_message_bytes))
        body = ByteBuffer(self._max_message_bytes, expected)
        try:
            while chunk := await response.read_chunk():
                if body.size + len(chunk) > self._max_message_bytes:
                    raise BadAnswer(_format_too_long(body.size + len(chunk), self._max_message_bytes))
                body.add(chunk)
            return body.take()
        except (aiohttp.ClientError, OSError) as error:
            raise http_requests.translate_request_error(error, self._http_client.url) from error
        finally:
            # Free the buffer: on an error, the traceback would keep a partial body alive as long as the
            # error.
            body.take()

    async def _unexpected_response_error(self, response: HttpResponse) -> BadAnswer:
        if response.status != 200:
            response.close()
            return BadAnswer(f"answered a request with HTTP {response.status} and no response body")
        body = await http_requests.read_body_excerpt(response)
        kind = response.headers.get("Content-Type", "no content type")
        return BadAnswer(
            f"answered with {to_single_line(kind, 80)} instead of JSON: {_format_body_excerpt(body)}",
            hint=NOT_MCP_URL_HINT,
        )

    def _deliver_rpc_error(self, error: HttpStatus, id: RequestId | None, method: str | None) -> bool:
        """Deliver the JSON-RPC error in the body of a refused request, if there is one. Return True if so.

        Raise SessionLost if the refusal means that the session is gone, or that one is needed now.
        """
        try:
            message: object = decode(error.body) if error.body else None
        except ValueError:
            message = None
        if self._session_id is not None and http_requests.is_session_lost_status(error):
            raise SessionLost("no longer knows our session")
        is_handshake = method in _HANDSHAKE_METHODS
        if self._session_id is None and not is_handshake and http_requests.requires_session(error, message):
            raise SessionLost("requires a session now, which it did not when the connection was made")
        if id is None or error.status >= 500 or not http_requests.is_rpc_error(message):
            return False
        # A server that could not parse the request answers without its id; the HTTP exchange identifies it.
        self._deliver_message({**message, "id": id})
        return True

    # Event streams.

    async def _handle_event_stream(self, response: HttpResponse, id: RequestId) -> None:
        """Read the event stream of a request until its response, resuming it where that is possible.

        With sessions, a server may end the stream at any time if it has sent event ids. The stream is then
        reopened with the last id, after the delay that the server requested. The request itself is never sent
        twice.
        """
        stream = _EventStreamState(self._max_message_bytes)
        failures = 0
        try:
            while True:
                error = await self._read_stream(response, stream, id)
                if stream.answered:
                    self._finish_response(response)
                    return
                # Only sessions can resume streams, and without an event id there is no position to resume
                # from. The server may have executed the request, so it is not repeated either.
                if not self._era.has_sessions or not stream.last_id:
                    raise error or OutcomeUnknown("ended the event stream before it responded")
                # Progress resets the count: a long call may be polled many times, each with an event. Only a
                # server that never delivers anything is given up.
                failures = 0 if stream.made_progress else failures + 1
                if failures > _MAX_FRUITLESS_RESUMPTIONS:
                    raise error or OutcomeUnknown("repeatedly ended the event stream before it responded")
                await asyncio.sleep(stream.retry)
                response.close()
                stream.made_progress = False
                response = await self._open_stream(stream)
        except BaseException:
            response.close()
            raise

    async def _read_stream(
        self, response: HttpResponse, stream: _EventStreamState, id: RequestId | None
    ) -> ServerError | None:
        """Deliver events until the response or the end of the stream. Return the error if the stream
        broke."""
        parser = SseParser(self._max_message_bytes)
        try:
            while chunk := await response.read_chunk():
                for start in range(0, len(chunk), SSE_STEP_BYTES):
                    if start:
                        await asyncio.sleep(0)
                    part = chunk[start : start + SSE_STEP_BYTES]
                    await self._handle_events(parser.feed(part), stream, id)
                    if stream.answered:
                        return None
                    self._count_stray_lines(*parser.take_stray_lines())
        except (aiohttp.ClientError, OSError) as error:
            return http_requests.translate_request_error(error, self._http_client.url)
        return None

    async def _handle_events(
        self, events: list[SseEvent], stream: _EventStreamState, id: RequestId | None
    ) -> None:
        # A separate function, so that no local variable keeps an event alive while the next one is awaited.
        for event in events:
            is_message = stream.record_event(event)
            data = cast("MessageBytes", event.data or b"")
            if not is_message or self._receiver is None:
                self._count_stray_lines(1, len(data))
                continue
            if len(data) > MAX_ONE_STEP_BYTES and not self._receiver.should_decode(data):
                continue
            message = await _decode_event(data)
            if id is not None and is_response_to(message, id):
                stream.answered = True
                if self._session_id is not None and http_requests.is_session_lost_message(message):
                    raise SessionLost("no longer knows our session")
            self._deliver_message(message, len(data))

    def _count_stray_lines(self, number: int, size: int) -> None:
        if (number or size) and self._receiver is not None:
            self._receiver.on_stray_lines(number, size)

    def _finish_response(self, response: HttpResponse) -> None:
        if response.is_finished:
            response.close()
        else:
            # The callback closes the response even if the task is cancelled before its first step.
            self._tasks.spawn(http_requests.drain_response(response)).add_done_callback(
                lambda _: response.close()
            )

    async def _open_stream(self, stream: _EventStreamState) -> HttpResponse:
        headers = {**self._negotiated_headers, "Accept": "text/event-stream"}
        del headers["Content-Type"]
        if stream.last_id:
            headers["Last-Event-ID"] = stream.last_id
        response = await self._http_client.send("GET", self._http_client.url, headers)
        if response.status == 200 and response.content_type == "text/event-stream":
            return response
        error = await http_requests.read_error_response(response)
        if stream.last_id:
            raise OutcomeUnknown(f"ended the event stream before it responded, then {error.cause}")
        raise error

    def start_listening(self) -> None:
        """Open the stream for unsolicited messages, if there are sessions. Many servers do not offer one."""
        if self._era.has_sessions:
            self._tasks.spawn(self._run_notification_stream())

    async def _run_notification_stream(self) -> None:
        stream, delay, opened_at = _EventStreamState(self._max_message_bytes), _DEFAULT_RETRY_SECONDS, 0.0
        get_time = asyncio.get_running_loop().time
        while self._receiver is not None:
            try:
                response = await self._open_stream(stream)
            except ServerError as error:
                if not self._can_retry_stream(error, had_stream=bool(opened_at)):
                    log.debug("the server offers no notification stream: %s", error)
                    return
                if self._session_id is None:
                    # Without a session id it may be a new process, to which the last event id means nothing.
                    stream.last_id = ""
                delay = min(delay * 2, _MAX_RETRY_SECONDS)
            else:
                self._stream_reconnects += bool(opened_at) and self._session_id is None and not stream.last_id
                opened_at = get_time()
                try:
                    await self._read_stream(response, stream, None)
                except ServerError as error:
                    log.debug("the notification stream ended: %s", error)
                    return
                finally:
                    response.close()
                # A stream that lasted, or that can be resumed, is reopened soon. One that ends at once backs
                # off.
                is_stable = stream.last_id or get_time() - opened_at > delay
                delay = (
                    max(stream.retry, _DEFAULT_RETRY_SECONDS)
                    if is_stable
                    else min(delay * 2, _MAX_RETRY_SECONDS)
                )
            await asyncio.sleep(delay)

    def _can_retry_stream(self, error: ServerError, *, had_stream: bool) -> bool:
        """Return True if opening the notification stream may succeed later. If there was one before, a
        refusal may come from a proxy, or from a server that is starting."""
        if isinstance(error, Unreachable | OutcomeUnknown):
            return True
        return (
            had_stream and isinstance(error, HttpStatus) and (error.status >= 500 or self._session_id is None)
        )

    # Delivery, tasks and closing.

    def _deliver_message(self, message: object, size: int = 0) -> None:
        if self._receiver is not None:
            self._receiver.on_message(message, size)

    async def close(self) -> None:
        receiver, self._receiver = self._receiver, None
        await self._tasks.close()
        if receiver is None or self._session_id is None:
            return
        # Ask the server to end the session; it may refuse (405) or be gone, which is fine.
        with contextlib.suppress(ServerError, TimeoutError):
            async with asyncio.timeout(_DELETE_TIMEOUT_SECONDS):
                headers = {
                    key: value for key, value in self._negotiated_headers.items() if key != "Content-Type"
                }
                response = await self._http_client.send("DELETE", self._http_client.url, headers)
                response.close()


class _EventStreamState:
    """State of an event stream that survives reconnecting."""

    __slots__ = ("answered", "last_id", "limit", "made_progress", "retry")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.last_id = ""
        self.retry = _DEFAULT_RETRY_SECONDS
        self.made_progress = False
        self.answered = False

    def record_event(self, event: SseEvent) -> bool:
        """Record the event's id and retry delay. Return True if it carries a message."""
        if event.id is not None:
            self.last_id = event.id
        if event.retry is not None:
            self.retry = min(max(event.retry / 1000, _MIN_RETRY_SECONDS), _MAX_RETRY_SECONDS)
        self.made_progress = True
        if isinstance(event.data, OversizeLine):
            raise BadAnswer(_format_too_long(event.data.size, self.limit))
        return bool(event.data) and event.event == "message"


async def _decode_event(data: MessageBytes) -> object | None:
    """Decode a message. If that fails, return an error for the call that it answers, or None."""
    try:
        return await decode_message(data)
    except ValueError as error:
        log.debug("skipped an event that cannot be decoded: %s", bytes(data[:200]))
        return build_error_for_unreadable(data, describe_decode_error(data, error))


def _format_too_long(size: int, limit: int) -> str:
    return f"sent a response of {size} bytes or more, over the limit of {limit}"


def _format_body_excerpt(body: MessageBytes) -> str:
    return to_single_line(str(body[:1000], "utf-8", "replace")) or "an empty body"
