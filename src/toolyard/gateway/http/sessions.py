"""Sessions of legacy HTTP clients: begun by ``initialize``, ended by DELETE or inactivity."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import Counter, OrderedDict

from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.gateway.endpoint import Endpoint
from toolyard.gateway.http.event_streams import EventStream
from toolyard.gateway.incoming_request import LegacySession
from toolyard.protocol.jsonrpc import Message

__all__ = ["HttpSession", "HttpSessions", "UnreadResponses"]

_MAX_IDLE_SECONDS = 3600.0
_MAX_SESSIONS = 10_000
_UNREAD_RESPONSE_SECONDS = 60.0
"""Time for which an unread response is kept for a client that lost its stream."""
_MAX_UNREAD_RESPONSES = 64
"""Maximum number of unread responses of a session; the oldest are dropped first."""
_MAX_UNREAD_BYTES_PER_OWNER = 32 * 1024 * 1024
_MAX_UNREAD_BYTES = 256 * 1024 * 1024
_RESUMABLE_SINCE_VERSION = "2025-11-25"
"""The first revision whose clients handle an event that has only an id."""


class UnreadResponses:
    """Limits the memory for complete responses that their clients have not read, in all sessions.

    Over its limit, an owner loses the oldest ones, except for the latest response. Over the limit for all
    owners, the one with most bytes loses them.
    """

    def __init__(
        self,
        max_bytes_per_owner: int = _MAX_UNREAD_BYTES_PER_OWNER,
        max_bytes: int = _MAX_UNREAD_BYTES,
    ) -> None:
        self._max_bytes_per_owner = max_bytes_per_owner
        self._max_bytes = max_bytes
        self._by_owner: dict[str, dict[EventStream, tuple[HttpSession, int]]] = {}
        self._bytes_by_owner: Counter[str] = Counter()

    def add(self, session: HttpSession, stream: EventStream) -> None:
        owner = session.owner
        streams = self._by_owner.setdefault(owner, {})
        streams[stream] = session, stream.kept_bytes
        self._bytes_by_owner[owner] += stream.kept_bytes
        while self._bytes_by_owner[owner] > self._max_bytes_per_owner and len(streams) > 1:
            self._drop_oldest(owner)
        # The owner with most bytes pays, so that one user's unread responses cannot push out those of all
        # others.
        while self._bytes_by_owner.total() > self._max_bytes:
            self._drop_oldest(self._bytes_by_owner.most_common(1)[0][0])

    def discard(self, session: HttpSession, stream: EventStream) -> None:
        streams = self._by_owner.get(session.owner, {})
        if (found := streams.pop(stream, None)) is None:
            return
        self._bytes_by_owner[session.owner] -= found[1]
        if not streams:
            del self._by_owner[session.owner], self._bytes_by_owner[session.owner]

    def _drop_oldest(self, owner: str) -> None:
        stream, (session, _) = next(iter(self._by_owner[owner].items()))
        session.forget_stream(stream)


class HttpSession:
    """One legacy client and its streams."""

    def __init__(
        self, id: str, endpoint: Endpoint, session: LegacySession, unread_responses: UnreadResponses
    ) -> None:
        self.id = id
        self.endpoint = endpoint
        self.session = session
        self.owner = endpoint.caller.principal.id
        self.last_used_at = time.monotonic()
        self._is_resumable = session.version >= _RESUMABLE_SINCE_VERSION
        self.standalone_stream = EventStream("own" if self._is_resumable else None)
        """Messages that belong to no request; read by GET."""
        self.response_streams: dict[str, EventStream] = {}
        """Streams of requests in progress, and of unread responses."""
        self._unread_streams: dict[EventStream, None] = {}
        """The unread ones, the oldest first."""
        self._unread_responses = unread_responses
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
        if was_read or stream.name is None:
            self.forget_stream(stream)
            return
        self._unread_streams[stream] = None
        if len(self._unread_streams) > _MAX_UNREAD_RESPONSES:
            self.forget_stream(next(iter(self._unread_streams)))
        self._unread_responses.add(self, stream)
        asyncio.get_running_loop().call_later(_UNREAD_RESPONSE_SECONDS, self.forget_stream, stream)

    def forget_stream(self, stream: EventStream) -> None:
        """Drop a response."""
        # The stream may be gone already: the timer of ``finish_stream`` is not cancelled.
        self._unread_responses.discard(self, stream)
        self._unread_streams.pop(stream, None)
        self.response_streams.pop(stream.name or "", None)

    def find_resumable(self, last_event_id: str) -> tuple[EventStream, int] | None:
        """Return the stream of an event and the event's position, or None if it no longer exists."""
        name, _, place = last_event_id.partition("/")
        stream = (
            self.standalone_stream if name == self.standalone_stream.name else self.response_streams.get(name)
        )
        # The length is bounded because ``int`` raises for thousands of digits.
        if stream is None or not (place.isascii() and place.isdigit()) or len(place) > 9:
            return None
        return stream, int(place)

    async def end(self) -> None:
        for stream in (self.standalone_stream, *self.response_streams.values()):
            stream.end()
        for stream in list(self._unread_streams):
            self.forget_stream(stream)
        await self.endpoint.end_session(self.session)


class HttpSessions:
    """All sessions of one process."""

    def __init__(
        self,
        unread_responses: UnreadResponses | None = None,
        *,
        max_sessions: int = _MAX_SESSIONS,
        max_idle_seconds: float = _MAX_IDLE_SECONDS,
    ) -> None:
        self.max_sessions = max_sessions
        self.max_idle_seconds = max_idle_seconds
        """Time without a request or listener after which a session ends."""
        self._unread_responses = unread_responses or UnreadResponses()
        self._sessions: OrderedDict[str, HttpSession] = OrderedDict()
        self._end_tasks = BackgroundTasks()

    def __len__(self) -> int:
        return len(self._sessions)

    def start(self, endpoint: Endpoint, session: LegacySession) -> HttpSession:
        """Create a session.

        Unused sessions are ended to make room; if that does not suffice, the oldest session of the caller
        with the most.
        """
        now = time.monotonic()
        for each in list(self._sessions.values()):
            # The sessions are in order of their last use, so the first recent one ends the search.
            if now - each.last_used_at < self.max_idle_seconds:
                break
            if each.standalone_stream.has_reader:
                self._mark_used(each)
            else:
                self._end_in_background(each)
        if len(self._sessions) >= self.max_sessions:
            self._end_in_background(self._oldest_of_busiest_owner())
        made = HttpSession(secrets.token_urlsafe(24), endpoint, session, self._unread_responses)
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
        # In a task, because the request that needs the room should not wait until the client's connections
        # are closed.
        self._end_tasks.spawn(session.end())

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
        await asyncio.gather(
            *(each.end() for each in sessions), self._end_tasks.wait(), return_exceptions=True
        )
