"""Age of stored timestamps, robust against changes of the system clock.

A timestamp in the future was written while the clock was wrong. Its age is unknown, so it is never treated as
recent: otherwise it would stay valid for as long as the clock was ahead.
"""

from __future__ import annotations

__all__ = ["CLOCK_SKEW_SECONDS", "is_future", "is_recent"]

CLOCK_SKEW_SECONDS = 300.0
"""Tolerated difference between the clocks of two machines, in seconds."""


def is_future(at: float, now: float) -> bool:
    """Return whether a timestamp is further in the future than clock skew explains."""
    return at > now + CLOCK_SKEW_SECONDS


def is_recent(at: float, now: float, seconds: float) -> bool:
    """Return whether ``at`` is less than ``seconds`` ago, and not in the future."""
    return at <= now + CLOCK_SKEW_SECONDS and now - at < seconds
