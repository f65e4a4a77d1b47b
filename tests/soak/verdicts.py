"""What a soak showed: whether all was answered, nothing was lost, and nothing grew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import linear_regression, median

from tests.soak.counting import Outcome, Tally
from tests.soak.sampling import Sample

GROWTH, GROWTH_BYTES = 0.08, 10_000_000
"""The last third may have so much more than the middle one; the first third is for warming up."""
SHORTEST = 90.0
"""Seconds of a process's life below which its memory tells nothing."""
SPARE_DESCRIPTORS = 24
"""Connections to the database and to servers that stay open for the next one."""


@dataclass(frozen=True)
class Verdict:
    """One thing that was judged. ``met`` None: the run was too short to tell."""

    what: str
    met: bool | None
    told: str


@dataclass(frozen=True)
class Memory:
    """How the memory of one process went, in bytes."""

    replica: int
    pid: int
    middle: float
    last: float
    per_minute: float
    per_thousand: float
    """For each 1,000 requests."""
    steady: bool | None

    def __str__(self) -> str:
        steady = {True: "steady", False: "growing", None: "too short to tell"}[self.steady]
        return (
            f"process {self.replica + 1}: {self.middle / 1e6:.0f} MB in the middle third, "
            f"{self.last / 1e6:.0f} MB in the last ({self.per_minute / 1e6:+.2f} MB a minute, "
            f"{self.per_thousand / 1e6:+.2f} MB for each 1,000 requests): {steady}"
        )


def memory_of(samples: Sequence[Sample]) -> list[Memory]:
    """Of each process that lived; one that was restarted is two."""

    def key(sample: Sample) -> tuple[int, int]:
        return sample.replica, sample.pid

    return [_memory(list(each)) for _, each in groupby(sorted(samples, key=key), key)]


def _memory(life: list[Sample]) -> Memory:
    life.sort(key=lambda sample: sample.at)
    began, ended = life[0].at, life[-1].at
    third = (ended - began) / 3
    middle = [each.rss for each in life if began + third <= each.at < began + 2 * third]
    last = [each.rss for each in life if each.at >= began + 2 * third]
    if ended - began < SHORTEST or not middle:
        rss = float(life[-1].rss)
        return Memory(life[0].replica, life[0].pid, rss, rss, 0.0, 0.0, None)
    warm = [each for each in life if each.at >= began + third]
    minutes = [each.at / 60 for each in warm]
    slope = linear_regression(minutes, [each.rss for each in warm]).slope
    thousands = (warm[-1].requests - warm[0].requests) / 1000
    grown = slope * (minutes[-1] - minutes[0])
    more = median(last) - median(middle)
    steady = not (more > GROWTH * median(middle) and more > GROWTH_BYTES)
    return Memory(
        life[0].replica,
        life[0].pid,
        median(middle),
        median(last),
        slope,
        grown / thousands if thousands else 0.0,
        steady,
    )


@dataclass(frozen=True)
class Ending:
    """What is there once everybody has left and idle connections had the time to close."""

    held: Sequence[Sample]
    """Each process."""
    still_open: int = 0
    """Requests that are still being answered."""
    tracebacks: int = 0


def judge(tally: Tally, samples: Sequence[Sample], start: Sequence[Sample], ending: Ending) -> list[Verdict]:
    """``start``: each process before the first request."""
    memories = memory_of(samples)
    steady = [each.steady for each in memories]
    grown = None if None in steady and False not in steady else False not in steady
    lost = {what: tally.events[what] for what in ("lost", "twice", "changed")}
    return [
        _none("unanswered requests", tally.count(Outcome.UNANSWERED)),
        _none("failed requests", tally.count(Outcome.FAILED)),
        Verdict("events lost, repeated or changed", not any(lost.values()), _words(lost)),
        Verdict("memory steady", grown, "; ".join(map(str, memories))),
        _returned("descriptors", start, ending.held, SPARE_DESCRIPTORS),
        _returned("children", start, ending.held, 0),
        _none("requests still open at the end", ending.still_open),
        _none("tracebacks in the logs", ending.tracebacks),
    ]


def _none(what: str, count: int) -> Verdict:
    return Verdict(what, count == 0, str(count))


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def _returned(what: str, start: Sequence[Sample], end: Sequence[Sample], spare: int) -> Verdict:
    before = {each.replica: getattr(each, what) for each in start}
    after = {each.replica: getattr(each, what) for each in end}
    told = ", ".join(f"{before[replica]} before, {after.get(replica, 0)} after" for replica in before)
    met = all(after.get(replica, 0) <= count + spare for replica, count in before.items())
    return Verdict(f"{what} given back", met, told)
