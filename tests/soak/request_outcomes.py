"""What became of every request: its kind, its outcome, and how long it took."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Mapping
from enum import StrEnum
from statistics import quantiles
from typing import TypeVar

T = TypeVar("T")
_MAX_REPORTED_SENTENCES = 200


class RequestOutcome(StrEnum):
    """How a request ended."""

    ANSWERED = "answered"
    """As it should be."""
    REFUSED = "refused"
    """With the refusal that was expected."""
    INTERRUPTED = "interrupted"
    """Failed because its replica was restarted, in a way that the client could recognise."""
    FAILED = "failed"
    """In any other way."""
    UNANSWERED = "unanswered"
    """Not at all, within the deadline."""


class Wrong(Exception):
    """An answer that is not the right one."""


class ExpectedRefusal(Exception):
    """The refusal that was expected."""


class ExpectedFailure(Exception):
    """A failure that the restart of a replica explains."""


class RequestFailure(Exception):
    """A request did not go well; it was counted, and what builds on it cannot be done."""


class Tally:
    """Counts. Every request of a soak goes through ``counted``."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.outcomes: defaultdict[str, Counter[RequestOutcome]] = defaultdict(Counter)
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self.told: Counter[str] = Counter()
        """Why those failed that were told so."""
        self.events: Counter[str] = Counter()
        """Of chats: streamed, folded, lost, twice, changed."""
        self.wrong: list[str] = []
        """What went wrong, in sentences; the first ones."""

    @property
    def total(self) -> int:
        """Requests so far."""
        return sum(sum(each.values()) for each in self.outcomes.values())

    def count(self, outcome: RequestOutcome) -> int:
        """Requests that ended so."""
        return sum(each[outcome] for each in self.outcomes.values())

    async def counted(self, kind: str, work: Awaitable[T], deadline: float | None = None) -> T:
        """Do it within the deadline, and count what came of it. Raises Abandoned where it did not go well."""
        start, deadline = time.monotonic(), deadline or self.deadline
        try:
            async with asyncio.timeout(deadline):
                outcome = await work
        except TimeoutError as error:
            self._end(kind, RequestOutcome.UNANSWERED, str(error) or f"no answer within {deadline:g} s")
        except ExpectedRefusal:
            self._end(kind, RequestOutcome.REFUSED)
        except ExpectedFailure as told:
            self.told[str(told)] += 1
            self._end(kind, RequestOutcome.INTERRUPTED)
        except Exception as error:
            self._end(kind, RequestOutcome.FAILED, f"{type(error).__name__}: {error}")
        else:
            self.outcomes[kind][RequestOutcome.ANSWERED] += 1
            self.seconds[kind].append(time.monotonic() - start)
            return outcome
        raise RequestFailure(kind)

    def _end(self, kind: str, outcome: RequestOutcome, sentence: str = "") -> None:
        self.outcomes[kind][outcome] += 1
        if sentence and len(self.wrong) < _MAX_REPORTED_SENTENCES:
            self.wrong.append(f"{time.strftime('%H:%M:%S')} {kind}: {outcome}: {sentence[:500]}")

    def event(self, kind: str, sentence: str = "", count: int = 1) -> None:
        """Something about the events of a chat."""
        self.events[kind] += count
        if sentence and len(self.wrong) < _MAX_REPORTED_SENTENCES:
            self.wrong.append(f"{time.strftime('%H:%M:%S')} events: {kind}: {sentence[:500]}")

    def latencies(self) -> Mapping[str, Mapping[str, float]]:
        """Seconds by kind: the median, and what 95 and 99 of a hundred do not exceed."""
        return {kind: spread(each) for kind, each in sorted(self.seconds.items())}


def spread(seconds: list[float]) -> Mapping[str, float]:
    """The median, and what 95 and 99 of a hundred do not exceed."""
    if len(seconds) == 1:
        return {"p50": seconds[0], "p95": seconds[0], "p99": seconds[0]}
    cuts = quantiles(seconds, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98]}
