"""The gateway over Streamable HTTP, as a bare ASGI application: both eras on every address.

Who may come, and what they get, is decided by whoever makes it: ``admit`` gives the front for a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeGuard, cast

from toolyard.gateway.answering import Exchange, Receive, Scope, TurnedAway, Watched, accepts
from toolyard.gateway.client import Request, as_object, mirrored
from toolyard.gateway.failing import Refusal
from toolyard.gateway.front import Front
from toolyard.gateway.httpsessions import HttpSession, HttpSessions
from toolyard.gateway.listeners import Listeners
from toolyard.gateway.streams import Send, Stream
from toolyard.wire.codec import decode
from toolyard.wire.exchange import Failure, Id, Message, error_message, result_message
from toolyard.wire.server import Rejected, http_status, is_modern, read_modern
from toolyard.wire.versions import INVALID_REQUEST, LEGACY, PARSE_ERROR

__all__ = ["Admit", "HttpGateway", "TurnedAway"]

Admit: TypeAlias = Callable[[Scope], Awaitable[Front]]
"""Gives the front for a request. Raises TurnedAway."""

_PRIMED_AFTER = 0.3
"""Seconds after which a legacy client gets a stream instead of waiting, so that it can come back for it."""
_JSON_KIND = "application/json"
_BATCHES = "2025-03-26"
"""The one revision with several messages in one request; it is also what a request without a version has."""
_MOST_TOGETHER = 100
_NO_MESSAGE = Failure(INVALID_REQUEST, "Invalid request: one JSON-RPC message is expected")


class HttpGateway:
    """The application. ``close`` ends sessions and streams."""

    def __init__(self, admit: Admit) -> None:
        self._admit = admit
        self._sessions = HttpSessions()
        self._lingering: set[asyncio.Task[Any]] = set()
        self.listeners = Listeners(admit)

    def stop(self) -> None:
        """Sessions that only listen hear nothing more; what was asked is still answered."""
        self._sessions.stop()

    async def close(self) -> None:
        for task in list(self._lingering):
            task.cancel()
        await asyncio.gather(*self._lingering, return_exceptions=True)
        await self._sessions.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        http = Exchange(scope, receive, send)
        try:
            front = await self._admit(scope)
            if scope["method"] == "POST":
                await self._post(http, front)
            elif scope["method"] == "GET":
                await self._get(http, front)
            elif scope["method"] == "DELETE":
                await self._delete(http, front)
            else:
                raise TurnedAway(405, "use POST", {"Allow": "GET, POST, DELETE"})
        except TurnedAway as away:
            message = error_message(None, INVALID_REQUEST, away.message)
            await http.answer(away.status, message, away.headers)

    # POST.

    async def _post(self, http: Exchange, front: Front) -> None:
        kind = http.headers.get("content-type", "")
        if kind != _JSON_KIND and kind.partition(";")[0].strip().lower() != _JSON_KIND:
            raise TurnedAway(415, "messages are sent as application/json")
        if not accepts(http.headers.get("accept", "*/*")):
            raise TurnedAway(406, "the client must accept application/json and text/event-stream")
        try:
            message: object = decode(await http.body())
        except ValueError:
            await http.fail(400, None, Failure(PARSE_ERROR, "Parse error"))
            return
        if isinstance(message, list):
            await self._batch(http, front, [as_object(each) for each in cast("list[object]", message)])
            return
        body = as_object(message)
        if not _is_message(body):
            id = body.get("id")
            await http.fail(400, id if _is_id(id) else None, _NO_MESSAGE)
            return
        version = http.headers.get("mcp-protocol-version")
        if is_modern(body) or (version is not None and version not in LEGACY):
            await self._modern(http, front, body)
        else:
            await self._legacy(http, front, body)

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
            _nowhere,
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

    # The legacy era.

    async def _batch(self, http: Exchange, front: Front, bodies: list[Message]) -> None:
        """Messages that came together, as one revision allows: done side by side, answered together."""
        held = self._session(http, front)
        version = http.headers.get("mcp-protocol-version", _BATCHES) if held is None else held.session.version
        well = 0 < len(bodies) <= _MOST_TOGETHER and all(map(_is_message, bodies))
        if version != _BATCHES or not well or any(body.get("method") == "initialize" for body in bodies):
            await http.fail(400, None, _NO_MESSAGE)
            return
        asked: list[Message] = []
        for body in bodies:
            if "id" in body and body.get("method") is not None:
                asked.append(body)
            else:
                _take(held, body)
        async with Watched(http.receive):
            work = (self._together(front, held, body) for body in asked)
            answers = [each for each in await asyncio.gather(*work) if each is not None]
            await http.answer(200, answers) if answers else await http.answer(202)

    async def _together(self, front: Front, held: HttpSession | None, body: Message) -> Message | None:
        """The answer to one of several, None where the client cancelled it. What is told before it goes where
        everything else is told."""
        params = as_object(body.get("params"))
        token = as_object(params.get("_meta")).get("progressToken")
        request = Request(
            cast("str", body["method"]),
            params,
            False,
            _nowhere if held is None else held.own.put,
            progress_token=token if _is_id(token) else None,
            session=None if held is None else held.session,
        )
        work = asyncio.ensure_future(self._worked(front, held, cast("Id", body["id"]), request, Stream()))
        try:
            await asyncio.wait((work,))
        finally:
            work.cancel()
        return None if work.cancelled() else work.result()

    async def _legacy(self, http: Exchange, front: Front, body: Message) -> None:
        method, id = cast("str | None", body.get("method")), cast("Id", body.get("id"))
        params = as_object(body.get("params"))
        if method == "initialize" and "id" in body:
            result, session = await front.initialize(params)
            made = self._sessions.start(front, session)
            await http.answer(200, result_message(id, result), {"Mcp-Session-Id": made.id})
            return
        held = self._session(http, front)
        if method is None or "id" not in body:
            _take(held, body)
            await http.answer(202)
        else:
            await self._request(http, front, held, id, method, params)

    async def _request(
        self,
        http: Exchange,
        front: Front,
        held: HttpSession | None,
        id: Id,
        method: str,
        params: dict[str, Any],
    ) -> None:
        token = as_object(params.get("_meta")).get("progressToken")
        stream = Stream() if held is None else held.stream()
        session = None if held is None else held.session
        request = Request(
            method,
            params,
            False,
            stream.put,
            progress_token=token if _is_id(token) else None,
            session=session,
        )
        work = asyncio.ensure_future(self._worked(front, held, id, request, stream))
        async with Watched(http.receive) as watched:
            more = asyncio.ensure_future(stream.more())
            try:
                pause = None if stream.name is None else _PRIMED_AFTER
                await asyncio.wait((work, more), timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                read = True
                if work.done() and not work.cancelled() and not stream.begun:
                    await http.answer(200, work.result())
                else:
                    # What was cancelled by the client has no answer, and its stream ends without one.
                    watched.primed = stream.name is not None
                    read = await stream.write(http.send)
                if not read:
                    # The client came back before its leaving was noticed, and reads on elsewhere.
                    self._linger(work)
                elif held is not None:
                    held.finished(stream, read=True)
            except asyncio.CancelledError:
                if not watched.primed or not watched.gone:
                    work.cancel()
                else:
                    # The client knows how to come back; the work goes on for it.
                    self._linger(work)
                raise
            finally:
                more.cancel()

    def _linger(self, work: asyncio.Task[Any]) -> None:
        self._lingering.add(work)
        work.add_done_callback(self._lingering.discard)

    async def _worked(
        self, front: Front, held: HttpSession | None, id: Id, request: Request, stream: Stream
    ) -> Message:
        """Do it, and put the answer where the client reads, if it reads already."""
        session = request.session
        task = asyncio.current_task()
        if session is not None:
            session.requests.append(request)
        try:
            if session is not None and task is not None:
                session.cancelling.begin(id, task)
            answer = await front.respond(id, request)
        except asyncio.CancelledError:
            stream.end()
            raise
        finally:
            # What is cancelled keeps this frame, and its task must not be kept by it.
            task = None
            request.over = True
            if session is not None:
                session.requests.remove(request)
                session.cancelling.end(id)
        if stream.begun:
            stream.put(answer)
            stream.end()
            if held is not None:
                held.finished(stream, read=False)
        return answer

    def _session(self, http: Exchange, front: Front) -> HttpSession | None:
        """The session that a request names; None where it names none. Raises TurnedAway."""
        id = http.headers.get("mcp-session-id")
        if id is None:
            return None
        found = self._sessions.find(id, front)
        if found is None:
            raise TurnedAway(404, "Session not found")
        return found

    async def _get(self, http: Exchange, front: Front) -> None:
        held = self._session(http, front)
        if held is None:
            raise TurnedAway(405, "there is no stream without a session", {"Allow": "POST"})
        if not accepts(http.headers.get("accept", "*/*"), "text/event-stream"):
            raise TurnedAway(406, "the client must accept text/event-stream")
        last = http.headers.get("last-event-id")
        found = (held.own, None) if last is None else held.resumed(last)
        if found is None:
            raise TurnedAway(404, "the stream of this event is not there any more")
        stream, after = found
        async with Watched(http.receive):
            with self.listeners.kept(http.scope, stream.send_away):
                await stream.write(http.send, after=after)

    async def _delete(self, http: Exchange, front: Front) -> None:
        held = self._session(http, front)
        if held is None:
            raise TurnedAway(405, "there is no session to end", {"Allow": "POST"})
        await self._sessions.end(held)
        await http.answer(204)


def _nowhere(message: Message) -> None:
    """Where messages go as long as there is no way for them."""


def _take(held: HttpSession | None, body: Message) -> None:
    """An answer or a notification, which nobody waits for."""
    if held is None:
        return
    method, params = body.get("method"), as_object(body.get("params"))
    if method is None:
        held.session.answered(body)
    elif method == "notifications/cancelled":
        id = params.get("requestId")
        if _is_id(id):
            held.session.cancelling.cancel(id)
    elif method == "notifications/roots/list_changed":
        for lane in held.front.gateway.parts.manager.lanes(held.session.key):
            lane.notify(cast("str", method))


def _failure(task: asyncio.Future[dict[str, Any]]) -> Failure:
    error = task.exception()
    if isinstance(error, Refusal):
        return error.failure
    return Failure(INVALID_REQUEST, "the subscription cannot be made")


def _is_message(body: Message) -> bool:
    method, params = body.get("method"), body.get("params")
    known = _is_id(body.get("id")) or "id" not in body
    well = isinstance(method, str) or (method is None and ("result" in body or "error" in body))
    return known and well and (params is None or isinstance(params, dict))


def _is_id(value: object) -> TypeGuard[Id]:
    return isinstance(value, int | str) and not isinstance(value, bool)
