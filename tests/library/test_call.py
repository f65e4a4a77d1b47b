"""The one call path: its results, its errors, and that every call ends."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tasks import cancel

from toolyard import (
    CallTimeout,
    OutcomeUnknown,
    RpcError,
    ServerError,
    State,
    Timeouts,
    Toolyard,
    ToolyardError,
    Unreachable,
)
from toolyard.types.call import CallRecord

OpenYard = Callable[..., Toolyard]
Recorders = Callable[..., Any]
Until = Callable[..., Awaitable[None]]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


# What comes back.


async def test_a_call_reaches_the_server_under_the_tools_own_name_with_its_arguments(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    one = recorder()
    async with open_yard({"one": one}) as yard:
        assert (await yard.call("one_echo", {"text": "hello"})).text == "hello"
    (message,) = one.messages("tools/call")
    assert (message["params"]["name"], message["params"]["arguments"]) == ("echo", {"text": "hello"})


async def test_arguments_are_passed_through_and_the_servers_complaint_comes_back_in_full(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    one = recorder()
    arguments = {"text": {"not": "a string"}, "unknown": [1, None], "data": {"path": ["text"]}}
    async with open_yard({"one": one}) as yard:
        with pytest.raises(RpcError) as exc_info:
            await yard.call("one_refuse", arguments)
        view = (await yard.answer("one_refuse", arguments)).for_model()
    assert one.messages("tools/call")[0]["params"]["arguments"] == arguments
    assert (exc_info.value.code, exc_info.value.data, exc_info.value.server) == (
        -32602,
        {"path": ["text"]},
        "one",
    )
    assert view == {"error": True, "output": "{'not': 'a string'} (code -32602)\n{\"path\": [\"text\"]}"}


RESOURCE = {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "inside"}}


@pytest.mark.parametrize(
    ("result", "expected_value"),
    [
        ({"content": [text("one"), text("two")]}, "one\ntwo"),
        ({"content": [RESOURCE]}, json.dumps(RESOURCE)),
        ({"content": [text("see"), RESOURCE]}, "see\n" + json.dumps(RESOURCE)),
        ({"content": []}, "(no output)"),
        (
            {"content": [text("line one"), text("line two")], "isError": True},
            {"error": True, "output": "line one\nline two"},
        ),
        ({"content": [], "isError": True}, {"error": True, "output": "(no output)"}),
    ],
)
async def test_a_model_gets_the_documented_result(
    result: dict[str, Any], expected_value: object, open_yard: OpenYard, recorder: Recorders
) -> None:
    async with open_yard({"one": recorder()}) as yard:
        answer = await yard.answer("one_raw", {"result": result})
        assert answer.for_model() == expected_value
        assert answer.raw == result
        assert (await yard.call("one_raw", {"result": result})).for_model() == expected_value


async def test_media_go_beside_the_text_and_never_as_text(open_yard: OpenYard, recorder: Recorders) -> None:
    data = "iVBORw0KGgo" * 40 + "AAA="
    image = {"type": "image", "data": data, "mimeType": "image/png"}
    async with open_yard({"one": recorder()}) as yard:
        result = await yard.call("one_raw", {"result": {"content": [text("look"), image]}})
    assert result.text == "look"
    assert [(media.kind, media.mime, media.data) for media in result.media] == [("image", "image/png", data)]


async def test_a_server_that_cannot_be_reached_is_an_answer_with_its_cause(open_yard: OpenYard) -> None:
    async with open_yard({"gone": {"command": "/no/such/command"}}) as yard:
        assert (await yard.answer("gone_tool")).for_model() == {
            "error": True,
            "output": "MCP server unreachable",
            "cause": "command not found: /no/such/command\n"
            "hint: install it, or give its full path in 'command'",
        }


async def test_a_server_that_goes_down_in_the_middle_is_an_answer_and_the_others_work(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    async with open_yard({"one": recorder("one"), "two": recorder("two")}) as yard:
        with pytest.raises(OutcomeUnknown, match="exited with code 3: out of memory"):
            await yard.call("one_exit", {"text": "out of memory"})
        for _ in range(2):
            assert (await yard.answer("one_echo", {"text": "x"})).for_model() == {
                "error": True,
                "output": "MCP server unreachable",
                "cause": "exited with code 3: out of memory\n"
                'hint: restart the server, or set "restart": "on-failure"',
            }
        assert (await yard.call("two_echo", {"text": "x"})).text == "x"
        await yard.restart("one")
        assert (await yard.call("one_echo", {"text": "back"})).text == "back"


async def test_an_answer_to_a_refused_call_is_the_refusal(open_yard: OpenYard, recorder: Recorders) -> None:
    async with open_yard({"one": recorder()}) as yard:
        assert (await yard.answer("one_touch")).for_model() == {
            "error": True,
            "output": "'one_touch' is hidden: this tool can change data (readOnlyHint is false), and "
            "write_tools is 'reject'\nhint: set write_tools to 'ask' or 'allow' to use it; "
            "`toolyard why one_touch` explains all rules",
        }


async def test_a_long_result_is_cut_and_says_where_the_rest_is(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    words = "a" * 3000 + "z" * 3000
    async with open_yard({"one": recorder()}, settings={"result_limit": 1000}) as yard:
        result = await yard.call("one_echo", {"text": words})
    assert len(result.text) <= 1000
    assert result.truncated
    assert result.handle is not None
    assert result.handle in result.text
    assert (result.text[0], result.text[-1]) == ("a", "z")
    assert result.raw == {"content": [text(words)]}


# Trying again.


@pytest.mark.parametrize(
    ("keys", "annotations", "repeated"),
    [
        ({}, {"readOnlyHint": True}, True),
        ({}, {"idempotentHint": True, "readOnlyHint": False}, True),
        ({}, {}, False),
        ({"trust": "untrusted", "allowTools": ["exit_once"]}, {"readOnlyHint": True}, False),
    ],
    ids=["read only", "idempotent", "nothing said", "untrusted"],
)
async def test_a_lost_call_is_sent_again_only_where_a_trusted_server_says_that_it_does_no_harm(
    keys: dict[str, Any],
    annotations: dict[str, Any],
    repeated: bool,
    open_yard: OpenYard,
    recorder: Recorders,
    tmp_path: Path,
) -> None:
    tool = {"name": "exit_once", "inputSchema": {"type": "object"}, "annotations": annotations}
    (tmp_path / "tools").write_text(json.dumps([tool]))
    one = recorder("one", "--tools", str(tmp_path / "tools"))
    entry = {**one.entry, **keys, "restart": "on-failure"}
    async with open_yard({"one": entry}, settings={"write_tools": "allow"}) as yard:
        if repeated:
            assert (await yard.call("one_exit_once", {"text": "again"})).text == "again"
        else:
            with pytest.raises(OutcomeUnknown):
                await yard.call("one_exit_once", {"text": "again"})
    assert len(one.calls()) == (2 if repeated else 1)


@pytest.mark.parametrize("annotations", [{}, {"readOnlyHint": True}], ids=["nothing said", "read only"])
async def test_a_call_that_a_restart_ends_may_have_been_executed_and_is_not_sent_again(
    annotations: dict[str, Any], open_yard: OpenYard, recorder: Recorders, tmp_path: Path, wait_until: Until
) -> None:
    tool = {"name": "wait", "inputSchema": {"type": "object"}, "annotations": annotations}
    (tmp_path / "tools").write_text(json.dumps([tool]))
    one = recorder("one", "--tools", str(tmp_path / "tools"))
    async with open_yard({"one": one}) as yard:
        call = asyncio.ensure_future(yard.call("one_wait"))
        await wait_until(lambda: one.calls())
        await yard.restart("one")
        with pytest.raises(OutcomeUnknown, match="was restarted"):
            await call
    assert len(one.calls()) == 1


async def test_a_model_is_told_that_the_outcome_is_unknown(open_yard: OpenYard, recorder: Recorders) -> None:
    async with open_yard({"one": recorder()}) as yard:
        assert (await yard.answer("one_exit", {"text": "out of memory"})).for_model() == {
            "error": True,
            "output": "exited with code 3: out of memory\n"
            "hint: the call may have been executed: check what was done before you repeat it",
        }
        # How the server fares is another matter.
        assert yard.servers()[0].hint is None


async def test_a_list_lost_before_the_call_is_not_an_unknown_outcome(open_yard: OpenYard) -> None:
    program = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "tools/list":
        sys.exit(3)
    if message["method"] == "initialize":
        about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        about["serverInfo"] = {"name": "short", "version": "1"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": about}), flush=True)
    elif "id" in message:
        error = {"code": -32601, "message": "no"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
"""
    async with open_yard({"short": {"command": sys.executable, "args": ["-c", program]}}) as yard:
        with pytest.raises(Unreachable, match="exited with code 3"):
            await yard.call("short_tool")


