"""Child processes that misbehave: each status has a one-sentence cause, calls end, other servers keep
working.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.processes import is_running, own_descendants
from tests.tool_calls import call_tool

from toolyard.clients import Callbacks, ConnectionManager, EraCache
from toolyard.clients.connector import ConnectionManagerLimits
from toolyard.clients.process_pool import ProcessPool
from toolyard.clients.unsolicited_traffic import TrafficLimits
from toolyard.errors import BadAnswer, CallTimeout, OutcomeUnknown, RpcError, ServerError, Unreachable
from toolyard.transports.memory import MemoryTransport
from toolyard.transports.transport import LogTail
from toolyard.types.server import RestartPolicy, Server, State, StdioSpec, Timeouts

if TYPE_CHECKING:
    from tests.clients.conftest import Journal

Bad = Callable[..., Server]
Beside = Callable[..., AbstractAsyncContextManager[ConnectionManager]]
Within = Callable[[float], AbstractContextManager[None]]
Says = Callable[[Any, str], None]
Until = Callable[..., Any]

pytestmark = pytest.mark.both_loops
one_loop = pytest.mark.asyncio(loop_factories=["asyncio"])


def text_of(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


# Servers that never become ready.

UNUSABLE = {
    "cat": "echoes its input back",
    "exit-at-start": "exited with code 3: cannot open the database",
    "killed-at-start": "was killed by SIGSEGV",
    "only-noise": "did not answer within 4 s; lines on its stdout that are not MCP messages: ",
    "silent": "did not answer within 1 s",
    "binary": "did not answer within 1 s",
    "http-bytes": "did not answer within 4 s; lines on its stdout that are not MCP messages: ",
    "content-length": "did not answer within 4 s; lines on its stdout that are not MCP messages: ",
    "closes-output-at-start": "closed its standard output but is still running",
    "wrong-handshake": "'1999-01-01', which Toolyard does not support",
    "slow-start": "did not answer within 1 s",
}


def unusable(bad: Bad, mode: str, id: str = "bad") -> Server:
    words = UNUSABLE[mode]
    if "did not answer" not in words:
        return bad(mode, id=id)
    # The answer must arrive in time on a busy machine as well.
    return bad(mode, id=id, timeouts=Timeouts(4.0 if "lines" in words else 1.0, 0.5, 2.0))


@pytest.mark.parametrize("mode", UNUSABLE)
async def test_a_server_that_cannot_be_used_says_why_and_the_others_work(
    mode: str, bad: Bad, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    async with open_manager(unusable(bad, mode)) as manager:
        with max_duration(5), pytest.raises((Unreachable, BadAnswer)) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, UNUSABLE[mode])
        status = manager.status("bad")
        assert status.state is State.FAILED
        assert_cause(status, UNUSABLE[mode])
        assert status.pid is None


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("no-such-command-anywhere", "command not found: no-such-command-anywhere"),
        ("/no/such/file", "command not found: /no/such/file"),
        ("/etc/passwd", "no permission to run /etc/passwd"),
        ("/etc", "/etc is a folder"),
        ("/bin/cat", "echoes its input back"),
        ("/bin/true", "exited with code 0"),
        ("/bin/false", "exited with code 1"),
        ("nul\0byte", "could not start"),
    ],
)
async def test_a_command_that_cannot_be_run_is_named(
    command: str, words: str, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    async with open_manager(Server("bad", StdioSpec(command))) as manager:
        with max_duration(5), pytest.raises(Unreachable) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, words)
        assert_cause(manager.status("bad"), words)


@one_loop
async def test_a_script_without_an_interpreter_line_and_a_missing_folder_are_named(
    tmp_path: Path, open_manager: Beside, assert_cause: Says
) -> None:
    script = tmp_path / "script"
    script.write_text("hello")
    script.chmod(0o755)
    plain = Server("bad", StdioSpec(str(script)))
    server = Server("lost", StdioSpec("/bin/cat", cwd=str(tmp_path / "gone")))
    wrong = Server("wrong", StdioSpec("/bin/cat", cwd=str(script)))
    async with open_manager(plain, server, wrong) as manager:
        await manager.connect()
        assert_cause(manager.status("wrong"), f"the working directory {script} is not a folder")
        assert_cause(manager.status("bad"), "is not a program that can run here")
        assert_cause(manager.status("lost"), f"the working directory {tmp_path / 'gone'} does not exist")


async def test_many_bad_servers_at_once_fail_alone(
    bad: Bad, open_manager: Beside, max_duration: Within
) -> None:
    async with open_manager(*(unusable(bad, mode, id=mode) for mode in UNUSABLE)) as manager:
        with max_duration(10):
            records = {record.server: record for record in await manager.connect()}
        assert records.pop("good").state is State.READY
        assert {record.state for record in records.values()} == {State.FAILED}
        for mode, record in records.items():
            assert record.cause is not None
            assert UNUSABLE[mode] in record.cause


# Servers that are odd but usable.


@pytest.mark.parametrize("flags", [(), ("--modern",)], ids=["legacy", "modern"])
@pytest.mark.parametrize("mode", ["good", "noise-between", "crlf", "string-ids", "unknown-ids", "twice"])
async def test_an_odd_server_is_understood(
    mode: str, flags: tuple[str, ...], bad: Bad, open_manager: Beside
) -> None:
    async with open_manager(bad(mode, *flags)) as manager:
        assert (await manager.list_tools("bad")).items == [
            {"name": "echo", "inputSchema": {"type": "object"}}
        ]
        for number in range(3):
            assert text_of(await call_tool(manager, "bad", "echo", {"text": str(number)})) == str(number)
        status = manager.status("bad")
        assert status.state is State.READY
        assert status.protocol_version == ("2026-07-28" if flags else "2025-06-18")
        assert (status.noise > 0) == (mode == "noise-between")


async def test_a_server_that_exits_on_the_probe_is_started_again_as_a_legacy_server(
    bad: Bad, journal: Journal, open_manager: Beside
) -> None:
    async with open_manager(bad("exit-on-probe")) as manager:
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "hello"})) == "hello"
        assert len(journal.starts()) == 2
        await manager.close("bad")
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "again"})) == "again"
        assert len(journal.starts()) == 3
        assert len(journal.messages("server/discover")) == 1


@one_loop
@pytest.mark.parametrize("flags", [(), ("--modern",)], ids=["legacy", "modern"])
async def test_a_server_that_needs_four_seconds_to_start_is_waited_for(
    flags: tuple[str, ...], bad: Bad, journal: Journal, open_manager: Beside
) -> None:
    slow = bad("slow-start", "--seconds", "4", *flags, timeouts=Timeouts(connect=120))
    async with open_manager(slow) as manager:
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "hello"})) == "hello"
        assert len(journal.starts()) == 1
        assert manager.status("bad").protocol_version == ("2026-07-28" if flags else "2025-06-18")


async def test_a_line_of_fifty_megabytes_is_taken_in(
    bad: Bad, open_manager: Beside, max_duration: Within
) -> None:
    async with open_manager(bad("big-line")) as manager:
        with max_duration(15):
            result = await call_tool(manager, "bad", "big", {"size": 50_000_000})
        assert len(text_of(result)) == 50_000_000


@pytest.mark.parametrize("id_last", [False, True])
async def test_a_line_over_the_limit_ends_its_call_alone(
    id_last: bool, bad: Bad, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    async with open_manager(bad("big-line"), message_limit=1_000_000) as manager:
        result_task = asyncio.ensure_future(
            call_tool(manager, "bad", "wait", timeouts=Timeouts(120, 120, 120))
        )
        with max_duration(5), pytest.raises(BadAnswer) as exc_info:
            await call_tool(manager, "bad", "big", {"size": 3_000_000, "id_last": id_last})
        assert_cause(exc_info.value, "bytes, over the limit of 1000000")
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "next"})) == "next"
        assert not result_task.done()
        result_task.cancel()


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc": "2.0", "id": #, "result": {"content": [], "structuredContent": {"n": NaN}}}',
        '{"result": {"structuredContent": {"id": 1, "n": Infinity}}, "jsonrpc": "2.0", "id": #}',
        '{"id":#,"jsonrpc":"2.0","result":{"a":' + "[" * 5000 + "]" * 5000 + "}}",
        '{"id":"#","result":{"n":' + "9" * 5000 + "}}",
    ],
    ids=["nan", "id-last", "deep", "digits"],
)
async def test_an_answer_that_is_not_json_ends_only_its_call_and_at_once(
    line: str, bad: Bad, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    async with open_manager(bad("unreadable")) as manager:
        result_task = asyncio.ensure_future(call_tool(manager, "bad", "wait"))
        with max_duration(20), pytest.raises(BadAnswer) as exc_info:
            await call_tool(manager, "bad", "echo", {"line": line})
        assert_cause(exc_info.value, "sent a response that is not JSON: {")
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "next"})) == "next"
        assert not result_task.done()
        result_task.cancel()


@one_loop
async def test_a_cursor_that_repeats_for_ever_is_followed_once(
    bad: Bad, open_manager: Beside, max_duration: Within
) -> None:
    async with open_manager(bad("repeated-cursor")) as manager:
        with max_duration(2):
            listing = await manager.list_tools("bad")
        assert len(listing.items) == 2
        assert listing.warnings == ["tools/list repeats the cursor 'again'; stopped there"]


@one_loop
async def test_cursors_without_end_are_followed_so_far(
    bad: Bad, open_manager: Beside, max_duration: Within
) -> None:
    async with open_manager(bad("endless-cursors")) as manager:
        with max_duration(10):
            listing = await manager.list_tools("bad")
        assert len(listing.items) == 1000
        assert listing.warnings == ["tools/list does not end; stopped after 1000 entries"]


async def test_ten_thousand_tools_are_listed(bad: Bad, open_manager: Beside, max_duration: Within) -> None:
    async with open_manager(bad("many-tools")) as manager:
        with max_duration(5):
            listing = await manager.list_tools("bad")
        assert len({tool["name"] for tool in listing.items}) == 10_000
        assert manager.status("bad").tool_count == 10_000


async def test_a_flood_of_notifications_does_not_drown_the_answer(bad: Bad, open_manager: Beside) -> None:
    notifications: list[Any] = []
    callbacks = Callbacks(log=lambda server, params: notifications.append(params["data"]))
    limits = TrafficLimits(messages=20_000)
    async with open_manager(bad("notification-flood"), callbacks=callbacks, traffic=limits) as manager:
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "dry"})) == "dry"
        assert len(notifications) == 20_000


async def test_a_flood_on_standard_error_is_kept_to_its_last_lines(
    bad: Bad, open_manager: Beside, wait_until: Until
) -> None:
    async with open_manager(bad("stderr-flood")) as manager:
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "dry"})) == "dry"
        await wait_until(lambda: manager.status("bad").stderr[-1:] == ("the last line",))
        lines, most = manager.status("bad").stderr, LogTail().max_lines
        assert len(lines) == most
        assert lines[0] == f"line {50_002 - most} of very many that nobody reads"
        assert all(len(line) <= 2000 for line in lines)


SHAPES = [
    ({"result": None}, "the result is not an object"),
    ({"result": []}, "the result is not an object"),
    ({"result": "done"}, "the result is not an object"),
    ({"error": "broken"}, "an error that is not an object: 'broken'"),
    ({"error": None}, "an error that is not an object"),
    ({"error": {"message": "broken"}}, "broken"),
    ({"error": {"code": "x", "message": 5}}, "no message"),
    ({"result": {"resultType": "strange"}}, "a result of the unknown type 'strange'"),
    ({"result": {"resultType": "input_required"}}, "requires input for tools/call but does not say which"),
]


@pytest.mark.parametrize(("message", "words"), SHAPES)
@one_loop
async def test_a_result_of_the_wrong_shape_is_a_bad_answer(
    message: dict[str, Any], words: str, bad: Bad, open_manager: Beside, assert_cause: Says
) -> None:
    async with open_manager(bad("verbatim-replies")) as manager:
        with pytest.raises(BadAnswer) as exc_info:
            await call_tool(manager, "bad", "raw", {"message": message})
        assert_cause(exc_info.value, words)
        with pytest.raises(BadAnswer) as exc_info:
            await manager.list_tools("bad")
        assert_cause(exc_info.value, "answered tools/list without a list of tools")
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "next"})) == "next"


@one_loop
async def test_an_error_of_the_server_is_passed_on_in_full(bad: Bad, open_manager: Beside) -> None:
    error = {"code": -32050, "message": "no such row", "data": {"row": 5}}
    async with open_manager(bad("verbatim-replies")) as manager:
        with pytest.raises(RpcError) as exc_info:
            await call_tool(manager, "bad", "raw", {"message": {"error": error}})
        assert (exc_info.value.code, exc_info.value.message, exc_info.value.data) == (
            -32050,
            "no such row",
            {"row": 5},
        )


@one_loop
async def test_of_an_error_without_end_there_is_head_and_tail(bad: Bad, open_manager: Beside) -> None:
    words = "first " + "x" * 3_000_000 + " last"
    error = {"code": -32050, "message": words, "data": {"rows": [words]}}
    async with open_manager(bad("verbatim-replies")) as manager:
        with pytest.raises(RpcError) as exc_info:
            await call_tool(manager, "bad", "raw", {"message": {"error": error}})
    for text in (exc_info.value.message, exc_info.value.data):
        assert len(text) <= 100_000
        assert "first " in text[:50]
        assert " last" in text[-50:]
        assert "characters are omitted here" in text


@one_loop
async def test_an_answer_with_neither_result_nor_error_is_none(bad: Bad, open_manager: Beside) -> None:
    async with open_manager(bad("verbatim-replies")) as manager:
        with pytest.raises(CallTimeout):
            await call_tool(
                manager, "bad", "raw", {"message": {"jsonrpc": "2.0"}}, timeouts=Timeouts(120, 0.5, 5)
            )


# Unanswered calls end.


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("dies-in-call", "exited with code 9: MemoryError: no more"),
        ("half-message", "exited with code 0"),
        ("closes-output-in-call", "closed its standard output but is still running"),
        ("exits-but-output-is-held", "exited with code 4"),
    ],
)
@pytest.mark.parametrize("processes", [0.3], indirect=True)
async def test_a_server_that_ends_in_the_middle_of_calls_leaves_their_outcome_unknown(
    mode: str,
    words: str,
    bad: Bad,
    open_manager: Beside,
    max_duration: Within,
    assert_cause: Says,
    processes: ProcessPool,
) -> None:
    async with open_manager(bad(mode), processes=processes) as manager:
        await manager.list_tools("bad")
        with max_duration(3):
            ends = await asyncio.gather(
                *(call_tool(manager, "bad", "echo", repeatable=True) for _ in range(5)),
                return_exceptions=True,
            )
        assert isinstance(ends[0], OutcomeUnknown)
        for end in ends:
            # Calls that were not written in time are known not to have been executed.
            assert isinstance(end, OutcomeUnknown | Unreachable)
            assert_cause(end, words)
        status = manager.status("bad")
        assert status.state is State.FAILED
        assert_cause(status, words)
        with max_duration(0.5), pytest.raises(Unreachable) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, words)
        assert '"restart": "on-failure"' in str(exc_info.value.hint)
        assert status.connects == 1


async def test_a_server_that_closes_its_input_is_given_up_at_the_next_call(
    bad: Bad, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    async with open_manager(bad("closes-input")) as manager:
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "last"})) == "last"
        with max_duration(1), pytest.raises(Unreachable) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, "closed its standard input but is still running")
        assert_cause(manager.status("bad"), "closed its standard input but is still running")


async def test_an_answer_without_its_line_feed_counts(bad: Bad, open_manager: Beside) -> None:
    async with open_manager(bad("whole-message-then-exit")) as manager:
        assert await call_tool(manager, "bad", "echo") == {"content": []}


@pytest.mark.parametrize("flags", [(), ("--modern",)], ids=["legacy", "modern"])
async def test_a_call_that_is_not_answered_times_out_and_the_server_is_told(
    flags: tuple[str, ...],
    bad: Bad,
    journal: Journal,
    open_manager: Beside,
    max_duration: Within,
    assert_cause: Says,
    wait_until: Until,
) -> None:
    async with open_manager(bad("good", *flags, timeouts=Timeouts(120, 0.5, 5))) as manager:
        await manager.ensure_connected("bad")
        with max_duration(1.5), pytest.raises(CallTimeout) as exc_info:
            await call_tool(manager, "bad", "wait")
        assert_cause(exc_info.value, "tools/call: no response or progress for 0.5 s")
        await wait_until(lambda: journal.messages("notifications/cancelled"))
        id = journal.messages("tools/call")[0]["id"]
        assert journal.messages("notifications/cancelled")[0]["params"]["requestId"] == id
        assert manager.status("bad").state is State.READY


async def test_a_cancelled_call_reaches_the_server_and_touches_no_other(
    bad: Bad, journal: Journal, open_manager: Beside, wait_until: Until
) -> None:
    async with open_manager(bad("good")) as manager:
        await manager.ensure_connected("bad")
        one, other = (asyncio.ensure_future(call_tool(manager, "bad", "wait")) for _ in range(2))
        await wait_until(lambda: len(journal.messages("tools/call")) == 2)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        await wait_until(lambda: journal.messages("notifications/cancelled"))
        ids = [message["id"] for message in journal.messages("tools/call")]
        request_ids = [m["params"]["requestId"] for m in journal.messages("notifications/cancelled")]
        assert request_ids == ids[:1]
        assert not other.done()
        other.cancel()


@one_loop
async def test_progress_keeps_a_call_alive_past_the_silence_timeout(bad: Bad, open_manager: Beside) -> None:
    progress_values: list[float] = []
    async with open_manager(bad("good", timeouts=Timeouts(120, 2.0, 60))) as manager:
        result = await call_tool(
            manager,
            "bad",
            "steps",
            {"count": 6, "every": 0.5},
            on_progress=lambda params: progress_values.append(params["progress"]),
        )
    assert text_of(result) == "done"
    assert progress_values == [1, 2, 3, 4, 5, 6]


@one_loop
async def test_progress_does_not_help_past_the_absolute_cap(
    bad: Bad, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    async with open_manager(bad("good", timeouts=Timeouts(120, 2.0, 3.0))) as manager:
        with max_duration(3), pytest.raises(CallTimeout) as exc_info:
            await call_tool(manager, "bad", "steps", {"count": 1000, "every": 0.1})
        assert_cause(exc_info.value, "tools/call took longer than 3 s in all")


async def test_a_server_that_does_not_read_makes_a_big_call_time_out(
    bad: Bad, open_manager: Beside, max_duration: Within, assert_cause: Says
) -> None:
    async with open_manager(bad("deaf")) as manager:
        await manager.list_tools("bad")
        text, limits = "x" * 5_000_000, Timeouts(120, 1, 60)
        with max_duration(3):
            ends = await asyncio.gather(
                *(call_tool(manager, "bad", "echo", {"text": text}, timeouts=limits) for _ in range(3)),
                return_exceptions=True,
            )
        for end in ends:
            assert isinstance(end, CallTimeout)
            assert_cause(end, "no response or progress for 1 s")


async def test_a_servers_requests_are_answered_and_unadvertised_ones_refused(
    bad: Bad, open_manager: Beside
) -> None:
    async def elicit(server: str, params: Any) -> dict[str, Any]:
        return {"action": "accept", "content": {"asked": params["message"], "by": server}}

    async def roots(server: str, params: Any) -> dict[str, Any]:
        raise ValueError("no folders today")

    callbacks = Callbacks(elicitation=elicit, roots=roots)
    async with open_manager(bad("asks"), callbacks=callbacks) as manager:
        document = json.loads(text_of(await call_tool(manager, "bad", "echo")))
    assert document["ping"]["result"] == {}
    elicitation_result = {"action": "accept", "content": {"asked": "Who are you?", "by": "bad"}}
    assert document["elicitation/create"]["result"] == elicitation_result
    assert document["roots/list"]["error"] == {
        "code": -32603,
        "message": "the callback for roots/list failed: ValueError: no folders today",
    }
    assert document["sampling/createMessage"]["error"]["code"] == -32601


@one_loop
async def test_while_a_server_waits_for_us_its_silence_does_not_count(bad: Bad, open_manager: Beside) -> None:
    async def elicit(server: str, params: Any) -> dict[str, Any]:
        await asyncio.sleep(3.0)
        return {"action": "decline"}

    asks = bad("asks", timeouts=Timeouts(120, 2.0, 60))
    async with open_manager(asks, callbacks=Callbacks(elicitation=elicit)) as manager:
        document = json.loads(text_of(await call_tool(manager, "bad", "echo")))
    assert document["elicitation/create"]["result"] == {"action": "decline"}


# Start.


async def test_concurrent_first_users_share_one_connect(
    bad: Bad, journal: Journal, open_manager: Beside
) -> None:
    async with open_manager(bad("good")) as manager:
        results = await asyncio.gather(
            *(call_tool(manager, "bad", "echo", {"text": str(n)}) for n in range(20)),
            manager.ensure_connected("bad"),
        )
        assert [text_of(result) for result in results[:20]] == [str(n) for n in range(20)]
        assert len(journal.starts()) == 1


async def test_a_first_caller_that_is_cancelled_does_not_cancel_the_connect(
    bad: Bad, journal: Journal, open_manager: Beside, wait_until: Until
) -> None:
    async with open_manager(bad("slow-start", "--seconds", "0.3")) as manager:
        first = asyncio.ensure_future(call_tool(manager, "bad", "echo", {"text": "first"}))
        second = asyncio.ensure_future(call_tool(manager, "bad", "echo", {"text": "second"}))
        await wait_until(lambda: manager.status("bad").state is State.CONNECTING)
        first.cancel()
        assert text_of(await second) == "second"
        assert first.cancelled()
        assert len(journal.starts()) == 1


async def test_a_failed_connect_is_not_cached(
    tmp_path: Path, hostile_stdio: str, open_manager: Beside
) -> None:
    command = tmp_path / "server"
    async with open_manager(Server("bad", StdioSpec(str(command)))) as manager:
        with pytest.raises(Unreachable):
            await call_tool(manager, "bad", "echo")
        command.write_text(f"#!/bin/sh\nexec python3 -I -S {hostile_stdio} good\n")
        command.chmod(0o755)
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "now"})) == "now"


@one_loop
@pytest.mark.parametrize("flags", [(), ("--modern",)], ids=["legacy", "modern"])
async def test_the_era_is_remembered_and_the_second_connect_asks_no_more(
    flags: tuple[str, ...], bad: Bad, journal: Journal, open_manager: Beside
) -> None:
    eras = EraCache()
    server = bad("good", *flags)
    async with open_manager(server, eras=eras) as manager:
        await call_tool(manager, "bad", "echo")
    async with open_manager(server, eras=eras) as manager:
        await call_tool(manager, "bad", "echo")
        await manager.restart("bad")
        await call_tool(manager, "bad", "echo")
    assert len(journal.starts()) == 3
    if not flags:
        assert len(journal.messages("server/discover")) == 1
        assert len(journal.messages("initialize")) == 3
    else:
        assert not journal.messages("initialize")


# End.


async def test_a_server_that_will_not_go_is_killed_within_bounds(
    bad: Bad, journal: Journal, open_manager: Beside, max_duration: Within
) -> None:
    async with open_manager(bad("stubborn")) as manager:
        await call_tool(manager, "bad", "echo")
        pid = manager.status("bad").pid
        assert pid == journal.starts()[0]
        with max_duration(7.5):
            await manager.close("bad")
        assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("processes", [0.3], indirect=True)
async def test_child_processes_of_a_server_are_killed_with_it(
    bad: Bad,
    journal: Journal,
    open_manager: Beside,
    max_duration: Within,
    wait_until: Until,
    processes: ProcessPool,
) -> None:
    async with open_manager(bad("family"), processes=processes) as manager:
        await call_tool(manager, "bad", "echo")
        family = [*journal.starts(), *journal.processes()]
        assert len(family) == 3
        assert all(psutil.pid_exists(pid) for pid in family)
        with max_duration(3):
            await manager.close("bad")
        await wait_until(lambda: not any(is_running(pid) for pid in family))


@pytest.mark.parametrize("processes", [4], indirect=True)
async def test_callers_are_told_in_time_however_long_the_server_takes_to_go(
    bad: Bad, open_manager: Beside, max_duration: Within, assert_cause: Says, processes: ProcessPool
) -> None:
    stubborn = bad("stubborn-and-silent", timeouts=Timeouts(0.5, 1, 1))
    async with open_manager(stubborn, processes=processes) as manager:
        before = own_descendants()
        with pytest.raises(Unreachable) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert own_descendants() - before, "the server was gone before its caller was told"
        assert_cause(exc_info.value, "did not answer within 0.5 s")
        with max_duration(5):
            await manager.close("bad")


async def test_a_close_in_the_middle_of_a_close_leaves_nothing(
    bad: Bad, journal: Journal, open_manager: Beside, max_duration: Within, wait_until: Until
) -> None:
    async with open_manager(bad("stubborn-and-silent", timeouts=Timeouts(0.4, 1, 1))) as manager:
        call = asyncio.ensure_future(call_tool(manager, "bad", "echo"))
        await wait_until(lambda: journal.processes())
        await wait_until(lambda: any("eof" in entry for entry in journal.entries()))
        with max_duration(7.5):
            await manager.close("bad")
        assert isinstance((await asyncio.gather(call, return_exceptions=True))[0], Unreachable)
        family = [*journal.starts(), *journal.processes()]
        await wait_until(lambda: not any(is_running(pid) for pid in family))


async def test_closing_ends_calls_in_flight_and_those_that_wait_for_the_connect(
    bad: Bad, journal: Journal, open_manager: Beside, max_duration: Within, wait_until: Until
) -> None:
    slow = bad("silent", id="slow", timeouts=Timeouts(120, 120, 120))
    async with open_manager(bad("good", timeouts=Timeouts(120, 120, 120)), slow) as manager:
        calls = [asyncio.ensure_future(call_tool(manager, id, "wait")) for id in ("bad", "bad", "slow")]
        await wait_until(lambda: len(journal.messages("tools/call")) == 2)
        with max_duration(4):
            await asyncio.gather(manager.close("bad"), manager.close("slow"))
            ends = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, ServerError) for end in ends)
        assert "the connection is closed" in str(ends[0])


PROGRAM = """
import asyncio, sys, uvloop
from toolyard.clients.unsolicited_traffic import TrafficLimits
from toolyard.clients import ConnectionManager
from toolyard.errors import ServerError
from toolyard.types.call import McpRequest
from toolyard.types.server import Server, StdioSpec

