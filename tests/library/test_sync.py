"""The yard for programs without an event loop: any thread may call, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from toolyard import (
    AgentsError,
    CallTimeout,
    ConfigError,
    OutcomeUnknown,
    RpcError,
    State,
    Timeouts,
    ToolRefused,
    Toolyard,
    Unreachable,
)
from toolyard.library import SyncToolyard
from toolyard.types.call import ApprovalRequest, Verdict

Recorders = Callable[..., Any]


@pytest.fixture
def open_sync_yard(data_dir: Path) -> Callable[..., SyncToolyard]:
    def make(servers: dict[str, Any], **options: Any) -> SyncToolyard:
        entries = {key: one if isinstance(one, dict) else one.entry for key, one in servers.items()}
        return Toolyard.open_sync({"mcpServers": entries}, **{"data_dir": data_dir, **options})

    return make


OpenYard = Callable[..., SyncToolyard]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive(), thread.name


def eventually(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {seconds:g} s"
        time.sleep(0.01)


@contextmanager
def thread(work: Callable[[], object]) -> Iterator[list[object]]:
    """Work in a thread of its own; what it returned or raised stands in the list when it is done."""
    ends: list[object] = []

    def run() -> None:
        try:
            ends.append(work())
        except BaseException as error:
            ends.append(error)

    worker = threading.Thread(target=run)
    worker.start()
    yield ends
    worker.join(30)
    assert not worker.is_alive()


def test_it_has_the_methods_of_the_yard_each_with_its_result(
    open_sync_yard: OpenYard, recorder: Recorders
) -> None:
    with open_sync_yard({"one": recorder()}) as yard:
        assert "one_echo" in [tool.name for tool in yard.tools()]
        assert [tool["name"] for tool in yard.tools(provider="anthropic")] == [t.name for t in yard.tools()]
        assert yard.call("one_echo", {"text": "x"}).text == "x"
        assert yard.answer("one_touch").is_error
        assert yard.why("one_touch").verdict is Verdict.REFUSE
        assert yard.find("one_look").id == "one/look"
        assert "one_touch" in yard.known().tools
        assert [status.state for status in yard.servers()] == [State.READY]
        yard.restart("one")
        assert [status.state for status in yard.servers()] == [State.IDLE]
        assert [status.state for status in yard.connect()] == [State.READY]
        yard.close("one")
        assert [status.state for status in yard.servers()] == [State.IDLE]
        with pytest.raises(Unreachable, match="not configured"):
            yard.close("absent")
        assert yard.call("one_echo", {"text": "again"}).text == "again"


def test_every_public_method_of_the_yard_is_there() -> None:
    def public(kind: type) -> set[str]:
        return {name for name, value in vars(kind).items() if not name.startswith("_") and callable(value)}

    assert public(Toolyard) - {"open", "open_sync", "caller"} <= public(SyncToolyard)


def test_many_threads_call_at_once_and_share_one_server(
    open_sync_yard: OpenYard, recorder: Recorders
) -> None:
    one = recorder()
    with open_sync_yard({"one": one}) as yard, ThreadPoolExecutor(8) as pool:
        texts = [
            result.text
            for result in pool.map(lambda n: yard.call("one_echo", {"text": str(n)}), range(100), timeout=30)
        ]
    assert texts == [str(number) for number in range(100)]
    assert len(one.starts()) == 1


def test_errors_cross_threads_as_they_are(open_sync_yard: OpenYard, recorder: Recorders) -> None:
    with open_sync_yard({"one": recorder(), "gone": {"command": "/no/such/command"}}) as yard:
        with pytest.raises(ToolRefused, match="no tool named 'one_nothing' is available"):
            yard.call("one_nothing")
        with pytest.raises(RpcError) as exc_info:
            yard.call("one_refuse", {"text": "no", "data": [1]})
        assert (exc_info.value.code, exc_info.value.data) == (-32602, [1])
        with pytest.raises(Unreachable, match="command not found"):
            yard.call("gone_tool")
        with pytest.raises(CallTimeout):
            yard.call("one_wait", timeouts=Timeouts(silence=0.2))
        with pytest.raises(AgentsError):
            yard.tools(agent="nobody")
        with pytest.raises(ToolRefused):
            yard.why("one_nothing")


def test_a_configuration_that_is_wrong_is_an_error_and_leaves_no_thread(open_sync_yard: OpenYard) -> None:
    with (
        pytest.raises(ConfigError),
        open_sync_yard({"one": {"url": "http://localhost"}}, settings={"nonsense": 1}),
    ):
        pytest.fail("was opened")


def test_it_works_inside_a_running_event_loop(open_sync_yard: OpenYard, recorder: Recorders) -> None:
    async def program() -> str:
        with open_sync_yard({"one": recorder()}) as yard:
            return yard.call("one_echo", {"text": "x"}).text

    with asyncio.Runner() as runner:
        assert runner.run(program()) == "x"


def test_progress_and_approvals_are_told_in_the_yards_own_thread(
    open_sync_yard: OpenYard, recorder: Recorders
) -> None:
    progress_events: list[tuple[Any, str]] = []

    async def approve(question: ApprovalRequest) -> bool:
        progress_events.append((question.decision.tool, threading.current_thread().name))
        return True

    with open_sync_yard({"one": recorder()}, settings={"write_tools": "ask"}, approve=approve) as yard:
        yard.call("one_touch")
        yard.call(
            "one_steps",
            {"count": 2},
            on_progress=lambda params: progress_events.append(
                (params["progress"], threading.current_thread().name)
            ),
        )
    assert progress_events == [("one/touch", "toolyard"), (1, "toolyard"), (2, "toolyard")]


def test_in_its_own_thread_it_refuses_to_wait_for_itself(
    open_sync_yard: OpenYard, recorder: Recorders
) -> None:
    ends: list[BaseException] = []
    with open_sync_yard({"one": recorder()}) as yard:

        def again(params: Any) -> None:
            for use in (lambda: yard.call("one_echo"), yard.tools, yard.close):
                try:
                    use()
                except RuntimeError as error:
                    ends.append(error)

        assert yard.call("one_steps", {"count": 1}, on_progress=again).text == "done"
        assert yard.call("one_echo", {"text": "still open"}).text == "still open"
    assert len(ends) == 3
    assert all("own background thread" in str(end) for end in ends)


def test_before_it_is_opened_and_after_it_is_closed_it_says_so(
    open_sync_yard: OpenYard, recorder: Recorders
) -> None:
    yard = open_sync_yard({"one": recorder()})
    uses: list[Callable[[], object]] = [
        lambda: yard.call("one_echo"),
        lambda: yard.answer("one_echo"),
        lambda: yard.why("one_echo"),
        lambda: yard.restart("one"),
        yard.tools,
        yard.servers,
        yard.connect,
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match="Toolyard is not open"):
            use()
    with yard:
        yard.call("one_echo")
    yard.close()
    for use in uses:
        with pytest.raises(RuntimeError, match="Toolyard is not open"):
            use()


def test_a_closed_yard_may_be_opened_again(open_sync_yard: OpenYard, recorder: Recorders) -> None:
    one = recorder()
    yard = open_sync_yard({"one": one})
    for _ in range(2):
        with yard:
            assert yard.call("one_echo", {"text": "x"}).text == "x"
    assert len(one.starts()) == 2


def test_closing_ends_the_calls_of_other_threads(
    open_sync_yard: OpenYard, recorder: Recorders, hostile_stdio: str
) -> None:
    one = recorder()
    silent = {"command": sys.executable, "args": ["-I", "-S", hostile_stdio, "silent"]}
    yard = open_sync_yard({"one": one, "late": silent})
    with (
        yard,
        thread(lambda: yard.call("one_wait")) as call_thread,
        thread(lambda: yard.call("late_x")) as late,
    ):
        eventually(lambda: one.calls())
        eventually(lambda: State.CONNECTING in [status.state for status in yard.servers()])
        yard.close()
    assert [type(end) for end in (*call_thread, *late)] == [OutcomeUnknown, Unreachable]


def test_closing_ends_a_call_that_waits_for_somebodys_approval(
    open_sync_yard: OpenYard, recorder: Recorders
) -> None:
    request_received = threading.Event()

    async def approve(question: ApprovalRequest) -> bool:
        request_received.set()
        return await asyncio.get_running_loop().create_future()

    yard = open_sync_yard({"one": recorder()}, settings={"write_tools": "ask"}, approve=approve)
    with yard, thread(lambda: yard.call("one_touch")) as ends:
        assert request_received.wait(30)
        yard.close()
    assert [type(end) for end in ends] == [Unreachable]


def test_threads_that_call_while_it_closes_all_end(open_sync_yard: OpenYard, recorder: Recorders) -> None:
    ends: Counter[str] = Counter()
    going = threading.Event()
    yard = open_sync_yard({"one": recorder()})

    def call() -> None:
        while True:
            try:
                yard.call("one_echo")
                ends["ok"] += 1
                going.set()
            except (Unreachable, OutcomeUnknown, RuntimeError) as error:
                ends[type(error).__name__] += 1
                return

    with yard, thread(call), thread(call), thread(call), thread(call):
        assert going.wait(30)
        yard.close()
    assert ends["ok"] > 0
    assert ends.total() - ends["ok"] == 4


def test_two_threads_may_close_it_at_once(open_sync_yard: OpenYard, recorder: Recorders) -> None:
    one = recorder("one", "--stay")
    with open_sync_yard({"one": one}) as yard:
        yard.call("one_echo")
        with thread(yard.close) as first, thread(yard.close) as second:
            pass
    assert (first, second) == ([None], [None])
    assert {"told_to_go": True} in one.notes()


INTERRUPTED_PROGRAM = """
import json, sys
from toolyard import Toolyard

with Toolyard.open_sync(json.loads(sys.argv[1]), data_dir=sys.argv[2]) as yard:
    print("ready", flush=True)
    try:
        yard.call("one_wait")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(yard.call("one_echo", {"text": "and goes on"}).text, flush=True)
"""


def test_an_interrupt_ends_the_call_and_the_server_is_told(recorder: Recorders, data_dir: Path) -> None:
    one = recorder()
    config = json.dumps({"mcpServers": {"one": one.entry}})
    words = [sys.executable, "-c", INTERRUPTED_PROGRAM, config, str(data_dir)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        try:
            eventually(lambda: one.calls() == ["wait"], 20)
            program.send_signal(signal.SIGINT)
            output, _ = program.communicate(timeout=30)
        finally:
            program.kill()
    assert output == "ready\ninterrupted\nand goes on\n"
    assert program.returncode == 0
    assert len(one.messages("notifications/cancelled")) == 1
