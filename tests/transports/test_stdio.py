"""The stdio transport alone: what its receiver hears, and what sending after the end says."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.loop_watch import LoopWatch

from toolyard.errors import OutcomeUnknown, Unreachable
from toolyard.transports.stdio.supervisor import ProcessSupervisor
from toolyard.transports.stdio.transport import StdioTransport
from toolyard.types.server import StdioSpec

if TYPE_CHECKING:
    from tests.transports.conftest import RecordingReceiver

pytestmark = pytest.mark.both_loops
Spec = Callable[..., StdioSpec]

HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
CALL = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo"}}


async def test_a_loss_is_told_once_and_nothing_can_be_sent_after_it(
    spec: Spec, process_supervisor: ProcessSupervisor, recorder: RecordingReceiver
) -> None:
    transport = StdioTransport(spec("dies-in-call"), process_supervisor)
    await transport.open(recorder)
    await transport.send(CALL)
    await recorder.next()
    assert [type(loss) for loss in recorder.losses] == [OutcomeUnknown]
    assert recorder.losses[0].cause == "exited with code 9: MemoryError: no more"
    with pytest.raises(Unreachable, match="exited with code 9"):
        await transport.send(CALL)
    await transport.close()
    await transport.close()
    assert len(recorder.losses) == 1
    assert transport.get_info().stderr[-1] == "MemoryError: no more"


async def test_the_most_informative_of_the_last_lines_is_reported(
    process_supervisor: ProcessSupervisor, recorder: RecordingReceiver
) -> None:
    program = "echo 'error: no such agent' >&2; echo 'hint: there are: a, b' >&2; exit 2"
    transport = StdioTransport(StdioSpec("sh", ("-c", program)), process_supervisor)
    await transport.open(recorder)
    await recorder.next()
    assert recorder.losses[0].cause == "exited with code 2: error: no such agent"
    await transport.close()


async def test_a_whole_line_as_the_command_is_told_where_its_words_belong(
    process_supervisor: ProcessSupervisor, recorder: RecordingReceiver
) -> None:
    with pytest.raises(Unreachable, match="command not found: sh -c true") as exc_info:
        await StdioTransport(StdioSpec("sh -c true"), process_supervisor).open(recorder)
    assert exc_info.value.hint == "'command' must be the program alone, sh; put the rest into 'args'"


async def test_nothing_is_heard_after_a_close(
    spec: Spec, process_supervisor: ProcessSupervisor, recorder: RecordingReceiver
) -> None:
    transport = StdioTransport(spec("good"), process_supervisor)
    await transport.open(recorder)
    await transport.send(HELLO)
    await recorder.next()
    await transport.send(CALL)
    await transport.close()
    assert [message["id"] for message in recorder.messages] == [1]
    assert recorder.losses == []
    with pytest.raises(Unreachable, match="the connection is closed"):
        await transport.send(CALL)


async def test_lines_that_are_not_messages_are_counted_and_messages_are_not(
    spec: Spec, process_supervisor: ProcessSupervisor, recorder: RecordingReceiver
) -> None:
    transport = StdioTransport(spec("noise-between"), process_supervisor)
    await transport.open(recorder)
    for _ in range(2):
        await transport.send(HELLO)
    async with asyncio.timeout(30):
        while transport.get_info().skipped_lines < 4 * 7:
            await asyncio.sleep(0.01)
    answers = [m for m in recorder.messages if isinstance(m, dict) and isinstance(m.get("result"), dict)]
    assert [answer["id"] for answer in answers if answer["id"] == 1] == [1, 1]
    await transport.close()


async def test_bytes_of_a_line_without_end_are_counted(
    process_supervisor: ProcessSupervisor, recorder: RecordingReceiver
) -> None:
    program = "while :; do printf %1000d 0; done"
    transport = StdioTransport(StdioSpec("sh", ("-c", program)), process_supervisor, limit=1_000)
    await transport.open(recorder)
    async with asyncio.timeout(30):
        while recorder.stray_bytes < 10_000:
            await asyncio.sleep(0.01)
    await transport.close()


async def test_a_cancelled_close_still_leaves_nothing(
    spec: Spec, process_supervisor: ProcessSupervisor, recorder: RecordingReceiver
) -> None:
    transport = StdioTransport(spec("stubborn-and-silent"), process_supervisor)
    await transport.open(recorder)
    closing = asyncio.ensure_future(transport.close())
    await asyncio.wait({closing}, timeout=0.3)
    closing.cancel()
    await asyncio.wait({closing})
    assert closing.cancelled()


_READS_LATER = """
import os, sys, time
print('{"jsonrpc": "2.0", "id": "begun"}', flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
for number, line in enumerate(sys.stdin.buffer, 1):
    if b'"end"' in line:
        print('{"jsonrpc": "2.0", "id": %d}' % number, flush=True)
"""


async def test_unread_input_of_a_child_is_bounded(
    process_supervisor: ProcessSupervisor, recorder: RecordingReceiver, tmp_path: Path
) -> None:
    words = ("-I", "-S", "-c", _READS_LATER, str(tmp_path / "now"))
    transport = StdioTransport(StdioSpec(sys.executable, words), process_supervisor)
    await transport.open(recorder)
    await recorder.next()
    large = {**CALL, "params": {"name": "echo", "arguments": {"text": "x" * 1_000_000}}}
    first = asyncio.create_task(transport.send(large))
    await asyncio.sleep(0)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await transport.send(large)
    (tmp_path / "now").touch()
    await asyncio.wait_for(first, 30)
    await transport.send({"jsonrpc": "2.0", "method": "end"})
    await recorder.next()
    assert [message["id"] for message in recorder.messages] == ["begun", 2]
    await transport.close()


async def test_the_number_of_a_server_that_exited_stays_its_own_until_its_group_has_ended(
    process_supervisor: ProcessSupervisor, recorder: RecordingReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the group that is signalled could be that of a stranger who got the number meanwhile."""
    transport = StdioTransport(StdioSpec("sh", ("-c", "sleep 600 >&- 2>&- <&- & exit 3")), process_supervisor)
    await transport.open(recorder)
    await recorder.next()
    signals: list[int] = []
    killpg = os.killpg

    def record_signal(group: int, number: int) -> None:
        os.waitid(os.P_PID, group, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # raises if it is not our child
        signals.append(number)
        killpg(group, number)

    monkeypatch.setattr(os, "killpg", record_signal)
    await transport.close()
    assert signal.SIGTERM in signals
    assert "exited with code 3" in str(recorder.losses[0])


async def test_very_many_lines_of_one_read_are_handled_in_several_turns(
    process_supervisor: ProcessSupervisor, recorder: RecordingReceiver
) -> None:
    program = (
        "import sys; sys.stdout.write('{}\\n' * 40_000 + '{\"last\": 1}\\n'); sys.stdout.flush(); input()"
    )
    transport = StdioTransport(StdioSpec(sys.executable, ("-I", "-S", "-c", program)), process_supervisor)
    heard_by_turn: Counter[int] = Counter()
    async with LoopWatch() as watch:
        record = recorder.on_message

        def count_and_record(message: object, size: int = 0) -> None:
            heard_by_turn[watch.turns] += 1
            record(message, size)

        recorder.on_message = count_and_record
        await transport.open(recorder)
        async with asyncio.timeout(60):
            while {"last": 1} not in recorder.messages[-1:]:
                await recorder.next()
    assert heard_by_turn.total() == 40_001
    # A step of the reader and one of the task that follows it may share a turn.
    assert max(heard_by_turn.values()) <= 2 * 2_000
    await transport.close()


async def test_a_cancelled_close_leaves_not_even_a_zombie(
    process_supervisor: ProcessSupervisor, recorder: RecordingReceiver
) -> None:
    transport = StdioTransport(StdioSpec("sleep", ("600",)), process_supervisor)
    await transport.open(recorder)
    pid = transport.get_info().pid
    assert pid is not None
    close = asyncio.create_task(transport.close())
    await asyncio.sleep(0)
    close.cancel()
    with pytest.raises(asyncio.CancelledError):
        await close
    assert not psutil.pid_exists(pid)


async def test_a_close_that_is_cancelled_as_the_child_exits_ends_as_cancelled(
    process_supervisor: ProcessSupervisor, recorder: RecordingReceiver
) -> None:
    transport = StdioTransport(StdioSpec("sleep", ("600",)), process_supervisor)
    await transport.open(recorder)
    close = asyncio.create_task(transport.close())
    await asyncio.sleep(0.05)
    transport.on_exit()
    await asyncio.sleep(0)
    close.cancel()
    with pytest.raises(asyncio.CancelledError):
        await close
