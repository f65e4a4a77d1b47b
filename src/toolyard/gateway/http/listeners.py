"""Requests that only listen: for as long as whoever made them may come."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator

from toolyard.errors import ToolyardError
from toolyard.gateway.http.exchange import HttpErrorResponse, Scope

__all__ = ["ListenRequests"]

log = logging.getLogger("toolyard.gateway")

_SERVICE_UNAVAILABLE = 503


class ListenRequests:
    """Those of one process."""

    def __init__(self, authorize: Callable[[Scope], Awaitable[object]]) -> None:
        """``admit`` raises TurnedAway for whoever may not come."""
        self._authorize = authorize
        self._open_requests: dict[object, tuple[Scope, Callable[[], object]]] = {}

    @contextlib.contextmanager
    def kept(self, scope: Scope, end: Callable[[], object]) -> Generator[None]:
        """While a request listens; ``end`` ends that."""
        key = object()
        self._open_requests[key] = (scope, end)
        try:
            yield
        finally:
            del self._open_requests[key]

    async def reauthorize(self) -> None:
        """Somebody may not come any more: what listens for such a one ends."""
        for scope, end in list(self._open_requests.values()):
            try:
                await self._authorize(scope)
            except HttpErrorResponse as away:
                # Whoever cannot be looked up for a while is not sent away for that.
                if away.status != _SERVICE_UNAVAILABLE:
                    end()
            except ToolyardError as error:
                log.warning("whether somebody may still listen cannot be looked up: %s", error.cause)
