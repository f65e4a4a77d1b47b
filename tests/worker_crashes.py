"""A plugin of pytest: a test that hangs or that ends its process is one failure, and all others still run.

The exception of pytest-timeout does not end every test: uvloop logs it as the error of a callback, hypothesis
runs the example again to reproduce it, code may catch it, and no other follows it when the test is torn down.
Then ``faulthandler_timeout`` of ``pyproject.toml`` ends the process. pytest-xdist reports the test as failed,
and starts another worker.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

__all__ = ["pytest_configure", "pytest_runtest_teardown", "pytest_xdist_make_scheduler"]

_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    # Output of tests is captured from their beginning on.
    config.stash[_STDERR] = stderr = os.dup(2)
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_WorkerErrors(stderr))


@dataclass(frozen=True)
class _WorkerErrors:
    """Ends a worker whose pytest failed: pytest-xdist replaces only workers that end without a message."""

    stderr: int

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excrepr: object) -> None:
        with contextlib.suppress(OSError):
            os.write(self.stderr, f"{excrepr}\n".encode(errors="replace"))
        os._exit(pytest.ExitCode.INTERNAL_ERROR)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Limit the time of each teardown: pytest stops its timers when a test has failed."""
    seconds = float(item.config.getini("faulthandler_timeout") or 0)
    if seconds:
        faulthandler.dump_traceback_later(seconds, exit=True, file=item.config.stash[_STDERR])
    return (yield)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):
        """Gives the remaining tests of a crashed worker to others.

        pytest-xdist 3.8 also gives them the tests that have ended and the one that crashed, waits forever for
        a worker without tests, and gives tests to a worker that is not ready (its issues 784 and 1323).
        """

        def remove_node(self, node: Any) -> str | None:
            work = self.assigned_work.pop(node)
            unfinished_tests = [
                name for unit in work.values() for name, is_ended in unit.items() if not is_ended
            ]
            for scope, unit in work.items():
                if rest := {name: False for name in unit if name in unfinished_tests[1:]}:
                    self.workqueue[scope] = rest
                    self.workqueue.move_to_end(scope, last=False)
            for each in self.nodes:
                self._reschedule(each)
            return unfinished_tests[0] if unfinished_tests else None

        def _reschedule(self, node: Any) -> None:
            if node in self.registered_collections:
                super()._reschedule(node)

        def schedule(self) -> None:
            super().schedule()
            # A worker runs a test only when it knows the next one, or that none follows.
            for node in self.nodes:
                while (
                    node in self.registered_collections
                    and not node.shutting_down
                    and self._pending_of(self.assigned_work[node]) <= 2
                ):
                    self._reschedule(node)

    return Scheduler(config, log)
