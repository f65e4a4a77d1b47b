"""Sessions of legacy HTTP clients: begun by ``initialize``, ended by DELETE or inactivity."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import Counter, OrderedDict
from typing import Any

from toolyard.gateway.endpoint import Endpoint
from toolyard.gateway.http.event_streams import EventStream
from toolyard.gateway.legacy_session import LegacySession
from toolyard.protocol.pending import Message

__all__ = ["HttpSession", "HttpSessions"]

_MAX_IDLE_SECONDS = 3600.0
"""Time without a request or listener after which a session ends."""
_MAX_SESSIONS = 10_000
_UNREAD_RESPONSE_SECONDS = 60.0
"""How long an unread response is kept for a client that lost its stream."""
_MAX_UNREAD_RESPONSES = 64
"""Maximum number of unread responses; the oldest are dropped first."""
_RESUMABLE_SINCE_VERSION = "2025-11-25"
"""The first revision whose clients handle an event that has only an id."""


class HttpSession:
    """One legacy client and its streams."""

    def __init__(self, id: str, endpoint: Endpoint, session: LegacySession) -> None:
        self.id = id
        self.endpoint = endpoint
        self.session = session
        self.owner = endpoint.caller.principal.id
        self.last_used_at = time.monotonic()
        self._is_resumable = session.version >= _RESUMABLE_SINCE_VERSION
        self.standalone_stream = EventStream("own" if self._is_resumable else None)
        """Messages that belong to no request; read by GET."""
        self.response_streams: dict[str, EventStream] = {}
        """Streams of requests in progress, and of responses that nobody has read yet."""
        self._unread_names: dict[str, None] = {}
        """Names of the unread ones, the oldest first."""
        self._stream_numbers = itertools.count(1)
        endpoint.subscribe_session(session, self._send_standalone)

    def _send_standalone(self, message: Message) -> None:
        self.standalone_stream.put(message)

    def open_stream(self) -> EventStream:
        """Create the stream for the response to one request."""
        if not self._is_resumable:
            return EventStream()
        name = f"r{next(self._stream_numbers)}"
        made = self.response_streams[name] = EventStream(name)
        return made

    def finish_stream(self, stream: EventStream, *, was_read: bool) -> None:
        """Record that a response is complete. An unread one is kept for a while, up to a limit."""
        stream.end()
        name = stream.name or ""
        if was_read:
            self._forget_stream(name)
            return
        self._unread_names[name] = None
        if len(self._unread_names) > _MAX_UNREAD_RESPONSES:
            self._forget_stream(next(iter(self._unread_names)))
        asyncio.get_running_loop().call_later(_UNREAD_RESPONSE_SECONDS, self._forget_stream, name)

    def _forget_stream(self, name: str) -> None:
        self._unread_names.pop(name, None)
        self.response_streams.pop(name, None)

    def find_resumable(self, last_event_id: str) -> tuple[EventStream, int] | None:
        """Return the stream of an event and the event's position, or None if it no longer exists."""
        name, _, place = last_event_id.partition("/")
        stream = (
            self.standalone_stream if name == self.standalone_stream.name else self.response_streams.get(name)
        )
        if stream is None or not (place.isascii() and place.isdigit()) or len(place) > 9:
            return None
        return stream, int(place)

    async def end(self) -> None:
        for stream in (self.standalone_stream, *self.response_streams.values()):
            stream.end()
        await self.endpoint.end_session(self.session)


class HttpSessions:
    """All sessions of one process."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, HttpSession] = OrderedDict()
        self._end_tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def start(self, endpoint: Endpoint, session: LegacySession) -> HttpSession:
        """Create a session.

        Unused sessions are ended to make room; if that does not suffice, the oldest session of the caller
        with the most.
        """
        now = time.monotonic()
        for each in list(self._sessions.values()):
            if now - each.last_used_at < _MAX_IDLE_SECONDS:
                break
            if each.standalone_stream.has_reader:
                self._mark_used(each)
            else:
                self._end_in_background(each)
        if len(self._sessions) >= _MAX_SESSIONS:
            self._end_in_background(self._oldest_of_busiest_owner())
        made = HttpSession(secrets.token_urlsafe(24), endpoint, session)
        self._sessions[made.id] = made
        return made

    def _oldest_of_busiest_owner(self) -> HttpSession:
        many = Counter(each.owner for each in self._sessions.values())
        [(owner, _)] = many.most_common(1)
        return next(each for each in self._sessions.values() if each.owner == owner)

    def _mark_used(self, session: HttpSession) -> None:
        session.last_used_at = time.monotonic()
        self._sessions.move_to_end(session.id)

    def _end_in_background(self, session: HttpSession) -> None:
        del self._sessions[session.id]
        task = asyncio.ensure_future(session.end())
        self._end_tasks.add(task)
        task.add_done_callback(self._end_tasks.discard)

    def find(self, id: str, endpoint: Endpoint) -> HttpSession | None:
        """Return the session if it belongs to the caller of this endpoint.

        A session id does not prove identity, nor what the caller's token may receive and answer.
        """
        found = self._sessions.get(id)
        if found is None or found.owner != endpoint.caller.principal.id:
            return None
        if (
            found.endpoint.only_server_id != endpoint.only_server_id
            or found.endpoint.caller.scope != endpoint.caller.scope
        ):
            return None
        self._mark_used(found)
        return found

    async def end(self, session: HttpSession) -> None:
        """End a session."""
        self._sessions.pop(session.id, None)
        await session.end()

    def end_listen_streams(self) -> None:
        """End the streams that belong to no request."""
        for each in self._sessions.values():
            each.standalone_stream.disconnect_reader()

    async def close(self) -> None:
        """End all sessions."""
        sessions, self._sessions = list(self._sessions.values()), OrderedDict()
        await asyncio.gather(*(each.end() for each in sessions), *self._end_tasks, return_exceptions=True)
