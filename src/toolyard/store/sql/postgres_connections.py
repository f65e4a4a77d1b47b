"""PostgreSQL connections with a time limit for every answer from the server.

The server enforces ``statement_timeout``, and TCP keepalives detect an unreachable host. Neither detects a
frozen server process, since its kernel still acknowledges every packet. So the client has a deadline, too.
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
"""Interval between two checks of the deadline."""


class AnswerTimeout(psycopg.OperationalError):
    """The server did not answer in time. The connection was closed."""


def is_timeout(error: BaseException | None) -> bool:
    """Return whether a driver error means that the server does not answer."""
    return isinstance(error, AnswerTimeout | ConnectionTimeout)


class TimedConnection(psycopg.Connection[Any]):
    """Connection that closes itself if a statement is not answered within ``answer_timeout`` seconds."""

    answer_timeout: float | None = None
    params: Mapping[str, Any] = {}
    """Parameters of the connection, for a second connection to the same server."""
    _extended_timeout: float | None = None

    @classmethod
    def open(cls, params: Mapping[str, Any], answer_timeout: float) -> TimedConnection:
        """Connect. Raises psycopg.Error."""
        try:
            connection = cls.connect(**params)
        except psycopg.Error as error:
            raise _drop_references(error) from None
        connection.answer_timeout, connection.params = answer_timeout, params
        return connection

    @contextmanager
    def extend_timeout(self, seconds: float) -> Generator[None]:
        """Allow up to ``seconds`` for each statement, while the server answers on another connection.

        A migration may take long on a healthy server; the second connection tells that from a frozen one.
        """
        self._extended_timeout = seconds
        try:
            yield
        finally:
            self._extended_timeout = None

    def wait(
        self, gen: PQGen[_T], interval: float = _POLL_INTERVAL_SECONDS, *more: Any, **options: Any
    ) -> _T:
        # psycopg passes every exchange with the server through this method, commits included, so that no
        # statement escapes the deadline.
        if self.answer_timeout is not None:
            gen = _enforce_deadline(gen, _AnswerDeadline(self, self.answer_timeout, self._extended_timeout))
        return super().wait(gen, interval, *more, **options)

    def is_server_responsive(self) -> bool:
        """Return whether the server answers a query on a new connection."""
        assert self.answer_timeout is not None
        try:
            with TimedConnection.open(self.params, self.answer_timeout) as probe:
                probe.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True


class TimedAsyncConnection(psycopg.AsyncConnection[Any]):
    """TimedConnection for asyncio. ``answer_timeout`` is None while it receives notifications."""

    answer_timeout: float | None = None

    @classmethod
    async def open(cls, params: Mapping[str, Any], answer_timeout: float) -> TimedAsyncConnection:
        """Connect, with autocommit. Raises psycopg.Error."""
        try:
            connection = await cls.connect(autocommit=True, **params)
        except psycopg.Error as error:
            raise _drop_references(error) from None
        connection.answer_timeout = answer_timeout
        return connection

    async def wait(
        self, gen: PQGen[_T], interval: float = _POLL_INTERVAL_SECONDS, *more: Any, **options: Any
    ) -> _T:
        if self.answer_timeout is not None:
            gen = _enforce_deadline(gen, _AnswerDeadline(self, self.answer_timeout))
        return await super().wait(gen, interval, *more, **options)


def _drop_references(error: psycopg.Error) -> psycopg.Error:
    """Drop the references from an error of ``connect`` to the half-open connection.

    They form a cycle, which would keep the descriptor open until the garbage collector runs.
    """
    error.__context__ = None
    return error.with_traceback(None)


class _AnswerDeadline:
    """Deadline for one answer, which closes the connection when it passes."""

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
        """Close the connection and raise AnswerTimeout if the deadline has passed."""
        now = monotonic()
        if now < self._deadline:
            return
        connection = self._connection
        if (
            now < self._final_deadline
            and isinstance(connection, TimedConnection)
            and connection.is_server_responsive()
        ):
            # The server is alive and only this statement is slow. The probe is repeated after another
            # interval, since the server may still freeze.
            self._deadline = monotonic() + self._timeout
            return
        # Closing is local and immediate. A cancel request would need an answer from the frozen server.
        connection.pgconn.finish()
        raise AnswerTimeout(f"PostgreSQL did not answer within {self._timeout:g} s")


def _enforce_deadline(gen: PQGen[_T], deadline: _AnswerDeadline) -> PQGen[_T]:
    """Wrap a psycopg protocol generator, and check the deadline each time the driver resumes it.

    The driver resumes it when the socket is ready, and after every polling interval without data.
    """
    try:
        wait_for = next(gen)
        while True:
            ready = yield wait_for
            deadline.check()
            wait_for = gen.send(ready)
    except StopIteration as end:
        return end.value
    finally:
        gen.close()
