"""Limits on unsolicited output of a server: notifications, requests, responses to nothing, stray lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["ListChangeThrottle", "TrafficLimits", "TrafficMeter", "UnsolicitedKind"]

UnsolicitedKind: TypeAlias = Literal["message", "progress", "line", "stderr"]


@dataclass(frozen=True, slots=True)
class TrafficLimits:
    """Limits per connection on messages that answer none of its requests, within ``seconds``.

    Progress of a request in flight is counted separately, because honest servers send much of it, and so are
    lines that are not messages (logs and blank lines of a child process, comments of an event stream). What a
    child process writes to stderr has limits of its own. A message larger than ``message_bytes`` is dropped.
    ``reconnect_delays`` are the seconds for which a connection stays closed after exceeding a limit, the
    first time and each time after.

    ``list_change_delays`` are the seconds after which the first, second and each further notification of a
    changed list is delivered. They start again after ``list_change_quiet_seconds`` without one.
    """

    seconds: float = 10.0
    messages: int = 1_000
    progress: int = 10_000
    lines: int = 10_000
    total_bytes: int = 10_000_000
    stderr_lines: int = 100_000
    stderr_bytes: int = 50_000_000
    message_bytes: int = 1_000_000
    reconnect_delays: tuple[float, ...] = (5.0, 15.0, 60.0, 300.0)
    list_change_delays: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 5.0, 15.0, 60.0)
    list_change_quiet_seconds: float = 120.0


class TrafficMeter:
    """Counter of unsolicited messages in consecutive periods of ``TrafficLimits.seconds``."""

    __slots__ = ("_bytes", "_counts", "_limits", "_period_start", "_stderr_bytes")

    def __init__(self, limits: TrafficLimits) -> None:
        self._limits = limits
        self._period_start = float("-inf")
        self._reset_counts()

    def _reset_counts(self) -> None:
        self._counts: dict[UnsolicitedKind, int] = dict.fromkeys(("message", "progress", "line", "stderr"), 0)
        self._bytes = self._stderr_bytes = 0

    def count(
        self, size: int, now: float, kind: UnsolicitedKind = "message", *, number: int = 1
    ) -> str | None:
        """Count a message, or a number of lines, of ``size`` bytes. Return a sentence about the exceeded
        limit, or None."""
        limits = self._limits
        if now - self._period_start > limits.seconds:
            self._period_start = now
            self._reset_counts()
        counts = self._counts
        counts[kind] += number
        if kind == "stderr":
            self._stderr_bytes += size
        else:
            self._bytes += size
        if self._bytes > limits.total_bytes:
            exceeded = f"{limits.total_bytes:,} bytes of unsolicited messages"
        elif counts["message"] > limits.messages:
            exceeded = f"{limits.messages:,} unsolicited messages"
        elif counts["progress"] > limits.progress:
            exceeded = f"{limits.progress:,} progress notifications"
        elif counts["line"] > limits.lines:
            exceeded = f"{limits.lines:,} lines that are not messages"
        elif self._stderr_bytes > limits.stderr_bytes:
            exceeded = f"{limits.stderr_bytes:,} bytes to its standard error"
        elif counts["stderr"] > limits.stderr_lines:
            exceeded = f"{limits.stderr_lines:,} lines to its standard error"
        else:
            return None
        return f"was disconnected: it sent more than {exceeded} within {limits.seconds:g} s"


class ListChangeThrottle:
    """Delays the notifications of one changed list, and merges those that arrive meanwhile.

    A listing is fetched again after each of them. A server that sends one with every listing would otherwise
    have its list fetched without end.
    """

    __slots__ = ("_count", "_deliver_at", "_limits")

    def __init__(self, limits: TrafficLimits) -> None:
        self._limits = limits
        self._count = 0
        self._deliver_at = float("-inf")

    def next_delay(self, now: float) -> float | None:
        """Return the seconds after which to deliver a notification that arrives now; None if it is merged
        into one that is still to be delivered."""
        if now < self._deliver_at:
            return None
        if now - self._deliver_at > self._limits.list_change_quiet_seconds:
            self._count = 0
        delays = self._limits.list_change_delays
        delay = delays[min(self._count, len(delays) - 1)]
        self._count += 1
        self._deliver_at = now + delay
        return delay
