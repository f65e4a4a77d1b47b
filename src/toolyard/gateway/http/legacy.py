"""The legacy era over HTTP: sessions, streams that one comes back for, and messages that come together."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from toolyard.gateway.client_request import Request, Tell, as_object, is_id, is_message, nowhere
from toolyard.gateway.endpoint import Front
from toolyard.gateway.http.event_streams import Stream
from toolyard.gateway.http.exchange import Exchange, TurnedAway, Watched, accepts
from toolyard.gateway.http.listeners import Listeners
from toolyard.gateway.http.sessions import HttpSession, HttpSessions
from toolyard.protocol.constants import INVALID_REQUEST
from toolyard.protocol.pending import Failure, Id, Message, result_message

__all__ = ["NO_MESSAGE", "LegacyHttp"]

NO_MESSAGE = Failure(INVALID_REQUEST, "Invalid request: one JSON-RPC message is expected")

_PRIMED_AFTER = 0.3
"""Seconds after which a client gets a stream instead of waiting, so that it can come back for it."""
_NO_SESSION = -32001
"""What the official SDKs say, and some clients look for before they begin again."""
_BATCHES = "2025-03-26"
"""The one revision with several messages in one request; it is also what a request without a version has."""
_MOST_TOGETHER = 100


class LegacyHttp:
    """Answers the requests of that era. ``close`` ends sessions and streams."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self._sessions = HttpSessions()
        self._lingering: set[asyncio.Task[Any]] = set()

    def stop(self) -> None:
        """Sessions that only listen hear nothing more; what was asked is still answered."""
        self._sessions.stop()

    async def close(self) -> None:
        for task in list(self._lingering):
            task.cancel()
        await asyncio.gather(*self._lingering, return_exceptions=True)
        await self._sessions.close()

    async def batch(self, http: Exchange, front: Front, bodies: list[Message]) -> None:
        """Messages that came together, as one revision allows: done side by side, answered together."""
        held = self._session(http, front)
        version = http.headers.get("mcp-protocol-version", _BATCHES) if held is None else held.session.version
        well = 0 < len(bodies) <= _MOST_TOGETHER and all(map(is_message, bodies))
        if version != _BATCHES or not well or any(body.get("method") == "initialize" for body in bodies):
            await http.fail(400, None, NO_MESSAGE)
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
        request = _asked(held, body, nowhere if held is None else held.own.put)
        work = asyncio.ensure_future(self._worked(front, held, cast("Id", body["id"]), request, Stream()))
        try:
            await asyncio.wait((work,))
        finally:
            work.cancel()
        return None if work.cancelled() else work.result()

    async def post(self, http: Exchange, front: Front, body: Message) -> None:
        """One message."""
        method = body.get("method")
        if method == "initialize" and "id" in body:
            result, session = await front.initialize(as_object(body.get("params")))
            made = self._sessions.start(front, session)
            answer = result_message(cast("Id", body["id"]), result)
            await http.answer(200, answer, {"Mcp-Session-Id": made.id})
            return
        held = self._session(http, front)
        if method is None or "id" not in body:
            _take(held, body)
            await http.answer(202)
        else:
            await self._request(http, front, held, body)

    async def _request(self, http: Exchange, front: Front, held: HttpSession | None, body: Message) -> None:
        stream = Stream() if held is None else held.stream()
        request = _asked(held, body, stream.put)
        work = asyncio.ensure_future(self._worked(front, held, cast("Id", body["id"]), request, stream))
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
            raise TurnedAway(404, "Session not found", code=_NO_SESSION)
        return found

    async def get(self, http: Exchange, front: Front) -> None:
        """A stream, from its beginning or from where it broke off."""
        held = self._session(http, front)
        if held is None:
            raise TurnedAway(405, "there is no stream without a session", {"Allow": "POST"})
        if not accepts(http.headers.get("accept", "*/*"), "text/event-stream"):
            raise TurnedAway(406, "the client must accept text/event-stream")
        last = http.headers.get("last-event-id")
        found = (held.own, None) if last is None else held.resumed(last)
        if found is None:
            # Not 404: that would tell the client that its session is over.
            raise TurnedAway(410, "the stream of this event is not there any more")
        stream, after = found
        async with Watched(http.receive):
            with self._listeners.kept(http.scope, stream.send_away):
                await stream.write(http.send, after=after)

    async def delete(self, http: Exchange, front: Front) -> None:
        """The end of a session."""
        held = self._session(http, front)
        if held is None:
            raise TurnedAway(405, "there is no session to end", {"Allow": "POST"})
        await self._sessions.end(held)
        await http.answer(204)


def _asked(held: HttpSession | None, body: Message, tell: Tell) -> Request:
    params = as_object(body.get("params"))
    token = as_object(params.get("_meta")).get("progressToken")
    return Request(
        cast("str", body["method"]),
        params,
        False,
        tell,
        progress_token=token if is_id(token) else None,
        session=None if held is None else held.session,
    )


def _take(held: HttpSession | None, body: Message) -> None:
    """An answer or a notification, which nobody waits for."""
    if held is None:
        return
    method, params = body.get("method"), as_object(body.get("params"))
    if method is None:
        held.session.answered(body)
    elif method == "notifications/cancelled":
        id = params.get("requestId")
        if is_id(id):
            held.session.cancelling.cancel(id)
    elif method == "notifications/roots/list_changed":
        for lane in held.front.gateway.parts.manager.lanes(held.session.key):
            lane.notify(cast("str", method))
