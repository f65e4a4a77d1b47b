"""Tests of the leak detection."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.conftest import ResourceSnapshot


@contextmanager
def run_program(*words: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in its own process group, and end the group with the block."""
    program = subprocess.Popen(
        words, env={**os.environ, **env}, stdout=subprocess.PIPE, start_new_session=True
    )
    assert program.stdout is not None
    try:
        yield program
    finally:
        os.killpg(program.pid, 9)
        program.wait(30)
        program.stdout.close()


def new_processes(before: ResourceSnapshot) -> list[str]:
    return [each for each in ResourceSnapshot.take().describe_growth(before) if each.startswith("process")]


async def test_where_nothing_happened_nothing_is_left() -> None:
    with run_program("sleep", "600"):
        assert ResourceSnapshot.take().describe_growth(ResourceSnapshot.take()) == []


async def test_a_task_and_a_descriptor_are_seen() -> None:
    before = ResourceSnapshot.take()
    task = asyncio.create_task(asyncio.sleep(600), name="forgotten")
    read, write = os.pipe()
    more = ResourceSnapshot.take().describe_growth(before)
    os.close(read)
    os.close(write)
    task.cancel()
    await asyncio.wait({task}, timeout=30)
    assert [each.split()[0] for each in more] == ["task", "descriptor", "descriptor"]
    assert ResourceSnapshot.take().describe_growth(before) == []


async def test_a_child_and_its_descendants_are_seen() -> None:
    before = ResourceSnapshot.take()
    with run_program("sh", "-c", "sleep 600 & echo; wait") as program:
        assert program.stdout is not None
        program.stdout.readline()
        assert len(new_processes(before)) == 2


async def test_an_unreaped_child_is_seen() -> None:
    before = ResourceSnapshot.take()
    program = subprocess.Popen(["true"])
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    assert len(new_processes(before)) == 1
    program.wait()
    assert new_processes(before) == []


@pytest.mark.parametrize("ours", [True, False])
async def test_an_orphan_is_seen_where_it_is_ours(ours: bool) -> None:
    before = ResourceSnapshot.take()
    mark = f"{os.getpid() if ours else 1}:"
    with run_program("sh", "-c", "sleep 600 & echo $!", TOOLYARD_CHILD=mark) as program:
        assert program.stdout is not None
        orphan = int(program.stdout.readline())
        program.wait(30)
        assert [int(each.split()[1][:-1]) for each in new_processes(before)] == ([orphan] if ours else [])
