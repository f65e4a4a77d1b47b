"""What a soak showed: whether all was answered, nothing was lost, and nothing grew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import linear_regression, median

from tests.soak.process_samples import Sample
from tests.soak.request_outcomes import RequestOutcome, Tally

MAX_GROWTH_BYTES = 150_000
"""Bytes for each 1,000 requests of a process by which it may grow in the last third of its life."""
MAX_STEP_BYTES = 2_000_000
"""Bytes in all that say nothing: memory comes in pieces."""
MAX_GROWTH_RATIO = 0.5
"""What is being warmed up grows less and less; what leaks grows at the same pace. Who grows in the last third
by no more than so much of what it grew in the middle one is still warming up. The first third is for that."""
MIN_LIFE_SECONDS = 400.0
"""Seconds of a process's life below which its memory tells nothing: it is warming up until its end."""
SPARE_DESCRIPTORS = 24
"""Connections to the database and to servers that stay open for the next one."""


@dataclass(frozen=True)
class Verdict:
    """One thing that was judged. ``met`` None: the run was too short to tell."""

    what: str
    met: bool | None
    told: str


@dataclass(frozen=True)
class MemoryGrowth:
    """How the memory of one process went, in bytes."""

    replica: int
    pid: int
    middle: float
    last: float
    per_minute: float
    """In the last third."""
    per_thousand: float
    """The same, for each 1,000 of its requests."""
    steady: bool | None

    def __str__(self) -> str:
        name = f"process {self.replica + 1}"
        if self.steady is None:
            return f"{name}: {self.last / 1e6:.0f} MB at the end; ran too briefly to judge"
        return (
            f"{name}: {self.middle / 1e6:.0f} MB in the middle third and {self.last / 1e6:.0f} MB "
            f"in the last third, in which it grew by {self.per_minute / 1e6:.2f} MB a minute "
            f"({self.per_thousand / 1e6:.2f} MB per 1,000 requests): "
            f"{'steady' if self.steady else 'growing'}"
        )


def memory_of(samples: Sequence[Sample]) -> list[MemoryGrowth]:
    """Of each process that lived; one that was restarted is two. Each answers its share of the requests."""

    def key(sample: Sample) -> tuple[int, int]:
        return sample.replica, sample.pid

    replicas = len({sample.replica for sample in samples})
    return [_memory(list(each), replicas) for _, each in groupby(sorted(samples, key=key), key)]


def _memory(life: list[Sample], replicas: int) -> MemoryGrowth:
    life.sort(key=lambda sample: sample.at)
    start, end = life[0].at, life[-1].at
    third = (end - start) / 3
    middle = [each for each in life if start + third <= each.at < start + 2 * third]
    last = [each for each in life if each.at >= start + 2 * third]
    if end - start < MIN_LIFE_SECONDS or len(middle) < 2 or len(last) < 2:
        rss = float(life[-1].rss)
        return MemoryGrowth(life[0].replica, life[0].pid, rss, rss, 0.0, 0.0, None)
    before, now = _grown(middle), _grown(last)
    thousands = (last[-1].requests - last[0].requests) / 1000 / replicas
    steady = now <= max(MAX_STEP_BYTES, MAX_GROWTH_BYTES * thousands, MAX_GROWTH_RATIO * before)
    return MemoryGrowth(
        life[0].replica,
        life[0].pid,
        median(each.rss for each in middle),
        median(each.rss for each in last),
        now / (last[-1].at - last[0].at) * 60,
        now / thousands if thousands else 0.0,
        steady,
    )


def _grown(part: Sequence[Sample]) -> float:
    """Bytes by which a process grew in a part of its life, as a straight line tells it."""
    slope = linear_regression([each.at for each in part], [each.rss for each in part]).slope
    return slope * (part[-1].at - part[0].at)


@dataclass(frozen=True)
class FinalState:
    """What is there once everybody has left and idle connections had the time to close."""

    held: Sequence[Sample]
    """Each process."""
    still_open: int = 0
    """Requests that are still being answered."""
    tracebacks: int = 0


def judge(
    tally: Tally, samples: Sequence[Sample], start: Sequence[Sample], ending: FinalState
) -> list[Verdict]:
    """``start``: each process before the first request."""
    memories = memory_of(samples)
    steady_flags = [each.steady for each in memories if each.steady is not None]
    events = tally.events
    lost_counts = {"lost": events["lost"], "repeated": events["twice"], "changed": events["changed"]}
    return [
        _none("unanswered requests", tally.count(RequestOutcome.UNANSWERED)),
        _none("failed requests", tally.count(RequestOutcome.FAILED)),
        Verdict("events lost, repeated or changed", not any(lost_counts.values()), _words(lost_counts)),
        Verdict("memory steady", all(steady_flags) if steady_flags else None, "; ".join(map(str, memories))),
        _compare_counts("descriptors", "descriptors closed", start, ending.held, SPARE_DESCRIPTORS),
        _compare_counts("children", "child processes ended", start, ending.held, 0),
        _none("requests still open at the end", ending.still_open),
        _none("tracebacks in the logs", ending.tracebacks),
    ]


def _none(kind: str, count: int) -> Verdict:
    return Verdict(kind, count == 0, str(count))


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def _compare_counts(
    field: str, kind: str, start: Sequence[Sample], end: Sequence[Sample], spare: int
) -> Verdict:
    before = {each.replica: getattr(each, field) for each in start}
    after = {each.replica: getattr(each, field) for each in end}
    restart_text = ", ".join(f"{before[replica]} before, {after.get(replica, 0)} after" for replica in before)
    is_met = all(after.get(replica, 0) <= count + spare for replica, count in before.items())
    return Verdict(kind, is_met, restart_text)
