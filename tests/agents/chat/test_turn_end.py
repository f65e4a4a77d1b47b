"""Turns that end early: stopped, failed, interrupted, and run again."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.agents.chat.chat_harness import (
    KEY,
    ME,
    ChatProcess,
    Model,
    bodies_of_kind,
    has_one_result_per_call,
    kinds,
)

from toolyard.agents.chat.errors import NoSuchChat
from toolyard.agents.chat.markdown_export import export_markdown
from toolyard.agents.chat.turn_snapshot import TurnSnapshot
from toolyard.agents.chat.turn_supervisor import TurnSupervisor, create_runner_id, is_runner_gone
from toolyard.store import Database
from toolyard.types.chat import ChatEvent, Kind, NewChatEvent, TurnState

pytestmark = pytest.mark.slow

Opening = Callable[..., Awaitable[ChatProcess]]
Until = Callable[..., Awaitable[None]]
VICTIM = Path(__file__).parent / "killed_turn_process.py"


def says(chat_events: list[ChatEvent], words: str) -> bool:
    return words in "".join(event.body["delta"] for event in chat_events if event.kind is Kind.TEXT)


async def test_stop_ends_the_models_answer_and_keeps_the_received_text(
    process: ChatProcess, model: Model, wait_until: Until
) -> None:
    chat = await process.chat()
    turn = await process.chats.send(ME, chat.id, "say One two\nhold\nsay three")
    await process.until(chat, turn, lambda chat_events: says(chat_events, "One two"))
    await process.chats.stop_turn(ME, chat.id)
    events = await process.over(chat, turn)
    assert kinds(events) == ["user", "said", "end"]
    assert bodies_of_kind(events, Kind.MODEL_MESSAGE)[0]["text"] == "One two"
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "stopped"
    # The provider notices the closed connection.
    async with asyncio.timeout(30):
        while (await model.journal())[-1]["ended"] != "aborted":
            await asyncio.sleep(0.01)
    again = await process.say(chat, "go on")
    assert bodies_of_kind(again, Kind.MODEL_MESSAGE)[0]["text"] == "You said: go on"
    messages = (await model.journal())[-1]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]


async def test_a_turn_that_fails_for_the_database_names_it_in_the_log_only(
    process: ChatProcess, caplog: pytest.LogCaptureFixture
) -> None:
    place = process.database.executor.engines.display_name
    await process.database.executor.execute(text("ALTER TABLE grants RENAME TO elsewhere"))
    [end] = bodies_of_kind(await process.run(await process.chat(), "s_put", text="a"), Kind.END)
    assert end["error"] == "Toolyard's database is not available"
    assert place not in str(end)
    assert f"a turn failed: the database {place} cannot be used" in caplog.text


async def test_stop_ends_tools_that_run_side_by_side_and_tells_their_server(
    process: ChatProcess, model: Model, wait_until: Until
) -> None:
    chat = await process.chat()
    turn = await process.chats.send(
        ME, chat.id, 'call s_wait {}\ncall s_wait {}\ncall s_look {"text": "a"}\nthen\nsay Never.'
    )
    await wait_until(lambda: sorted(process.calls()) == ['look {"text": "a"}', "wait {}", "wait {}"])
    await process.until(
        chat, turn, lambda chat_events: any(event.kind is Kind.RESULT for event in chat_events)
    )
    await process.chats.stop_turn(ME, chat.id)
    events = await process.over(chat, turn)
    await wait_until(lambda: process.calls().count("cancelled wait") == 2)
    texts = sorted(body["text"] for body in bodies_of_kind(events, Kind.RESULT))
    stop_message = "stopped by the user; the tool may have taken effect before"
    assert texts == ["look: a", stop_message, stop_message]
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "stopped"
    # Earlier versions did not store which results are those of stopped calls.
    earlier = [
        replace(each, body={key: value for key, value in each.body.items() if key != "stopped"})
        for each in events
    ]
    for chat_events in (events, earlier):
        states = [call.state for call in TurnSnapshot.from_events(chat_events).calls]
        assert sorted(states) == ["done", "stopped", "stopped"]
    assert [call.state for call in TurnSnapshot.from_events(events[:-1]).calls].count("stopped") == 2
    markdown = "".join(
        [part async for part in export_markdown(process.chats, await process.chats.get(ME, chat.id))]
    )
    assert (markdown.count("Stopped:\n"), "Error" in markdown) == (2, False)
    await process.say(chat, "go on")
    assert has_one_result_per_call((await model.journal())[-1]["messages"])


async def test_a_call_that_failed_before_the_stop_stays_failed(
    process: ChatProcess, wait_until: Until
) -> None:
    chat = await process.chat()
    turn = await process.chats.send(ME, chat.id, "call s_missing {}\ncall s_wait {}\nthen\nsay Never.")
    await wait_until(lambda: "wait {}" in process.calls())
    await process.until(
        chat, turn, lambda chat_events: any(event.kind is Kind.RESULT for event in chat_events)
    )
    await process.chats.stop_turn(ME, chat.id)
    states = [call.state for call in TurnSnapshot.from_events(await process.over(chat, turn)).calls]
    assert states == ["failed", "stopped"]


async def test_a_turn_that_runs_elsewhere_is_stopped_too(open_chats: Opening, wait_until: Until) -> None:
    here, other_chats = await open_chats(), await open_chats()
    chat = await here.chat()
    turn = await here.chats.send(ME, chat.id, "call s_wait {}")
    await wait_until(lambda: "wait {}" in here.calls())
    await other_chats.chats.stop_turn(ME, chat.id)
    events = await here.over(chat, turn)
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "stopped"
    await wait_until(lambda: "cancelled wait" in here.calls())


async def test_stopping_an_idle_chat_changes_nothing(process: ChatProcess) -> None:
    chat = await process.chat()
    await process.say(chat, "hello")
    before = await process.chats.list_events(ME, chat.id)
    await process.chats.stop_turn(ME, chat.id)
    assert await process.chats.list_events(ME, chat.id) == before


async def test_a_chat_that_is_deleted_stops(process: ChatProcess, wait_until: Until) -> None:
    chat = await process.chat()
    await process.chats.send(ME, chat.id, "call s_wait {}")
    await wait_until(lambda: "wait {}" in process.calls())
    await process.chats.delete(ME, chat.id)
    await wait_until(lambda: "cancelled wait" in process.calls())
    assert process.yard.left == [chat.id]
    with pytest.raises(NoSuchChat):
        await process.chats.get(ME, chat.id)


# Run again.


async def test_a_turn_that_failed_is_run_again_as_if_for_the_first_time(
    process: ChatProcess, model: Model
) -> None:
    chat = await process.chat()
    await process.say(chat, "before")
    script = ['call s_look {"text": "a"}', "then", "fault 500 times=2", "say Fine."]
    failed_turn = await process.say(chat, *script)
    assert bodies_of_kind(failed_turn, Kind.END)[0]["why"] == "failed"
    turn = await process.chats.retry(ME, chat.id)
    events = await process.over(chat, turn)
    assert bodies_of_kind(events, Kind.USER)[0]["again"] == failed_turn[0].seq
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "done"
    messages = (await model.journal())[-1]["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant", "user", "assistant", "tool"]
    assert has_one_result_per_call(messages)
    # The result of the first attempt is still visible to the person.
    assert [event.seq for event in failed_turn] == [
        event.seq
        for event in await process.chats.list_events(ME, chat.id)
        if event.turn == failed_turn[0].seq
    ]
    await process.say(chat, "after")
    assert [m["content"] for m in (await model.journal())[-1]["messages"] if m["role"] == "user"] == [
        "before",
        "\n".join(script),
        "after",
    ]


async def test_an_answer_can_be_had_again_and_again(process: ChatProcess, model: Model) -> None:
    chat = await process.chat()
    await process.say(chat, "hello")
    for _ in range(2):
        events = await process.over(chat, await process.chats.retry(ME, chat.id))
        assert bodies_of_kind(events, Kind.END)[0]["why"] == "done"
        assert len((await model.journal())[-1]["messages"]) == 1


async def test_a_tool_that_was_run_by_hand_is_run_again(open_chats: Opening) -> None:
    process = await open_chats(models={})
    chat = await process.chat()
    await process.run(chat, "s_look", text="a")
    await process.over(chat, await process.chats.retry(ME, chat.id))
    assert process.calls() == ['look {"text": "a"}'] * 2


# Processes that end.


async def test_a_turn_is_interrupted_when_its_process_closes(open_chats: Opening) -> None:
    first = await open_chats()
    chat = await first.chat()
    turn = await first.chats.send(ME, chat.id, "say One two\nhold")
    await first.until(chat, turn, lambda chat_events: says(chat_events, "One two"))
    await first.close()
    second = await open_chats()
    events = await second.over(chat, turn)
    assert kinds(events) == ["user", "said", "end"]
    assert bodies_of_kind(events, Kind.MODEL_MESSAGE)[0]["text"] == "One two"
    [end] = bodies_of_kind(events, Kind.END)
    assert (end["why"], "retry" in end["hint"]) == ("interrupted", True)


async def test_a_turn_of_a_killed_process_is_ended_on_the_next_start(
    open_chats: Opening, model: Model, tmp_path: Path, wait_until: Until
) -> None:
    """The process dies during a call, after a completed step."""
    script = 'say Looking\ncall s_look {"text": "a"}\nthen\nsay Waiting\ncall s_wait {}\nthen\nsay Never.'
    chat_id = await _chat_of_killed_process(
        tmp_path, model, script, lambda lines: "wait {}" in lines, wait_until
    )
    process = await open_chats()
    chat = await process.chats.get(ME, chat_id)
    assert chat.state is TurnState.IDLE
    events = list(await process.chats.list_events(ME, chat_id))
    assert kinds(events) == ["user", "said", "call", "result", "said", "call", "result", "end"]
    assert bodies_of_kind(events, Kind.RESULT)[-1]["text"] == "interrupted; the outcome is unknown"
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "interrupted"
    turn = await process.chats.retry(ME, chat_id)
    await wait_until(lambda: process.calls().count("wait {}") == 2)
    await process.chats.stop_turn(ME, chat_id)
    await process.over(chat, turn)


async def test_received_text_is_kept_when_its_process_is_killed(
    open_chats: Opening, model: Model, tmp_path: Path, wait_until: Until
) -> None:
    async def has_arrived(chat_id: str) -> bool:
        watching = await open_chats()
        events = await watching.chats.list_events(ME, chat_id)
        await watching.close()
        return says(list(events), "Half of it")

    chat_id = await _chat_of_killed_process(
        tmp_path, model, "think Hm\nsay Half of it\nhold", lambda _: True, wait_until, has_arrived
    )
    process = await open_chats()
    events = list(await process.chats.list_events(ME, chat_id))
    assert kinds(events) == ["user", "said", "end"]
    [body] = bodies_of_kind(events, Kind.MODEL_MESSAGE)
    assert (body["text"], body["reasoning"], body["calls"]) == ("Half of it", "Hm", 0)
    again = await process.say(await process.chats.get(ME, chat_id), "go on")
    assert bodies_of_kind(again, Kind.MODEL_MESSAGE)[0]["text"] == "You said: go on"
    assert [m["role"] for m in (await model.journal())[-1]["messages"]] == ["user", "assistant", "user"]


async def _chat_of_killed_process(
    tmp_path: Path,
    model: Model,
    script: str,
    enough: Callable[[list[str]], bool],
    wait_until: Until,
    arrived: Callable[[str], Awaitable[bool]] | None = None,
) -> str:
    """Return the id of a chat after its process was killed during a turn."""
    journal = tmp_path / "journal"
    words = [sys.executable, str(VICTIM), str(tmp_path / "data"), str(journal), model.url, script]
    victim = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    assert victim.stdout is not None
    try:
        async with asyncio.timeout(30):
            chat_id = (await victim.stdout.readline()).decode().strip()
            while arrived is not None and not await arrived(chat_id):
                await asyncio.sleep(0.05)
        await wait_until(lambda: enough(journal.read_text().splitlines() if journal.exists() else []), 30)
    finally:
        with contextlib.suppress(ProcessLookupError):
            victim.send_signal(signal.SIGKILL)
        await victim.wait()
        victim._transport.close()  # type: ignore[attr-defined]
    return chat_id


async def test_a_turn_that_another_living_process_works_on_is_left_alone(
    open_chats: Opening, model: Model
) -> None:
    here = await open_chats()
    chat = await here.chat()
    turn = await here.chats.send(ME, chat.id, "say a\nhold")
    other_chats = await open_chats()
    assert (await other_chats.chats.get(ME, chat.id)).state is TurnState.RUNNING
    await model.release()
    assert bodies_of_kind(await here.over(chat, turn), Kind.END)[0]["why"] == "done"


async def test_a_turn_is_ended_later_if_its_end_could_not_be_written(process: ChatProcess) -> None:
    chat = await process.chat()
    runner = process.chats.turn_supervisor.context.runner
    claimed_turn = await process.database.chats.claim(
        chat.id, runner, TurnState.IDLE, [NewChatEvent(Kind.USER, {"text": "hello"})], new_turn=True
    )
    assert claimed_turn
    await process.chats.turn_supervisor.end_abandoned_turns()
    events = await process.chats.list_events(ME, chat.id)
    assert kinds(events) == ["user", "end"]
    assert (await process.chats.get(ME, chat.id)).state is TurnState.IDLE


async def test_after_the_database_was_away_others_have_time_to_say_that_they_live(
    process: ChatProcess, tmp_path: Path
) -> None:
    alive, silent = await process.chat(), await process.chat()
    for chat in (alive, silent):
        hello = [NewChatEvent(Kind.USER, {"text": "hello"})]
        runner = f"elsewhere:1:1:{chat.id}"
        assert await process.database.chats.claim(chat.id, runner, TurnState.IDLE, hello, new_turn=True)
    clock = [time.time()]
    database = await Database.open(tmp_path / "data", url=None, secret_key=KEY, clock=lambda: clock[0])
    services = replace(
        process.chats.turn_supervisor.context,
        store=database.chats,
        runner="here:1:1:x",
        clock=lambda: clock[0],
    )
    supervisor = TurnSupervisor(services, process.yard, heartbeat_interval_seconds=0.0)

    async def states(seconds: float) -> tuple[TurnState, TurnState]:
        clock[0] += seconds
        await supervisor.send_heartbeat()
        return (await process.chats.get(ME, alive.id)).state, (await process.chats.get(ME, silent.id)).state

    try:
        # No heartbeat was written for a minute; then one of the two processes writes one.
        assert await states(60.0) == (TurnState.RUNNING, TurnState.RUNNING)
        await database.chats.record_heartbeat(f"elsewhere:1:1:{alive.id}")
        assert await states(10.0) == (TurnState.RUNNING, TurnState.RUNNING)
        assert await states(10.0) == (TurnState.RUNNING, TurnState.IDLE)
        # There is no wait for the process that went silent while the database was available.
        assert await states(11.0) == (TurnState.IDLE, TurnState.IDLE)
    finally:
        await database.close()


def test_a_runner_is_gone_when_its_process_is_or_when_it_is_silent() -> None:
    me = create_runner_id()
    host, pid, start, _ = me.split(":")
    assert not is_runner_gone(me, 5.0)
    assert is_runner_gone(me, 31.0)
    assert is_runner_gone(f"{host}:{pid}:{int(start) + 1}:x", 0.0)
    assert is_runner_gone(f"{host}:4194303:{start}:x", 0.0)
    assert not is_runner_gone(f"elsewhere:{pid}:1:x", 29.0)
    assert is_runner_gone(f"elsewhere:{pid}:1:x", 31.0)
    assert not is_runner_gone("nonsense", 1.0)
    assert create_runner_id() != me
