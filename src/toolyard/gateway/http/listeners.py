"""Requests that only listen: for as long as whoever made them may come."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator

from toolyard.errors import ToolyardError
from toolyard.gateway.http.exchange import Scope, TurnedAway

__all__ = ["Listeners"]

log = logging.getLogger("toolyard.gateway")

_NOT_NOW = 503


class Listeners:
    """Those of one process."""

    def __init__(self, admit: Callable[[Scope], Awaitable[object]]) -> None:
        """``admit`` raises TurnedAway for whoever may not come."""
        self._admit = admit
        self._there: dict[object, tuple[Scope, Callable[[], object]]] = {}

    @contextlib.contextmanager
    def kept(self, scope: Scope, end: Callable[[], object]) -> Generator[None]:
        """While a request listens; ``end`` ends that."""
        key = object()
        self._there[key] = (scope, end)
        try:
            yield
        finally:
            del self._there[key]

    async def look_again(self) -> None:
        """Somebody may not come any more: what listens for such a one ends."""
        for scope, end in list(self._there.values()):
            try:
                await self._admit(scope)
            except TurnedAway as away:
                # Whoever cannot be looked up for a while is not sent away for that.
                if away.status != _NOT_NOW:
                    end()
            except ToolyardError as error:
                log.warning("whether somebody may still listen cannot be looked up: %s", error.cause)