# Progress, time and cancellation.


@pytest.mark.parametrize("kind", ["function", "coroutine function"])
async def test_progress_is_told_as_it_comes(
    kind: str, open_yard: OpenYard, recorder: Recorders, wait_until: Until
) -> None:
    seen_params: list[Any] = []

    async def later(params: Any) -> None:
        seen_params.append(params["progress"])

    async with open_yard({"one": recorder()}) as yard:
        on_progress = later if kind != "function" else (lambda params: seen_params.append(params["progress"]))
        result = await yard.call("one_steps", {"count": 3}, on_progress=on_progress)
        assert result.text == "done"
        await wait_until(lambda: seen_params == [1, 2, 3])


async def test_progress_without_a_listener_is_ignored(open_yard: OpenYard, recorder: Recorders) -> None:
    def broken(params: Any) -> None:
        raise ValueError("a fault in the program")

    async with open_yard({"one": recorder()}) as yard:
        assert (await yard.call("one_steps", {"count": 2}, on_progress=broken)).text == "done"


async def test_a_call_that_is_not_answered_ends_in_time_and_the_server_is_told(
    open_yard: OpenYard, recorder: Recorders, wait_until: Until
) -> None:
    one = recorder()
    async with open_yard({"one": one}) as yard:
        with pytest.raises(CallTimeout, match=r"no response or progress for 0\.2 s") as exc_info:
            await yard.call("one_wait", timeouts=Timeouts(silence=0.2))
        assert exc_info.value.server == "one"
        await wait_until(lambda: one.messages("notifications/cancelled"))
        assert (await yard.call("one_echo", {"text": "still here"})).text == "still here"


