"""HTTP+SSE transport of protocol version 2024-11-05: one incoming event stream, one POST per message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import aiohttp
from yarl import URL

from toolyard.auth import AuthProvider
from toolyard.errors import BadAnswer, HttpStatus, OutcomeUnknown, ServerError, SessionLost, Unreachable
from toolyard.net import HttpResponse, OutboundHttp, is_same_origin
from toolyard.protocol.codec import encode
from toolyard.protocol.framing import SSE_STEP_BYTES, MessageBytes, OversizeLine, SseEvent, SseParser
from toolyard.protocol.incremental_decoder import MAX_ONE_STEP_BYTES, decode_message
from toolyard.protocol.jsonrpc import Message, build_error_for_unreadable
from toolyard.transports import http_requests
from toolyard.transports.transport import (
    MAX_MESSAGE_BYTES,
    STREAMABLE_HTTP_HINT,
    Receiver,
    TransportInfo,
    describe_decode_error,
    to_single_line,
)
from toolyard.types.server import HttpSpec

__all__ = ["SseTransport"]

log = logging.getLogger("toolyard.sse")


class SseTransport:
    """Responses arrive on one event stream; when it ends, all requests in flight fail.

    The first event names the URL for the POSTs. ``open`` waits for it.
    """

    cancels_on_disconnect = False
    mirrors_headers = False

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
        self._endpoint_future: asyncio.Future[URL] | None = None
        self._reader_task: asyncio.Task[None] | None = None
        self._version_headers: dict[str, str] = {}

    async def open(self, receiver: Receiver) -> None:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-cache"}
        response = await self._http_client.send("GET", self._http_client.url, headers)
        if response.status != 200 or response.content_type != "text/event-stream":
            if response.status != 200:
                error = await http_requests.read_error_response(response)
                if response.status in (400, 405, 406):
                    error.hint = STREAMABLE_HTTP_HINT
                raise error
            response.close()
            raise BadAnswer(
                f"answered with {response.content_type} instead of an event stream",
                hint="check that the URL is the server's MCP endpoint",
            )
        self._receiver = receiver
        loop = asyncio.get_running_loop()
        self._endpoint_future = loop.create_future()
        self._reader_task = loop.create_task(self._read_stream(response))
        # The callback closes the response even if the task is cancelled before its first step.
        self._reader_task.add_done_callback(lambda _: response.close())
        # Shielded: cancelling `open` must not cancel the future that the reader task settles.
        await asyncio.shield(self._endpoint_future)

    async def _read_stream(self, response: HttpResponse) -> None:
        """Body of the reader task, which owns the stream from its first event to its end."""
        error: ServerError = OutcomeUnknown("ended its event stream")
        parser = SseParser(self._max_message_bytes)
        try:
            while chunk := await response.read_chunk():
                for start in range(0, len(chunk), SSE_STEP_BYTES):
                    if start:
                        await asyncio.sleep(0)
                    await self._handle_events(parser.feed(chunk[start : start + SSE_STEP_BYTES]))
                    self._count_stray_lines(*parser.take_stray_lines())
        except ServerError as broken:
            error = broken
        except (aiohttp.ClientError, OSError) as broken:
            error = http_requests.translate_request_error(broken, self._http_client.url)
        finally:
            response.close()
            self._end_stream(error)

    async def _handle_events(self, events: list[SseEvent]) -> None:
        # A separate function, so that no local variable keeps an event alive while the next one is awaited.
        for event in events:
            await self._handle_event(event)

    async def _handle_event(self, event: SseEvent) -> None:
        assert self._endpoint_future is not None
        if isinstance(event.data, OversizeLine):
            raise BadAnswer(
                f"sent an event of {event.data.size} bytes, over the limit of {self._max_message_bytes}"
            )
        if event.data and event.event == "endpoint" and not self._endpoint_future.done():
            self._endpoint_future.set_result(self._resolve_endpoint(event.data))
            return
        if not event.data or event.event == "endpoint":
            self._count_stray_lines(1, len(event.data or b""))
            return
        receiver = self._receiver
        if receiver is None or (
            len(event.data) > MAX_ONE_STEP_BYTES and not receiver.should_decode(event.data)
        ):
            return
        try:
            message = await decode_message(event.data)
        except ValueError as error:
            log.debug("skipped an event that cannot be decoded: %s", bytes(event.data[:200]))
            message = build_error_for_unreadable(event.data, describe_decode_error(event.data, error))
        if self._receiver is not None:
            self._receiver.on_message(message, len(event.data))

    def _count_stray_lines(self, number: int, size: int) -> None:
        if (number or size) and self._receiver is not None:
            self._receiver.on_stray_lines(number, size)

    def _resolve_endpoint(self, data: MessageBytes) -> URL:
        text = str(data, "utf-8", "replace").strip()
        try:
            url = self._http_client.url.join(URL(text))
            if is_same_origin(url, self._http_client.url):
                return url
        except ValueError:
            raise BadAnswer(f"sent an endpoint that is not a valid URL: {to_single_line(text)}") from None
        # Following it would send the credentials of this server to an origin of its choice.
        raise BadAnswer(
            f"sent an endpoint URL of another origin: {to_single_line(str(url.with_query(None)))}"
        )

    def _end_stream(self, error: ServerError) -> None:
        if self._endpoint_future is not None and not self._endpoint_future.done():
            # Nothing was sent before the endpoint was known, so the outcome of a call is not in doubt.
            connect_error = (
                error if isinstance(error, BadAnswer) else Unreachable(error.cause, hint=error.hint)
            )
            self._endpoint_future.set_exception(connect_error)
            self._endpoint_future.exception()  # Mark as retrieved: `open` may have been cancelled.
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.on_lost(error)

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if self._receiver is None or self._endpoint_future is None:
            raise Unreachable("the connection is closed")
        all_headers = {"Content-Type": "application/json", **self._version_headers, **(headers or {})}
        endpoint = self._endpoint_future.result()
        response = await self._http_client.send("POST", endpoint, all_headers, encode(message))
        if response.status >= 300:
            error = await http_requests.read_error_response(response)
            if isinstance(error, HttpStatus) and http_requests.is_session_lost_status(error):
                raise SessionLost("no longer knows our session")
            raise error
        await http_requests.drain_response(response)

    def set_protocol_version(self, version: str) -> None:
        self._version_headers = {"MCP-Protocol-Version": version}

    def start_listening(self) -> None:
        pass

    def get_info(self) -> TransportInfo:
        return TransportInfo()

    async def close(self) -> None:
        self._receiver = None
        if self._reader_task is not None:
            self._reader_task.cancel()
            await asyncio.gather(self._reader_task, return_exceptions=True)
