"""Base class of repositories, whose methods run in transactions.

A decorated method is a function for a worker thread: it gets the connection of its transaction as the first
argument. Callers await it and pass the others.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from sqlalchemy import Connection

from toolyard.store.sql.executor import DatabaseExecutor

__all__ = ["Repository", "transaction", "transaction_by_key"]


class Repository:
    """Access to the rows of some tables."""

    def __init__(self, executor: DatabaseExecutor) -> None:
        self._executor = executor


_R = TypeVar("_R", bound=Repository)
_P = ParamSpec("_P")
_T = TypeVar("_T")
_D = TypeVar("_D")

_Work: TypeAlias = Callable[Concatenate[_R, Connection, _P], _T]
_Method: TypeAlias = Callable[Concatenate[_R, _P], Coroutine[Any, Any, _T]]


def transaction(work: _Work[_R, _P, _T]) -> _Method[_R, _P, _T]:
    """Run a method in a transaction, see ``DatabaseExecutor.write``.

    It may be repeated, so it must have no effects outside the database.
    """

    @wraps(work)
    async def run(self: _R, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._executor.write(lambda connection: work(self, connection, *args, **kwargs))

    return run


def transaction_by_key(default: _D) -> Callable[[_Work[_R, _P, _T]], _Method[_R, _P, _T | _D]]:
    """Run a method for a key from outside in a transaction; see ``DatabaseExecutor.write_or_default``."""

    def decorate(work: _Work[_R, _P, _T]) -> _Method[_R, _P, _T | _D]:
        @wraps(work)
        async def run(self: _R, *args: _P.args, **kwargs: _P.kwargs) -> _T | _D:
            return await self._executor.write_or_default(
                lambda connection: work(self, connection, *args, **kwargs), default
            )

        return run

    return decorate
