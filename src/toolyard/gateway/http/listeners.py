"""Requests that only listen, for as long as their caller has access."""

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
    """The listening requests of one process."""

    def __init__(self, authorize: Callable[[Scope], Awaitable[object]]) -> None:
        """``authorize`` raises HttpErrorResponse for callers without access."""
        self._authorize = authorize
        self._open_requests: dict[object, tuple[Scope, Callable[[], object]]] = {}

    @contextlib.contextmanager
    def kept(self, scope: Scope, end: Callable[[], object]) -> Generator[None]:
        """Register a request while it listens; ``end`` ends it."""
        key = object()
        self._open_requests[key] = (scope, end)
        try:
            yield
        finally:
            del self._open_requests[key]

    async def reauthorize(self) -> None:
        """Authorize all listening requests again, and end those that lost access."""
        for scope, end in list(self._open_requests.values()):
            try:
                await self._authorize(scope)
            except HttpErrorResponse as away:
                # A caller who cannot be checked for a while, such as during a database outage, keeps the
                # stream.
                if away.status != _SERVICE_UNAVAILABLE:
                    end()
            except ToolyardError as error:
                log.warning("whether somebody may still listen cannot be looked up: %s", error.cause)
