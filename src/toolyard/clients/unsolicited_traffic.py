"""Bounds on what a server sends without being asked: notifications, requests and answers to nothing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TrafficLimits", "TrafficMeter"]


@dataclass(frozen=True, slots=True)
class TrafficLimits:
    """What one connection may receive within ``seconds`` that answers none of its requests.

    Progress of a request in flight has a number of its own, because honest servers send much of it. A message
    larger than ``message_bytes`` is dropped. ``pauses`` are the seconds for which a connection that exceeded
    the limits stays closed, the first time and each time after.
    """

    seconds: float = 10.0
    messages: int = 1_000
    progress: int = 10_000
    total_bytes: int = 10_000_000
    message_bytes: int = 1_000_000
    reconnect_delays: tuple[float, ...] = (5.0, 15.0, 60.0, 300.0)


class TrafficMeter:
    """Counts unsolicited messages in consecutive periods."""

    __slots__ = ("_began", "_bytes", "_limits", "_messages", "_progress")

    def __init__(self, limits: TrafficLimits) -> None:
        self._limits = limits
        self._began = float("-inf")
        self._reset_counts()

    def _reset_counts(self) -> None:
        self._messages = self._progress = self._bytes = 0

    def count(self, size: int, now: float, *, progress: bool = False) -> str | None:
        """Count one message of ``size`` bytes. Return what was exceeded, as a sentence about the server."""
        limits = self._limits
        if now - self._began > limits.seconds:
            self._began = now
            self._reset_counts()
        self._bytes += size
        if progress:
            self._progress += 1
        else:
            self._messages += 1
        if self._bytes > limits.total_bytes:
            exceeded = f"{limits.total_bytes:,} bytes of unsolicited messages"
        elif self._messages > limits.messages:
            exceeded = f"{limits.messages:,} unsolicited messages"
        elif self._progress > limits.progress:
            exceeded = f"{limits.progress:,} progress notifications"
        else:
            return None
        return f"was disconnected: it sent more than {exceeded} within {limits.seconds:g} s"
