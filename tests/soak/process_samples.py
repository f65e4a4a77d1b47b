"""What every process holds, second by second."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import Any

import psutil
from tests.soak.environment import SoakEnvironment
from tests.soak.replicas import SoakReplica
from tests.soak.request_outcomes import Tally


@dataclass(frozen=True)
class Sample:
    """One process at one moment. ``at``: seconds since the beginning."""

    at: float
    replica: int
    pid: int
    rss: int
    uss: int
    descriptors: int
    children: int
    requests: int
    """Answered so far by all processes together."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Sampler:
    """Looks at all processes, again and again."""

    def __init__(self, environment: SoakEnvironment, tally: Tally, every: float = 1.0) -> None:
        self._environment, self._tally, self._every = environment, tally, every
        self._began = time.monotonic()
        self.samples: list[Sample] = []

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            for replica in self._environment.replicas:
                if (one := await asyncio.to_thread(self.look, replica)) is not None:
                    self.samples.append(one)
            await asyncio.sleep(self._every)

    def look(self, replica: SoakReplica) -> Sample | None:
        """One process; None while it is not there."""
        process = replica.process
        if process is None:
            return None
        try:
            found_process = psutil.Process(process.pid)
            memory = found_process.memory_full_info()
            children = len(found_process.children(recursive=True))
            descriptors = found_process.num_fds()
        except psutil.Error:
            return None
        at, total = round(self.now, 2), self._tally.total
        return Sample(at, replica.number, process.pid, memory.rss, memory.uss, descriptors, children, total)
