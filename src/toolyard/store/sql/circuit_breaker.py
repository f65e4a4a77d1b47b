"""Circuit breaker: once a server stopped answering, one attempt at a time finds out whether it is back."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["Breaker"]


class Breaker:
    """Closed: everything is allowed. Open: one attempt at a time, and all others are refused at once instead
    of waiting for the same time limit. Used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trips = 0
        self._open = self._probing = False

    def trip(self) -> None:
        """Open it: the server left something unanswered."""
        with self._lock:
            self._open = True
            self._trips += 1

    @contextmanager
    def attempt(self) -> Generator[bool]:
        """Yield whether to go on. An allowed attempt during which it does not trip closes it."""
        with self._lock:
            probe, trips = self._open and not self._probing, self._trips
            allowed = probe or not self._open
            self._probing = self._probing or probe
        try:
            yield allowed
        finally:
            if probe:
                with self._lock:
                    self._probing = False
                    self._open = self._trips != trips
