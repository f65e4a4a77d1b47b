"""Limits on unsolicited messages of a server: notifications, requests, and responses to nothing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TrafficLimits", "TrafficMeter"]


@dataclass(frozen=True, slots=True)
class TrafficLimits:
    """Limits per connection on messages that answer none of its requests, within ``seconds``.

    Progress of a request in flight is counted separately, because honest servers send much of it. A message
    larger than ``message_bytes`` is dropped. ``reconnect_delays`` are the seconds for which a connection
    stays closed after exceeding a limit, the first time and each time after.
    """

    seconds: float = 10.0
    messages: int = 1_000
    progress: int = 10_000
    total_bytes: int = 10_000_000
    message_bytes: int = 1_000_000
    reconnect_delays: tuple[float, ...] = (5.0, 15.0, 60.0, 300.0)


class TrafficMeter:
    """Counter of unsolicited messages in consecutive periods of ``TrafficLimits.seconds``."""

    __slots__ = ("_bytes", "_limits", "_messages", "_period_start", "_progress")

    def __init__(self, limits: TrafficLimits) -> None:
        self._limits = limits
        self._period_start = float("-inf")
        self._reset_counts()

    def _reset_counts(self) -> None:
        self._messages = self._progress = self._bytes = 0

    def count(self, size: int, now: float, *, progress: bool = False) -> str | None:
        """Count one message of ``size`` bytes. Return a sentence about the exceeded limit, or None."""
        limits = self._limits
        if now - self._period_start > limits.seconds:
            self._period_start = now
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
