"""A clock for tests of expiry."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ManualClock:
    """Return the seconds of ``now``, which only the test changes."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds
