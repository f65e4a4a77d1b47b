"""HTTP with SSE, the transport of 2024-11-05: one event stream in, a POST for every message out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import aiohttp
from yarl import URL

from toolyard.auth import AuthProvider
from toolyard.errors import BadAnswer, HttpStatus, OutcomeUnknown, ServerError, SessionLost, Unreachable
from toolyard.net import Answer, Net, same_origin
from toolyard.protocol.byte_buffer import Raw
from toolyard.protocol.codec import encode
from toolyard.protocol.framing import Oversize, SseEvent, SseParser
from toolyard.protocol.id_recovery import in_place_of
from toolyard.protocol.incremental_decoder import IN_PLACE_BYTES, decode_message
from toolyard.protocol.pending import Message
from toolyard.transports.http_requests import Requests, drain, fault, refusal, tells_lost_session
from toolyard.transports.transport import MESSAGE_LIMIT, Receiver, TransportFacts, in_one_line, unreadable
from toolyard.types.server import HttpSpec

__all__ = ["SseTransport"]

log = logging.getLogger("toolyard.sse")


class SseTransport:
    """Answers come on the stream; when the stream ends, so does everything in flight."""

    closing_cancels = False
    uses_headers = False

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
        self._endpoint: asyncio.Future[URL] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._version: dict[str, str] = {}

    async def open(self, receiver: Receiver) -> None:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-cache"}
        response = await self._requests.send("GET", self._requests.url, headers)
        if response.status != 200 or response.content_type != "text/event-stream":
            if response.status != 200:
                raise await refusal(response)
            response.close()
            raise BadAnswer(f"answered {response.content_type} instead of an event stream")
        self._receiver = receiver
        loop = asyncio.get_running_loop()
        self._endpoint = loop.create_future()
        self._reader = loop.create_task(self._read(response))
        # A task that is cancelled before its first step does nothing at all.
        self._reader.add_done_callback(lambda _: response.close())
        await asyncio.shield(self._endpoint)

    async def _read(self, response: Answer) -> None:
        """The owner of the stream, from its first event to its end."""
        error: ServerError = OutcomeUnknown("ended its event stream")
        parser = SseParser(self._limit)
        try:
            while chunk := await response.more():
                await self._take_all(parser.feed(chunk))
        except ServerError as broken:
            error = broken
        except (aiohttp.ClientError, OSError) as broken:
            error = fault(broken, self._requests.url)
        finally:
            response.close()
            self._end(error)

    async def _take_all(self, events: list[SseEvent]) -> None:
        # Apart from the reading, so that no event is kept while the next one is waited for.
        for event in events:
            await self._take(event)

    async def _take(self, event: SseEvent) -> None:
        assert self._endpoint is not None
        if isinstance(event.data, Oversize):
            raise BadAnswer(f"sent an event of {event.data.size} bytes, over the limit of {self._limit}")
        if not event.data:
            return
        if event.event == "endpoint":
            if not self._endpoint.done():
                self._endpoint.set_result(self._place(event.data))
            return
        receiver = self._receiver
        if receiver is None or (len(event.data) > IN_PLACE_BYTES and not receiver.accepts(event.data)):
            return
        try:
            message = await decode_message(event.data)
        except ValueError as error:
            log.debug("an event that cannot be decoded: %s", bytes(event.data[:200]))
            message = in_place_of(event.data, unreadable(event.data, error))
        if self._receiver is not None:
            self._receiver.on_message(message, len(event.data))

    def _place(self, data: Raw) -> URL:
        text = str(data, "utf-8", "replace").strip()
        try:
            url = self._requests.url.join(URL(text))
            if same_origin(url, self._requests.url):
                return url
        except ValueError:
            raise BadAnswer(f"named an endpoint that is no URL: {in_one_line(text)}") from None
        # The stream could otherwise send our credentials wherever it likes.
        raise BadAnswer(f"named an endpoint on another origin: {in_one_line(str(url.with_query(None)))}")

    def _end(self, error: ServerError) -> None:
        if self._endpoint is not None and not self._endpoint.done():
            unsent = error if isinstance(error, BadAnswer) else Unreachable(error.cause, hint=error.hint)
            self._endpoint.set_exception(unsent)
            self._endpoint.exception()
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.on_lost(error)

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if self._receiver is None or self._endpoint is None:
            raise Unreachable("the connection is closed")
        own = {"Content-Type": "application/json", **self._version, **(headers or {})}
        response = await self._requests.send("POST", self._endpoint.result(), own, encode(message))
        if response.status >= 300:
            error = await refusal(response)
            if isinstance(error, HttpStatus) and tells_lost_session(error):
                raise SessionLost("no longer knows our session")
            raise error
        await drain(response)

    def adopt(self, version: str, *, modern: bool) -> None:
        self._version = {"MCP-Protocol-Version": version}

    def listen(self) -> None:
        pass

    def facts(self) -> TransportFacts:
        return TransportFacts(session=True)

    async def close(self) -> None:
        self._receiver = None
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
