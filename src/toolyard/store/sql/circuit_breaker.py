"""Circuit breaker: once a server stopped answering, one attempt at a time finds out whether it is back."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["CircuitBreaker"]


class CircuitBreaker:
    """Closed: everything is allowed. Open: one attempt at a time, and all others are refused at once instead
    of waiting for the same time limit. Used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trip_count = 0
        self._is_open = self._is_probing = False

    def trip(self) -> None:
        """Open it: the server left something unanswered."""
        with self._lock:
            self._is_open = True
            self._trip_count += 1

    @contextmanager
    def attempt(self) -> Generator[bool]:
        """Yield whether to go on. An allowed attempt during which it does not trip closes it."""
        with self._lock:
            probe, trips = self._is_open and not self._is_probing, self._trip_count
            allowed = probe or not self._is_open
            self._is_probing = self._is_probing or probe
        try:
            yield allowed
        finally:
            if probe:
                with self._lock:
                    self._is_probing = False
                    self._is_open = self._trip_count != trips
