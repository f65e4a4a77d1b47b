"""A child and its pipes behave the same on every event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from toolyard.transports.stdio.child_process import ChildProcess

pytestmark = pytest.mark.both_loops
Until = Callable[..., Awaitable[None]]


class Parent:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.output = b""
        self.errors = b""
        self.told: list[str] = []

    def on_stdout(self, data: bytes) -> None:
        self.output += data

    def on_stderr(self, data: bytes) -> None:
        self.errors += data

    def on_stdout_closed(self) -> None:
        self.told.append("output ended")

    def on_stderr_closed(self) -> None:
        self.told.append("errors ended")

    def on_exit(self) -> None:
        self.told.append("exited")


@asynccontextmanager
async def run_child(*words: str) -> AsyncIterator[tuple[Parent, ChildProcess]]:
    parent = Parent()
    child = ChildProcess(parent, words, cwd=None, env=dict(os.environ))
    try:
        yield parent, child
    finally:
        child.close()


async def test_written_bytes_come_back_and_every_end_is_reported(wait_until: Until) -> None:
    async with run_child("sh", "-c", "echo oops >&2; cat; exit 3") as (parent, child):
        assert child.write(b"hello\n")
        await wait_until(lambda: parent.output == b"hello\n")
        child.write_eof()
        await wait_until(lambda: len(parent.told) == 3)
        assert sorted(parent.told) == ["errors ended", "exited", "output ended"]
        assert parent.errors == b"oops\n"
        assert child.returncode == 3


async def test_a_death_by_signal_is_a_negative_code(wait_until: Until) -> None:
    async with run_child("sh", "-c", "kill -9 $$") as (parent, child):
        await wait_until(lambda: "exited" in parent.told)
        assert child.returncode == -9


async def test_a_child_gets_three_descriptors_and_a_session_of_its_own(wait_until: Until) -> None:
    with open(os.devnull) as spare:
        os.set_inheritable(spare.fileno(), True)
        async with run_child("sh", "-c", "echo $$; ls /proc/$$/fd; cat") as (parent, child):
            await wait_until(lambda: parent.output.count(b"\n") >= 4)
            pid, *descriptors = parent.output.split()
            assert int(pid) == child.pid == os.getsid(child.pid) == os.getpgid(child.pid)
            assert descriptors == [b"0", b"1", b"2"]


async def test_a_child_that_closes_its_output_is_seen_to_do_so_while_it_lives(wait_until: Until) -> None:
    async with run_child("sh", "-c", "exec >&-; exec sleep 60") as (parent, child):
        await wait_until(lambda: parent.told == ["output ended"])
        assert child.returncode is None


async def test_writing_more_than_is_read_makes_the_writer_wait(wait_until: Until) -> None:
    async with run_child("sh", "-c", "read line; cat") as (parent, child):
        assert child.write(b"x" * 1_000_000)
        flow = asyncio.ensure_future(child.writable.wait())
        await asyncio.wait({flow}, timeout=0.1)
        assert not flow.done()
        assert child.write(b"\n")
        assert child.write(b"the rest\n")
        await asyncio.wait_for(flow, 30)
        child.write_eof()
        await wait_until(lambda: "exited" in parent.told)
        assert parent.output == b"the rest\n"


async def test_bytes_written_before_the_end_are_still_sent(wait_until: Until) -> None:
    async with run_child("sh", "-c", "sleep 0.2; wc -c") as (parent, child):
        child.write(b"x" * 300_000)
        child.write_eof()
        assert not child.write(b"too late")
        await wait_until(lambda: "exited" in parent.told)
        assert parent.output.strip() == b"300000"


async def test_writing_to_a_child_that_no_longer_reads_says_so(wait_until: Until) -> None:
    async with run_child("sh", "-c", "exec <&-; echo closed; exec sleep 60") as (parent, child):
        await wait_until(lambda: parent.output == b"closed\n")
        assert not child.write(b"hello\n")
        assert not child.write(b"hello again\n")
        await child.writable.wait()


async def test_closing_kills_and_lets_go_while_much_is_unsent(wait_until: Until) -> None:
    async with run_child("sleep", "60") as (parent, child):
        child.write(b"x" * 1_000_000)
        child.close()
        await asyncio.wait_for(child.writable.wait(), 30)
        await wait_until(lambda: parent.told == ["exited"])
        assert child.returncode == -9


async def test_an_exit_is_noticed_where_processes_have_no_descriptors(
    wait_until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    async with run_child("sh", "-c", "exit 5") as (parent, child):
        await wait_until(lambda: "exited" in parent.told)
        assert child.returncode == 5


@pytest.mark.parametrize("words", [("/no/such/command",), ("/etc/passwd",), ("sh\0", "-c", "true")])
async def test_a_child_that_cannot_be_started_leaves_nothing(words: tuple[str, ...]) -> None:
    with pytest.raises((OSError, ValueError)):
        ChildProcess(Parent(), words, cwd=None, env={})
