"""Faults of servers that are child processes."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import psutil
from tests.faults.suite import CaseContext, call, case, child, describe_outcome, open_with_good_server

from toolyard import Toolyard

GROUP = "Child processes"


def pid_of(yard: Toolyard) -> int:
    (status,) = [each for each in yard.servers() if each.server == "bad"]
    assert status.pid is not None
    return status.pid


@case(GROUP, "killed in the middle of a call")
async def kill_server(room: CaseContext) -> str:
    async with open_with_good_server(room, child("steps-tool")) as yard:
        await call(yard)
        begun = asyncio.Event()
        steps = {"count": 50, "every": 0.1}
        work = yard.call("bad_steps", steps, on_progress=lambda *_: begun.set())
        task = asyncio.create_task(describe_outcome(work))
        await begun.wait()
        os.kill(pid_of(yard), signal.SIGKILL)
        error_text = await task
        assert error_text.startswith("OutcomeUnknown"), error_text
        await yard.restart("bad")
        assert await call(yard) == "works: hello"
        return f"{error_text}; after Restart it works"


@case(GROUP, "stopped (SIGSTOP)")
async def stop_server(room: CaseContext) -> str:
    async with open_with_good_server(room, child("good")) as yard:
        await call(yard)
        pid = pid_of(yard)
        os.kill(pid, signal.SIGSTOP)
        error_text = await call(yard)
        assert error_text.startswith("CallTimeout"), error_text
        return error_text


def plain(fault: str, mode: str, expected: str, *more: str, arguments: dict[str, Any] | None = None) -> None:
    @case(GROUP, fault)
    async def run(room: CaseContext) -> str:
        async with open_with_good_server(room, child(mode, *more)) as yard:
            outcome = await describe_outcome(yard.call("bad_echo", {"text": "hello", **(arguments or {})}))
            assert expected in outcome, outcome
            return outcome


plain("exits at the start", "exit-at-start", "Unreachable")
plain("exits on the probe for the protocol's era", "exit-on-probe", "works: hello")
plain("is killed at the start", "killed-at-start", "Unreachable")
plain("closes its output and lives on", "closes-output-in-call", "OutcomeUnknown")
plain("closes its output at the start", "closes-output-at-start", "Unreachable")
plain("closes its input and lives on", "closes-input", "works: hello")
plain("exits while its own child holds the output open", "exits-but-output-is-held", "OutcomeUnknown")
plain("dies in a call", "dies-in-call", "OutcomeUnknown")
plain("floods stderr with 100,000 lines", "stderr-flood", "works: hello")
plain("floods its output with noise", "large-noise", "Unreachable: was disconnected: it sent more than")
plain("writes nothing but noise", "only-noise", "Unreachable")
plain("writes bytes that are no text", "binary", "Unreachable")
plain("writes half a message and exits", "half-message", "OutcomeUnknown")
plain("answers in one line of 50 MB", "big-line", "works: ", arguments={"size": 50_000_000})
plain("reads no more", "deaf", "CallTimeout", "--modern", arguments={"text": "x" * 1_000_000})


@case(GROUP, "forks and leaves children in sessions of their own")
async def family(room: CaseContext) -> str:
    journal = room.folder / "journal"
    async with open_with_good_server(room, child("family", "--journal", str(journal))) as yard:
        error_text = await call(yard)
    assert error_text == "works: hello", error_text
    pids = [int(part.split(":")[1].split(",")[0]) for part in journal.read_text().split('"process"')[1:]]
    alive = [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]
    assert len(pids) == 2
    assert alive == [], f"still there: {alive}"
    return f"{error_text}; after the end nothing of its family is left"


@case(GROUP, "stays when told to go")
async def stubborn(room: CaseContext) -> str:
    async with open_with_good_server(room, child("stubborn")) as yard:
        pid = 0
        error_text = await call(yard)
        pid = pid_of(yard)
    assert not psutil.pid_exists(pid)
    return f"{error_text}; killed at the end"


@case(GROUP, "the command does not exist")
async def missing(room: CaseContext) -> str:
    async with open_with_good_server(room, {"type": "stdio", "command": "no-such-command-here"}) as yard:
        error_text = await call(yard)
    assert "no-such-command-here" in error_text, error_text
    return error_text