async def main():
    good = StdioSpec(sys.executable, ("-I", "-S", sys.argv[1], "good"))
    servers = [Server(f"good{n}", good) for n in range(4)]
    servers += [Server(name, StdioSpec(f"/bin/{name}")) for name in ("cat", "false", "none")]
    manager = ConnectionManager(servers)
    states = [record.state for record in await manager.connect()]
    request = lambda tool: McpRequest("tools/call", {"name": tool, "arguments": {}})
    await asyncio.gather(*(manager.connection(f"good{n}").request(request("echo")) for n in range(4)))
    waiting = asyncio.ensure_future(manager.connection("good0").request(request("wait")))
    if sys.argv[3] == "closed":
        await manager.close_all()
        (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(outcome, ServerError), outcome
    elif sys.argv[3] == "failed":
        raise SystemExit(7)
    print(states.count("ready"), states.count("failed"))

{"asyncio": asyncio, "uvloop": uvloop}[sys.argv[2]].run(main())
"""


@one_loop
@pytest.mark.parametrize("end", ["closed", "forgotten", "failed"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_program_with_many_servers_ends_however_it_ends(
    loop: str, end: str, hostile_stdio: str, wait_until: Until
) -> None:
    # Closing everything causes no warnings.
    strict = ("-W", "default") if end == "closed" else ()
    words = (sys.executable, *strict, "-c", PROGRAM, hostile_stdio, loop, end)
    program = await asyncio.create_subprocess_exec(*words, stdout=-1, stderr=-1)
    out, err = await asyncio.wait_for(program.communicate(), 60)
    assert program.returncode == (7 if end == "failed" else 0), err.decode()
    assert out == (b"" if end == "failed" else b"4 3\n")
    noise = [line for line in err.decode().splitlines() if "cannot be used" not in line]
    assert noise == []
    marker = f"TOOLYARD_CHILD={program.pid}:".encode()
    await wait_until(lambda: not carriers(marker))


def carriers(marker: bytes) -> list[str]:
    log_lines: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marker in (folder / "environ").read_bytes():
                log_lines.append(folder.name)
    return log_lines


# Reconnection.


async def test_a_server_that_exits_stays_away_until_someone_restarts_it(
    bad: Bad, journal: Journal, open_manager: Beside
) -> None:
    async with open_manager(bad("crashes-once")) as manager:
        with pytest.raises(OutcomeUnknown):
            await call_tool(manager, "bad", "echo")
        for _ in range(3):
            with pytest.raises(Unreachable, match="exited with code 6"):
                await call_tool(manager, "bad", "echo")
        assert len(journal.starts()) == 1
        await manager.restart("bad")
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "back"})) == "back"
        assert manager.status("bad").restarts == 1


async def test_a_server_that_may_restart_comes_back_by_itself(
    bad: Bad, journal: Journal, open_manager: Beside, wait_until: Until
) -> None:
    async with open_manager(bad("crashes-once", restart=RestartPolicy.ON_FAILURE)) as manager:
        with pytest.raises(OutcomeUnknown):
            await call_tool(manager, "bad", "echo")
        status = manager.status("bad")
        assert status.state is State.FAILED
        assert status.next_retry is not None
        await wait_until(lambda: manager.status("bad").state is State.READY)
        assert len(journal.starts()) == 2
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "back"})) == "back"


async def test_a_call_that_may_be_repeated_is_sent_again_after_a_crash(
    bad: Bad, journal: Journal, open_manager: Beside
) -> None:
    async with open_manager(bad("crashes-once", restart=RestartPolicy.ON_FAILURE)) as manager:
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "twice"}, repeatable=True)) == "twice"
        assert len(journal.messages("tools/call")) == 2


async def test_a_crash_loop_is_left_alone_in_the_end(
    bad: Bad,
    journal: Journal,
    open_manager: Beside,
    assert_cause: Says,
    wait_until: Until,
) -> None:
    limits = ConnectionManagerLimits(restart_delays=(0.02, 0.02, 0.02))
    crashing = bad("crashes-when-ready", restart=RestartPolicy.ON_FAILURE)
    async with open_manager(crashing, limits=limits) as manager:
        await manager.connect(["bad"])
        words = "crashed 4 times in a row; the last time: exited with code 5: lost the licence server"
        await wait_until(lambda: words in str(manager.status("bad").cause))
        status = manager.status("bad")
        assert_cause(status, words)
        assert status.state is State.FAILED
        assert status.next_retry is None
        assert len(journal.starts()) == 4
        with pytest.raises(Unreachable, match="crashed 4 times in a row") as exc_info:
            await call_tool(manager, "bad", "echo")
        assert (
            exc_info.value.hint == "read the server's last output, correct the cause, then restart the server"
        )
        await manager.restart("bad")
        assert manager.status("bad").state is State.IDLE
        with pytest.raises(ServerError):
            await call_tool(manager, "bad", "wait")
        assert len(journal.starts()) > 4


class LostAtOnce(MemoryTransport):
    """A connection that is lost at the moment of its handshake."""

    async def send(self, message: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        if message["method"] == "notifications/initialized" and self._receiver is not None:
            self._receiver.on_lost(OutcomeUnknown("exited with code 5"))
        await super().send(message, headers)


@one_loop
async def test_a_server_that_is_lost_as_it_becomes_ready_is_not_ready(
    open_manager: Beside, assert_cause: Says, wait_until: Until
) -> None:
    async def serve(message: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> None:
        if "id" in message:
            reply({"id": message["id"], "result": {"protocolVersion": "2025-06-18"}})

    server = Server("bad", StdioSpec("in this process"))
    async with open_manager(server, memory_servers={"bad": lambda: LostAtOnce(serve)}) as manager:
        with pytest.raises(Unreachable) as exc_info:
            await call_tool(manager, "bad", "echo")
        assert_cause(exc_info.value, "exited with code 5")
        assert manager.status("bad").state is State.FAILED
        assert_cause(manager.status("bad"), "exited with code 5")


async def test_an_idle_server_is_stopped_and_starts_again_when_called(
    bad: Bad, journal: Journal, open_manager: Beside, wait_until: Until
) -> None:
    async with open_manager(bad("good", stop_when_idle=1.0)) as manager:
        await call_tool(manager, "bad", "echo")
        limits = Timeouts(120, 2.0, 60)
        slow = asyncio.ensure_future(call_tool(manager, "bad", "wait", timeouts=limits))
        first = journal.starts()[0]
        with pytest.raises(CallTimeout):
            await slow
        assert is_running(first)
        await wait_until(lambda: manager.status("bad").state is State.IDLE)
        await wait_until(lambda: not is_running(first))
        assert manager.status("bad").cause is None
        assert text_of(await call_tool(manager, "bad", "echo", {"text": "again"})) == "again"
        assert len(journal.starts()) == 2


@one_loop
async def test_a_server_that_was_only_connected_is_stopped_too(
    bad: Bad, open_manager: Beside, wait_until: Until
) -> None:
    async with open_manager(bad("good", stop_when_idle=0.5)) as manager:
        await manager.connect(["bad"])
        assert manager.status("bad").state is State.READY
        await wait_until(lambda: manager.status("bad").state is State.IDLE)


@one_loop
async def test_children_get_a_small_environment(
    bad: Bad, open_manager: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_OURS", "x")
    server = bad("good")
    spec = StdioSpec(server.transport.command, server.transport.args, env={"GIVEN": "y", "HOME": "/nowhere"})
    async with open_manager(bad("good", id="plain"), Server("bad", spec)) as manager:
        await manager.connect()
        plain = psutil.Process(manager.status("plain").pid).environ()
        environment = psutil.Process(manager.status("bad").pid).environ()
    assert "A_SECRET_OF_OURS" not in plain
    assert plain["PATH"] == os.environ["PATH"]
    assert plain["TOOLYARD_CHILD"] != environment["TOOLYARD_CHILD"]
    assert (environment["GIVEN"], environment["HOME"]) == ("y", "/nowhere")


_ENDS_ITS_WORK = """
import pathlib, sys, time
pathlib.Path(sys.argv[1], "started").touch()
sys.stdin.read()
pathlib.Path(sys.argv[1], "ending").touch()
time.sleep(0.3)
pathlib.Path(sys.argv[1], "ended").touch()
"""


async def test_closing_twice_while_connecting_lets_the_server_end_its_work(
    tmp_path: Path, wait_until: Until
) -> None:
    spec = StdioSpec(sys.executable, ("-S", "-c", _ENDS_ITS_WORK, str(tmp_path)))
    manager = ConnectionManager([Server("slow", spec)])
    call = asyncio.create_task(call_tool(manager, "slow", "echo"))
    await wait_until((tmp_path / "started").exists)
    pid = manager.status("slow").pid
    closes = [asyncio.create_task(manager.restart("slow"))]
    await wait_until((tmp_path / "ending").exists)
    closes.append(asyncio.create_task(manager.close("slow")))
    await asyncio.gather(*closes)
    assert (tmp_path / "ended").exists()
    assert pid is not None
    assert not psutil.pid_exists(pid), "not even a zombie is left"
    with pytest.raises(Unreachable):
        await call
    await manager.close_all()
