"""Sessions of legacy HTTP clients: begun by initialize, named by a header, ended by DELETE or silence."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import OrderedDict
from typing import Any

from toolyard.gateway.front import Front
from toolyard.gateway.sessions import Session
from toolyard.gateway.streams import Stream
from toolyard.wire.exchange import Message

__all__ = ["HttpSession", "HttpSessions"]

_IDLE = 3600.0
"""Seconds without a request after which a session is over."""
_MOST = 10_000
_LINGER = 60.0
"""Seconds for which an answer waits for a client that lost its stream."""
_STREAMS = 64
_RESUMABLE = "2025-11-25"
"""The revision since which clients know what to do with an event that is empty but for its id."""


class HttpSession:
    """One legacy client and its streams."""

    def __init__(self, id: str, front: Front, session: Session) -> None:
        self.id = id
        self.front = front
        self.session = session
        self.used = time.monotonic()
        self._resumable = session.version >= _RESUMABLE
        self.own = Stream("own" if self._resumable else None)
        """What belongs to no request; read by GET."""
        self.streams: OrderedDict[str, Stream] = OrderedDict()
        self._names = itertools.count(1)
        front.attend(session, self._inform)

    def _inform(self, message: Message) -> None:
        self.own.put(message)

    def stream(self) -> Stream:
        """A stream for the answer to one request."""
        if not self._resumable:
            return Stream()
        name = f"r{next(self._names)}"
        made = self.streams[name] = Stream(name)
        while len(self.streams) > _STREAMS:
            _, oldest = self.streams.popitem(last=False)
            oldest.end()
        return made

    def finished(self, stream: Stream, *, read: bool) -> None:
        """An answer is complete. If nobody read it, it waits for a while."""
        stream.end()
        if read:
            self.streams.pop(stream.name or "", None)
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(_LINGER, self.streams.pop, stream.name or "", None)

    def resumed(self, last_event: str) -> tuple[Stream, int] | None:
        """The stream that an event was of, and its place; None where it is not there any more."""
        name, _, place = last_event.partition("/")
        stream = self.own if name == self.own.name else self.streams.get(name)
        if stream is None or not place.isdigit() or len(place) > 9:
            return None
        return stream, int(place)

    async def end(self) -> None:
        for stream in (self.own, *self.streams.values()):
            stream.end()
        await self.front.leave(self.session)


class HttpSessions:
    """All of one process."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, HttpSession] = OrderedDict()
        self._ending: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def start(self, front: Front, session: Session) -> HttpSession:
        """A new session. Those that nobody uses any more make room."""
        now = time.monotonic()
        for each in list(self._sessions.values()):
            if now - each.used < _IDLE and len(self._sessions) < _MOST:
                break
            self._drop(each)
        made = HttpSession(secrets.token_urlsafe(24), front, session)
        self._sessions[made.id] = made
        return made

    def _drop(self, session: HttpSession) -> None:
        del self._sessions[session.id]
        task = asyncio.ensure_future(session.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def find(self, id: str, front: Front) -> HttpSession | None:
        """The session, if it is of the caller that this front is for: an id is no proof of who one is."""
        found = self._sessions.get(id)
        if found is None or found.front.caller.principal.id != front.caller.principal.id:
            return None
        if found.front.only != front.only:
            return None
        found.used = time.monotonic()
        self._sessions.move_to_end(id)
        return found

    async def end(self, session: HttpSession) -> None:
        """Its client is done."""
        self._sessions.pop(session.id, None)
        await session.end()

    async def close(self) -> None:
        """End all of them."""
        sessions, self._sessions = list(self._sessions.values()), OrderedDict()
        await asyncio.gather(*(each.end() for each in sessions), *self._ending, return_exceptions=True)
