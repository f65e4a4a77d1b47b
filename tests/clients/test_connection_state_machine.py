"""Calls from one task, cancellations from another, closes from a third, and crashes, in every order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from tests.processes import own_descendants
from tests.tool_calls import call_tool

from toolyard.clients import ConnectionManager
from toolyard.errors import ServerError
from toolyard.types.server import RestartPolicy, Server, State, StdioSpec, Timeouts

pytestmark = pytest.mark.slow

TINY = Path(__file__).parent.parent / "servers" / "tiny_server.py"


class AnyOrder(RuleBasedStateMachine):
    """Every call ends with its result, a typed error or its own cancellation, and nothing leaks."""

    loops = staticmethod(asyncio.new_event_loop)

    def __init__(self) -> None:
        super().__init__()
        self.loop = self.loops()
        self.before = own_descendants()
        self.calls: list[asyncio.Task[Any]] = []
        self.others: list[asyncio.Task[Any]] = []
        self.cancelled: set[int] = set()
        timeouts = Timeouts(connect=60, silence=60, call=60)
        spec = StdioSpec(sys.executable, ("-S", str(TINY)))
        self.manager = ConnectionManager(
            [
                Server("never", spec, timeouts=timeouts),
                Server("again", spec, timeouts=timeouts, restart=RestartPolicy.ON_FAILURE),
                Server("idle", spec, timeouts=timeouts, stop_when_idle=0.01),
            ]
        )

    servers = st.sampled_from(["never", "again", "idle"])

    @rule(server=servers, tool=st.sampled_from(["echo", "echo", "never", "later"]))
    def call(self, server: str, tool: str) -> None:
        self.calls.append(
            self.loop.create_task(call_tool(self.manager, server, tool, {"n": len(self.calls)}))
        )

    @rule(which=st.integers(min_value=0))
    def cancel(self, which: int) -> None:
        if self.calls:
            self.calls[which % len(self.calls)].cancel()
            self.cancelled.add(which % len(self.calls))

    @rule(server=servers)
    def close(self, server: str) -> None:
        self.others.append(self.loop.create_task(self.manager.close(server)))

    @rule(server=servers)
    def restart(self, server: str) -> None:
        self.others.append(self.loop.create_task(self.manager.restart(server)))

    @rule(server=servers)
    def kill(self, server: str) -> None:
        pid = self.manager.status(server).pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.05, 0.2]))
    def time_passes(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def teardown(self) -> None:
        try:
            self.loop.run_until_complete(self._end())
            assert own_descendants() <= self.before
        finally:
            self.loop.close()

    async def _end(self) -> None:
        async with asyncio.timeout(60):
            await asyncio.gather(*self.others)
            # Calls that are never answered end when their connection does.
            await self.manager.close_all()
            for number in range(len(self.calls)):
                await self._check(number)
        for status in self.manager.statuses():
            assert status.state is not State.CONNECTING
            assert status.in_flight == 0
        leftover_tasks = asyncio.all_tasks() - {asyncio.current_task()}
        assert leftover_tasks == set()

    async def _check(self, number: int) -> None:
        try:
            result = await self.calls[number]
            assert result["content"]
        except asyncio.CancelledError:
            assert number in self.cancelled
        except ServerError as error:
            assert error.server  # noqa: PT017


async def first_child() -> None:
    await (await asyncio.create_subprocess_exec("true")).wait()


# libuv creates a pipe for signals with the first child of a process, and keeps it.
uvloop.run(first_child())


class AnyOrderOnUvloop(AnyOrder):
    loops = staticmethod(uvloop.new_event_loop)


# A failure here depends on timing, so it cannot be shrunk, and trying takes longer than a test may.
slowly = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = slowly
TestAnyOrderOnUvloop = AnyOrderOnUvloop.TestCase
TestAnyOrderOnUvloop.settings = slowly
