"""The gateway over Streamable HTTP, as a bare ASGI application: both eras on every address.

Who may come, and what they get, is decided by whoever makes it: ``admit`` gives the front for a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from toolyard.gateway.client_request import Request, as_object, is_id, is_message, mirrored, nowhere
from toolyard.gateway.endpoint import Front
from toolyard.gateway.error_responses import Refusal
from toolyard.gateway.http.event_streams import Send, Stream
from toolyard.gateway.http.exchange import Exchange, Receive, Scope, TurnedAway, Watched, accepts
from toolyard.gateway.http.legacy import NO_MESSAGE, LegacyHttp
from toolyard.gateway.http.listeners import Listeners
from toolyard.protocol.constants import INVALID_REQUEST, LEGACY, PARSE_ERROR
from toolyard.protocol.incremental_decoder import OverLimit, decode_message
from toolyard.protocol.pending import Failure, Id, Message, error_message, result_message
from toolyard.protocol.server import Rejected, http_status, is_modern, read_modern

__all__ = ["Admit", "HttpGateway", "TurnedAway"]

Admit: TypeAlias = Callable[[Scope], Awaitable[Front]]
"""Gives the front for a request. Raises TurnedAway."""

_JSON_KIND = "application/json"


class HttpGateway:
    """The application. ``close`` ends sessions and streams."""

    def __init__(self, admit: Admit) -> None:
        self._admit = admit
        self.listeners = Listeners(admit)
        self._legacy = LegacyHttp(self.listeners)

    def stop(self) -> None:
        """Sessions that only listen hear nothing more; what was asked is still answered."""
        self._legacy.stop()

    async def close(self) -> None:
        await self._legacy.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        http = Exchange(scope, receive, send)
        try:
            front = await self._admit(scope)
            if scope["method"] == "POST":
                await self._post(http, front)
            elif scope["method"] == "GET":
                await self._legacy.get(http, front)
            elif scope["method"] == "DELETE":
                await self._legacy.delete(http, front)
            else:
                raise TurnedAway(405, "use POST", {"Allow": "GET, POST, DELETE"})
        except TurnedAway as away:
            message = error_message(None, away.code, away.message)
            await http.answer(away.status, message, away.headers)

    # POST.

    async def _post(self, http: Exchange, front: Front) -> None:
        kind = http.headers.get("content-type", "")
        if kind != _JSON_KIND and kind.partition(";")[0].strip().lower() != _JSON_KIND:
            raise TurnedAway(415, "messages are sent as application/json")
        if not accepts(http.headers.get("accept", "*/*")):
            raise TurnedAway(406, "the client must accept application/json and text/event-stream")
        try:
            message: object = await decode_message(await http.body())
        except OverLimit as error:
            await http.fail(400, None, Failure(INVALID_REQUEST, f"the message {error}"))
            return
        except ValueError:
            await http.fail(400, None, Failure(PARSE_ERROR, "Parse error"))
            return
        if isinstance(message, list):
            await self._legacy.batch(http, front, [as_object(each) for each in cast("list[object]", message)])
            return
        body = as_object(message)
        if not is_message(body):
            id = body.get("id")
            await http.fail(400, id if is_id(id) else None, NO_MESSAGE)
            return
        version = http.headers.get("mcp-protocol-version")
        if is_modern(body) or (version is not None and version not in LEGACY):
            await self._modern(http, front, body)
        else:
            await self._legacy.post(http, front, body)

    async def _modern(self, http: Exchange, front: Front, body: Message) -> None:
        method, id = cast("str | None", body.get("method")), cast("Id", body.get("id"))
        if method is None:
            raise TurnedAway(400, "answers are sent within the next request")
        if "id" not in body:
            await http.answer(202)
            return
        params = as_object(body.get("params"))
        marks = await front.tools.marks(params.get("name")) if method == "tools/call" else ()
        caller = read_modern(body, headers=http.headers, params=marks)
        if isinstance(caller, Rejected):
            await http.fail(caller.status, id, caller.failure)
            return
        request = Request(
            method,
            params,
            True,
            nowhere,
            mirrored(caller.capabilities),
            caller.log_level,
            caller.progress_token,
        )
        async with Watched(http.receive) as watched:
            if method == "subscriptions/listen":
                await self._listen(http, front, id, request)
                return
            # Most answers need no stream: it is made with the first thing that is told before one.
            streams: list[Stream] = []

            def tell(message: Message) -> None:
                if not streams:
                    streams.append(Stream())
                    watched.writing = asyncio.ensure_future(streams[0].write(http.send))
                streams[0].put(message)

            request.tell = tell
            outcome = await front.answer(request)
            if isinstance(outcome, Failure):
                answer, status = (
                    error_message(id, outcome.code, outcome.message, outcome.data),
                    http_status(outcome),
                )
            else:
                answer, status = result_message(id, outcome), 200
            if watched.writing is None:
                await http.answer(status, answer)
            else:
                streams[0].put(answer)
                streams[0].end()
                await watched.writing

    async def _listen(self, http: Exchange, front: Front, id: Id, request: Request) -> None:
        stream = Stream()
        request.tell = stream.put
        listening = asyncio.ensure_future(front.listen(id, request))
        writing: asyncio.Future[bool] | None = None
        try:
            more = asyncio.ensure_future(stream.more())
            await asyncio.wait((listening, more), return_when=asyncio.FIRST_COMPLETED)
            more.cancel()
            if listening.done() and stream.empty:
                failure = _failure(listening)
                await http.fail(http_status(failure), id, failure)
                return
            writing = asyncio.ensure_future(stream.write(http.send))
            with self.listeners.kept(http.scope, listening.cancel):
                await asyncio.wait((listening,))
            if not listening.cancelled():
                stream.put(result_message(id, listening.result()))
            stream.end()
            await writing
        finally:
            listening.cancel()
            if writing is not None:
                writing.cancel()


def _failure(task: asyncio.Future[dict[str, Any]]) -> Failure:
    error = task.exception()
    if isinstance(error, Refusal):
        return error.failure
    return Failure(INVALID_REQUEST, "the subscription cannot be made")
