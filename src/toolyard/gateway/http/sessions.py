"""Sessions of legacy HTTP clients: begun by initialize, named by a header, ended by DELETE or silence."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import Counter, OrderedDict
from typing import Any

from toolyard.gateway.endpoint import Front
from toolyard.gateway.http.event_streams import Stream
from toolyard.gateway.legacy_session import Session
from toolyard.protocol.pending import Message

__all__ = ["HttpSession", "HttpSessions"]

_IDLE = 3600.0
"""Seconds without a request, and without anybody who listens, after which a session is over."""
_MOST = 10_000
_LINGER = 60.0
"""Seconds for which an answer waits for a client that lost its stream."""
_UNREAD = 64
"""Answers that wait so; beyond them the oldest are forgotten."""
_RESUMABLE = "2025-11-25"
"""The revision since which clients know what to do with an event that is empty but for its id."""


class HttpSession:
    """One legacy client and its streams."""

    def __init__(self, id: str, front: Front, session: Session) -> None:
        self.id = id
        self.front = front
        self.session = session
        self.owner = front.caller.principal.id
        self.used = time.monotonic()
        self._resumable = session.version >= _RESUMABLE
        self.own = Stream("own" if self._resumable else None)
        """What belongs to no request; read by GET."""
        self.streams: dict[str, Stream] = {}
        """Of requests that are being answered, and of answers that nobody read yet."""
        self._unread: dict[str, None] = {}
        """The names of the latter, the oldest first."""
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
        return made

    def finished(self, stream: Stream, *, read: bool) -> None:
        """An answer is complete. If nobody read it, it waits for a while, with a few others."""
        stream.end()
        name = stream.name or ""
        if read:
            self._forget(name)
            return
        self._unread[name] = None
        if len(self._unread) > _UNREAD:
            self._forget(next(iter(self._unread)))
        asyncio.get_running_loop().call_later(_LINGER, self._forget, name)

    def _forget(self, name: str) -> None:
        self._unread.pop(name, None)
        self.streams.pop(name, None)

    def resumed(self, last_event: str) -> tuple[Stream, int] | None:
        """The stream that an event was of, and its place; None where it is not there any more."""
        name, _, place = last_event.partition("/")
        stream = self.own if name == self.own.name else self.streams.get(name)
        if stream is None or not (place.isascii() and place.isdigit()) or len(place) > 9:
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
        """A new session. Those that nobody uses any more make room; where that is not enough, the oldest of
        whoever has most."""
        now = time.monotonic()
        for each in list(self._sessions.values()):
            if now - each.used < _IDLE:
                break
            if each.own.is_read:
                self._use(each)
            else:
                self._drop(each)
        if len(self._sessions) >= _MOST:
            self._drop(self._oldest_of_most())
        made = HttpSession(secrets.token_urlsafe(24), front, session)
        self._sessions[made.id] = made
        return made

    def _oldest_of_most(self) -> HttpSession:
        many = Counter(each.owner for each in self._sessions.values())
        [(owner, _)] = many.most_common(1)
        return next(each for each in self._sessions.values() if each.owner == owner)

    def _use(self, session: HttpSession) -> None:
        session.used = time.monotonic()
        self._sessions.move_to_end(session.id)

    def _drop(self, session: HttpSession) -> None:
        del self._sessions[session.id]
        task = asyncio.ensure_future(session.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def find(self, id: str, front: Front) -> HttpSession | None:
        """The session, if it is of the caller that this front is for: an id is no proof of who one is, nor of
        what one's token may hear and answer."""
        found = self._sessions.get(id)
        if found is None or found.owner != front.caller.principal.id:
            return None
        if found.front.only != front.only or found.front.caller.scope != front.caller.scope:
            return None
        self._use(found)
        return found

    async def end(self, session: HttpSession) -> None:
        """Its client is done."""
        self._sessions.pop(session.id, None)
        await session.end()

    def stop(self) -> None:
        """End the streams that belong to no request."""
        for each in self._sessions.values():
            each.own.send_away()

    async def close(self) -> None:
        """End all of them."""
        sessions, self._sessions = list(self._sessions.values()), OrderedDict()
        await asyncio.gather(*(each.end() for each in sessions), *self._ending, return_exceptions=True)
