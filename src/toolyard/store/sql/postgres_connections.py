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
_POLL_INTERVAL_SECONDS = 0.1
"""Seconds between two looks at the clock."""


class AnswerTimeout(psycopg.OperationalError):
    """The server did not answer in time. The connection was closed."""


def is_timeout(error: BaseException | None) -> bool:
    """Return whether an error of the driver says that the server does not answer."""
    return isinstance(error, AnswerTimeout | ConnectionTimeout)


class TimedConnection(psycopg.Connection[Any]):
    """A connection that is closed when the server leaves a statement unanswered for ``limit`` seconds."""

    answer_timeout: float | None = None
    params: Mapping[str, Any] = {}
    """The connection's parameters, for a second connection to the same server."""
    _extended_timeout: float | None = None

    @classmethod
    def open(cls, params: Mapping[str, Any], answer_timeout: float) -> TimedConnection:
        """Connect. Raises psycopg.Error."""
        try:
            made = cls.connect(**params)
        except psycopg.Error as error:
            raise _drop_references(error) from None
        made.answer_timeout, made.params = answer_timeout, params
        return made

    @contextmanager
    def extend_timeout(self, seconds: float) -> Generator[None]:
        """Let statements take up to ``seconds``, as long as the server answers on another connection."""
        self._extended_timeout = seconds
        try:
            yield
        finally:
            self._extended_timeout = None

    def wait(
        self, gen: PQGen[_T], interval: float = _POLL_INTERVAL_SECONDS, *more: Any, **options: Any
    ) -> _T:
        if self.answer_timeout is not None:
            gen = _enforce_deadline(gen, _AnswerDeadline(self, self.answer_timeout, self._extended_timeout))
        return super().wait(gen, interval, *more, **options)

    def is_server_responsive(self) -> bool:
        """Ask the same server on a new connection."""
        assert self.answer_timeout is not None
        try:
            with TimedConnection.open(self.params, self.answer_timeout) as probe:
                probe.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True


class TimedAsyncConnection(psycopg.AsyncConnection[Any]):
    """The same for asyncio. ``limit`` None is for waiting for notifications."""

    answer_timeout: float | None = None

    @classmethod
    async def open(cls, params: Mapping[str, Any], answer_timeout: float) -> TimedAsyncConnection:
        """Connect, with autocommit. Raises psycopg.Error."""
        try:
            made = await cls.connect(autocommit=True, **params)
        except psycopg.Error as error:
            raise _drop_references(error) from None
        made.answer_timeout = answer_timeout
        return made

    async def wait(
        self, gen: PQGen[_T], interval: float = _POLL_INTERVAL_SECONDS, *more: Any, **options: Any
    ) -> _T:
        if self.answer_timeout is not None:
            gen = _enforce_deadline(gen, _AnswerDeadline(self, self.answer_timeout))
        return await super().wait(gen, interval, *more, **options)


def _drop_references(error: psycopg.Error) -> psycopg.Error:
    """Drop the references through which an error of ``connect`` keeps the half-open connection, in a cycle
    that holds its descriptor until the garbage collector runs."""
    error.__context__ = None
    return error.with_traceback(None)


class _AnswerDeadline:
    """Closes a connection whose time for one answer is over."""

    def __init__(
        self,
        connection: TimedConnection | TimedAsyncConnection,
        timeout: float,
        extended_timeout: float | None = None,
    ) -> None:
        self._connection = connection
        self._timeout = timeout
        self._deadline = monotonic() + timeout
        self._final_deadline = self._deadline if extended_timeout is None else monotonic() + extended_timeout

    def check(self) -> None:
        """Raises AnswerTimeout."""
        now = monotonic()
        if now < self._deadline:
            return
        connection = self._connection
        if (
            now < self._final_deadline
            and isinstance(connection, TimedConnection)
            and connection.is_server_responsive()
        ):
            self._deadline = monotonic() + self._timeout
            return
        # Local and immediate, unlike a cancel request, which would need the server.
        connection.pgconn.finish()
        raise AnswerTimeout(f"PostgreSQL did not answer within {self._timeout:g} s")


def _enforce_deadline(gen: PQGen[_T], deadline: _AnswerDeadline) -> PQGen[_T]:
    """Look at the clock whenever the driver resumes the generator: on data, and on every tick without."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            deadline.check()
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value
    finally:
        gen.close()
