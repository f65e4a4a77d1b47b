"""What the benchmark of the client must show, and whether it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["BARS", "Bar", "Medians", "Verdict", "judge"]

Medians = Mapping[str, Mapping[str, float]]
"""Measure, then peer, then the median of its rounds."""

SLACK = 1.2
"""How much longer ten servers may take than the slowest one alone, or than the cores need."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A promise about one measure: Toolyard's number over the base's, and its limit."""

    says: str
    measure: str
    limit: float
    side: Literal["at most", "at least"] = "at most"
    base: tuple[str, str] | None = None
    """Measure and peer to divide by; None is the same measure of ``mcp``."""
    or_bound: str | None = None
    """A measure of the floor that may stand in for the base where it is larger."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar with the ratio that was measured; None where a number is missing."""

    bar: Bar
    ratio: float | None

    @property
    def met(self) -> bool:
        if self.ratio is None:
            return False
        return self.ratio <= self.bar.limit if self.bar.side == "at most" else self.ratio >= self.bar.limit


BARS = (
    Bar("CPU per call, HTTP", "http.call.cpu", 0.25),
    Bar("CPU per call, stdio", "stdio.call.cpu", 0.35),
    Bar("calls per second, 32 at once, HTTP", "http.rate", 4.0, "at least"),
    Bar("calls per second, 32 at once, stdio", "stdio.rate", 2.0, "at least"),
    Bar("ten HTTP servers: connect and list, CPU", "ten.http.cpu", 0.15),
    Bar(
        "ten stdio servers: wall, over the slowest alone or the cores' bound",
        "ten.stdio.wall",
        SLACK,
        base=("one.stdio.wall", "toolyard"),
        or_bound="ten.stdio.bound",
    ),
    Bar(
        "ten slow stdio servers: wall, over the slowest alone or the cores' bound",
        "ten.slow.wall",
        SLACK,
        base=("one.slow.wall", "toolyard"),
        or_bound="ten.slow.bound",
    ),
    Bar("500 tools listed, CPU, HTTP", "http.list.cpu", 0.35),
    Bar("500 tools listed, CPU, stdio", "stdio.list.cpu", 0.35),
    Bar("memory with 50 HTTP servers, over the bare interpreter", "memory.uss", 0.4),
    Bar("40 MB result over 10 MB result, HTTP", "http.big40.wall", 5.0, base=("http.big10.wall", "toolyard")),
    Bar(
        "40 MB result over 10 MB result, stdio",
        "stdio.big40.wall",
        5.0,
        base=("stdio.big10.wall", "toolyard"),
    ),
)


def judge(medians: Medians, bars: tuple[Bar, ...] = BARS) -> list[Verdict]:
    """Each bar with the ratio that was measured."""
    return [Verdict(bar, _ratio(medians, bar)) for bar in bars]


def _ratio(medians: Medians, bar: Bar) -> float | None:
    ours = medians.get(bar.measure, {}).get("toolyard")
    measure, peer = bar.base or (bar.measure, "mcp")
    base = medians.get(measure, {}).get(peer)
    if bar.or_bound is not None and base is not None:
        base = max(base, medians.get(bar.or_bound, {}).get("floor", 0.0))
    return ours / base if ours is not None and base else None