async def test_progress_keeps_a_call_alive_and_the_cap_ends_it(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    async with open_yard({"one": recorder()}) as yard:
        patient = Timeouts(silence=2.0, call=60)
        assert (await yard.call("one_steps", {"count": 12, "every": 0.2}, timeouts=patient)).text == "done"
        with pytest.raises(CallTimeout, match=r"took longer than 0\.5 s in all"):
            await yard.call(
                "one_steps", {"count": 100, "every": 0.1}, timeouts=Timeouts(silence=1.0, call=0.5)
            )


async def test_the_timeouts_of_the_entry_count_where_the_caller_gives_none(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    entry = {**recorder().entry, "timeouts": {"silence": 3}}
    async with open_yard({"one": entry}) as yard:
        with pytest.raises(CallTimeout, match=r"tools/call: no response or progress for 3 s"):
            await yard.call("one_wait")


async def test_a_server_that_does_not_begin_is_given_up_after_its_connect_timeout(
    open_yard: OpenYard, hostile_stdio: str
) -> None:
    entry = {
        "command": sys.executable,
        "args": ["-I", "-S", hostile_stdio, "silent"],
        "timeouts": {"connect": 0.3},
    }
    async with open_yard({"one": entry}) as yard:
        with pytest.raises(Unreachable, match=r"did not answer within 0\.3 s"):
            await yard.call("one_echo")


async def test_a_cancelled_call_reaches_the_server_and_touches_no_other(
    open_yard: OpenYard, recorder: Recorders, wait_until: Until
) -> None:
    one = recorder()
    async with open_yard({"one": one}) as yard:
        first = asyncio.ensure_future(yard.call("one_wait", {"text": "first"}))
        second = asyncio.ensure_future(yard.call("one_steps", {"count": 5, "every": 0.05}))
        await wait_until(lambda: len(one.calls()) == 2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await second).text == "done"
        (cancel_notification,) = one.messages("notifications/cancelled")
    (wait_request,) = [
        message for message in one.messages("tools/call") if message["params"]["name"] == "wait"
    ]
    assert cancel_notification["params"]["requestId"] == wait_request["id"]


async def test_a_caller_cancelled_during_the_first_connect_does_not_cancel_it(
    open_yard: OpenYard, recorder: Recorders, wait_until: Until
) -> None:
    one = recorder()
    async with open_yard({"one": one}) as yard:
        first = asyncio.ensure_future(yard.call("one_echo", {"text": "first"}))
        second = asyncio.ensure_future(yard.call("one_echo", {"text": "second"}))
        await wait_until(lambda: yard.servers()[0].state is State.CONNECTING)
        first.cancel()
        assert (await second).text == "second"
        assert (await asyncio.gather(first, return_exceptions=True))[0].__class__ is asyncio.CancelledError
    assert len(one.starts()) == 1


async def test_first_calls_at_the_same_time_share_one_start_and_one_listing(
    open_yard: OpenYard, recorder: Recorders
) -> None:
    one = recorder()
    async with open_yard({"one": one}) as yard:
        results = await asyncio.gather(*(yard.call("one_echo", {"text": str(n)}) for n in range(30)))
        assert [result.text for result in results] == [str(n) for n in range(30)]
    assert len(one.starts()) == 1
    assert len(one.messages("tools/list")) == 1


async def test_calls_go_over_one_connection_that_stays(open_yard: OpenYard, recorder: Recorders) -> None:
    one = recorder()
    async with open_yard({"one": one}) as yard:
        pids = {(await yard.call("one_process")).text for _ in range(5)}
        (status,) = yard.servers()
        assert pids == {str(status.pid)}
    assert len(one.starts()) == 1


# The end of a yard.


async def test_a_yard_that_closes_ends_every_call_wherever_it_waits(
    open_yard: OpenYard, recorder: Recorders, hostile_stdio: str, wait_until: Until
) -> None:
    silent = {"command": sys.executable, "args": ["-I", "-S", hostile_stdio, "silent"]}
    one = recorder()
    yard = open_yard({"one": one, "late": silent})
    async with yard:
        call_tasks = [asyncio.ensure_future(yard.call("one_wait")) for _ in range(3)]
        await wait_until(lambda: len(one.calls()) == 3)
        connecting = [asyncio.ensure_future(yard.call("late_echo")) for _ in range(3)]
        connecting.append(asyncio.ensure_future(yard.tools(server="late")))
        await wait_until(lambda: State.CONNECTING in {status.state for status in yard.servers()})
    async with asyncio.timeout(30):
        ends = await asyncio.gather(*call_tasks, *connecting[:3], return_exceptions=True)
        listing = (await asyncio.gather(connecting[3], return_exceptions=True))[0]
    assert [type(end) for end in ends] == [OutcomeUnknown] * 3 + [Unreachable] * 3
    assert all("closed" in str(end) for end in ends)
    assert listing == [] or isinstance(listing, Unreachable)


@pytest.mark.parametrize("turns", range(0, 24, 2))
async def test_a_yard_that_closes_at_any_moment_of_a_first_use_cancels_only_its_calls_and_leaves_nothing(
    turns: int, open_yard: OpenYard, recorder: Recorders
) -> None:
    yard = open_yard({"one": recorder("one"), "two": recorder("two")})
    uses = [
        asyncio.ensure_future(use)
        for use in (yard.call("one_echo"), yard.call("nothing"), yard.tools(), yard.find("two_look"))
    ]
    for _ in range(turns):
        await asyncio.sleep(0)
    await yard.close()
    async with asyncio.timeout(30):
        ends = await asyncio.gather(*uses, return_exceptions=True)
    assert all(isinstance(end, ToolyardError | list) for end in ends), ends


async def test_a_yard_that_closes_while_its_storage_is_held_up_opens_it_no_more(
    open_yard: OpenYard, data_dir: Path, wait_until: Until
) -> None:
    lock_connection = sqlite3.connect(data_dir / "catalogue.db", isolation_level=None)
    lock_connection.execute("BEGIN EXCLUSIVE")
    try:
        yard = open_yard({f"s{number}": {"command": "/bin/false"} for number in range(12)})
        use = asyncio.ensure_future(yard.tools())
        await wait_until(
            lambda: sum(thread.name.startswith("asyncio_") for thread in threading.enumerate()) > 2
        )
        closing = asyncio.ensure_future(yard.close())
        with pytest.raises(Unreachable, match="Toolyard is closed"):
            await use
        assert not closing.done()
        lock_connection.execute("ROLLBACK")
        async with asyncio.timeout(30):
            await closing
    finally:
        lock_connection.close()


async def test_a_yard_with_more_servers_than_are_listed_at_once_closes_with_those_that_wait(
    open_yard: OpenYard, wait_until: Until
) -> None:
    yard = open_yard({f"s{number}": {"command": "/bin/sleep", "args": ["60"]} for number in range(20)})
    async with yard:
        use = asyncio.ensure_future(yard.tools())
        await wait_until(lambda: sum(status.pid is not None for status in yard.servers()) == 16)
    async with asyncio.timeout(30):
        (end,) = await asyncio.gather(use, return_exceptions=True)
    assert end == [] or isinstance(end, Unreachable)
    assert sum(status.connects for status in yard.servers()) == 0


async def test_a_caller_cancelled_while_the_yard_closes_is_cancelled(
    open_yard: OpenYard, recorder: Recorders, wait_until: Until
) -> None:
    one = recorder()
    async with open_yard({"one": one}) as yard:
        call = asyncio.ensure_future(yard.call("one_wait"))
        await wait_until(lambda: one.calls())
        call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_closed_yard_says_so_and_stays_closed(open_yard: OpenYard, recorder: Recorders) -> None:
    one = recorder()
    yard = open_yard({"one": one})
    async with yard:
        await yard.call("one_echo")
    await yard.close()
    for use in (yard.call("one_echo"), yard.tools(), yard.tools(fresh=True), yard.connect()):
        with pytest.raises(Unreachable, match="Toolyard is closed"):
            await use
    assert (await yard.answer("one_echo")).for_model() == {
        "error": True,
        "output": "MCP server unreachable",
        "cause": "Toolyard is closed",
    }
    assert len(one.starts()) == 1


# What is recorded.


async def test_every_call_is_recorded_with_its_outcome(
    open_yard: OpenYard, recorder: Recorders, wait_until: Until
) -> None:
    records: list[CallRecord] = []
    one = recorder()
    async with open_yard({"one": one}, record=records.append) as yard:
        await yard.call("one_echo", {"text": "x"})
        await yard.call("one_fail")
        for name in ("one_touch", "one_refuse", "one_nothing"):
            await yard.answer(name)
        call = asyncio.ensure_future(yard.call("one_wait"))
        await wait_until(lambda: "wait" in one.calls())
        await cancel(call)
    assert [(record.tool, record.name, record.outcome) for record in records] == [
        ("one/echo", "one_echo", "ok"),
        ("one/fail", "one_fail", "tool error"),
        ("one/touch", "one_touch", "ToolRefused"),
        ("one/refuse", "one_refuse", "RpcError"),
        ("one_nothing", "one_nothing", "ToolRefused"),
        ("one/wait", "one_wait", "cancelled"),
    ]
    assert records[3].error == "no (code -32602)"
    assert all(record.seconds > 0 and record.principal == "local" for record in records)


# Many servers.


async def test_one_server_that_fails_blocks_no_other(open_yard: OpenYard, recorder: Recorders) -> None:
    servers = {
        "one": recorder("one"),
        "cat": {"command": "/bin/cat"},
        "gone": {"command": "/no/such/command"},
        "quits": {"command": "/bin/false"},
        "nobody": {"url": "http://127.0.0.1:9/mcp"},
    }
    async with open_yard(servers) as yard:
        states = {status.server: status.state for status in await yard.connect()}
        assert states.pop("one") is State.READY
        assert set(states.values()) == {State.FAILED}
        causes = {status.server: status.cause or "" for status in yard.servers()}
        assert "echoes its input back" in causes["cat"]
        assert "command not found" in causes["gone"]
        assert "exited with code 1" in causes["quits"]
        assert "127.0.0.1:9 cannot be reached" in causes["nobody"]
        assert {tool.server for tool in await yard.tools()} == {"one"}
        assert (await yard.call("one_echo", {"text": "x"})).text == "x"
        for name in states:
            with pytest.raises(ServerError):
                await yard.call(f"{name}_tool")


async def test_a_result_that_violates_its_schema_has_a_warning(
    open_yard: OpenYard, recorder: Recorders, tmp_path: Path
) -> None:
    tools = [{"name": "echo", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}]
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    async with open_yard({"one": recorder("one", "--tools", str(tmp_path / "tools.json"))}) as yard:
        result = await yard.call("one_echo", {"text": "hello"})
    assert not result.is_error
    (warning,) = result.warnings
    assert warning == "the tool has an output schema, but the result has no structuredContent"
