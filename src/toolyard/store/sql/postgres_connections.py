"""PostgreSQL connections on which every wait for the server is limited in time.

The server enforces ``statement_timeout`` itself, and the kernel notices a peer that is gone. Neither helps
against a server that is frozen: its kernel still acknowledges every packet. So the client has a clock too.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.errors import ConnectionTimeout

__all__ = ["AnswerTimeout", "TimedAsyncConnection", "TimedConnection", "is_timeout"]

_T = TypeVar("_T")
_TICK = 0.1
"""Seconds between two looks at the clock."""


class AnswerTimeout(psycopg.OperationalError):
    """The server did not answer in time. The connection was closed."""


def is_timeout(error: BaseException | None) -> bool:
    """Return whether an error of the driver says that the server does not answer."""
    return isinstance(error, AnswerTimeout | ConnectionTimeout)


class TimedConnection(psycopg.Connection[Any]):
    """A connection that is closed when the server leaves a statement unanswered for ``limit`` seconds."""

    limit: float | None = None
    params: Mapping[str, Any] = {}
    """The connection's parameters, for a second connection to the same server."""
    _longest: float | None = None

    @classmethod
    def open(cls, params: Mapping[str, Any], limit: float) -> TimedConnection:
        """Connect. Raises psycopg.Error."""
        try:
            made = cls.connect(**params)
        except psycopg.Error as error:
            raise _released(error) from None
        made.limit, made.params = limit, params
        return made

    @contextmanager
    def allowing(self, seconds: float) -> Generator[None]:
        """Let statements take up to ``seconds``, as long as the server answers on another connection."""
        self._longest = seconds
        try:
            yield
        finally:
            self._longest = None

    def wait(self, gen: PQGen[_T], interval: float = _TICK, *more: Any, **options: Any) -> _T:
        if self.limit is not None:
            gen = _timed(gen, _Clock(self, self.limit, self._longest))
        return super().wait(gen, interval, *more, **options)

    def server_answers(self) -> bool:
        """Ask the same server on a new connection."""
        assert self.limit is not None
        try:
            with TimedConnection.open(self.params, self.limit) as probe:
                probe.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True


class TimedAsyncConnection(psycopg.AsyncConnection[Any]):
    """The same for asyncio. ``limit`` None is for waiting for notifications."""

    limit: float | None = None

    @classmethod
    async def open(cls, params: Mapping[str, Any], limit: float) -> TimedAsyncConnection:
        """Connect, with autocommit. Raises psycopg.Error."""
        try:
            made = await cls.connect(autocommit=True, **params)
        except psycopg.Error as error:
            raise _released(error) from None
        made.limit = limit
        return made

    async def wait(self, gen: PQGen[_T], interval: float = _TICK, *more: Any, **options: Any) -> _T:
        if self.limit is not None:
            gen = _timed(gen, _Clock(self, self.limit))
        return await super().wait(gen, interval, *more, **options)


def _released(error: psycopg.Error) -> psycopg.Error:
    """Drop the references through which an error of ``connect`` keeps the half-open connection, in a cycle
    that holds its descriptor until the garbage collector runs."""
    error.__context__ = None
    return error.with_traceback(None)


class _Clock:
    """Closes a connection whose time for one answer is over."""

    def __init__(
        self,
        connection: TimedConnection | TimedAsyncConnection,
        limit: float,
        longest: float | None = None,
    ) -> None:
        self._connection = connection
        self._limit = limit
        self._due = monotonic() + limit
        self._end = self._due if longest is None else monotonic() + longest

    def check(self) -> None:
        """Raises AnswerTimeout."""
        now = monotonic()
        if now < self._due:
            return
        connection = self._connection
        if now < self._end and isinstance(connection, TimedConnection) and connection.server_answers():
            self._due = monotonic() + self._limit
            return
        # Local and immediate, unlike a cancel request, which would need the server.
        connection.pgconn.finish()
        raise AnswerTimeout(f"PostgreSQL did not answer within {self._limit:g} s")


def _timed(gen: PQGen[_T], clock: _Clock) -> PQGen[_T]:
    """Look at the clock whenever the driver resumes the generator: on data, and on every tick without."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            clock.check()
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value
    finally:
        gen.close()
