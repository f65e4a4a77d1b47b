"""Chats that several processes want, and processes that are killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.agents.chat.errors import NotHeld
from toolyard.store import Database
from toolyard.types.chat import Chat, Kind, NewChatEvent, TurnState

if TYPE_CHECKING:
    from collections.abc import Awaitable

pytestmark = pytest.mark.slow

_CLAIM = """
from toolyard.types.chat import Kind, NewChatEvent, TurnState
say("ready")
await told()
won = []
for number in range(20):
    user = NewChatEvent(Kind.USER, {{"text": "{name}"}})
    if await database.chats.claim(f"chat-{{number}}", "{name}", TurnState.IDLE, [user], new_turn=True):
        won.append(str(number))
say(",".join(won))
await told()
"""

_HOLD = """
from toolyard.types.chat import Kind, NewChatEvent, TurnState
user = NewChatEvent(Kind.USER, {"text": "q"})
await database.chats.claim("chat-0", "holder", TurnState.IDLE, [user], new_turn=True)
await database.chats.record_heartbeat("holder")
async def endless():
    count, piece = 0, NewChatEvent(Kind.TEXT, {"delta": "x"}, "step-1")
    while True:
        count += 1
        (event,) = await database.chats.append("chat-0", "holder", [piece])
        if count % 10 == 0:
            say(event.seq)
await endless()
"""


async def chats(database: Database, count: int) -> None:
    for number in range(count):
        await database.chats.create(Chat(f"chat-{number}", "local", "", 1.0, 1.0))


async def test_of_two_processes_that_claim_a_chat_one_wins(
    database: Database, process: Callable[[str], Any]
) -> None:
    await chats(database, 20)
    async with process(_CLAIM.format(name="one")) as one, process(_CLAIM.format(name="two")) as two:
        assert [await one.line(), await two.line()] == ["ready", "ready"]
        await one.tell()
        await two.tell()
        won = {"one": (await one.line()).split(","), "two": (await two.line()).split(",")}
    winners = {number: name for name, numbers in won.items() for number in numbers if number}
    assert len(winners) == sum(len([n for n in numbers if n]) for numbers in won.values()) == 20
    for number, name in winners.items():
        events = await database.chats.list_events(f"chat-{number}")
        assert [(event.seq, event.body) for event in events] == [(1, {"text": name})]
        assert await database.chats.get_runner(f"chat-{number}") == name


async def test_a_killed_holder_loses_nothing_that_was_answered_and_another_takes_over(
    database: Database, process: Callable[[str], Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    await chats(database, 1)
    async with process(_HOLD) as holder:
        for _ in range(5):
            answer_count = int(await holder.line())
        await holder.kill()
    events = await database.chats.list_events("chat-0")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert len(events) >= answer_count
    chat = await database.chats.get("local", "chat-0")
    assert chat is not None
    assert (chat.state, chat.last) == (TurnState.RUNNING, len(events))

    ages: list[float] = []
    abandoned_turns = await database.chats.find_abandoned(
        lambda runner, age: runner == "holder" and not ages.append(age)
    )
    assert [one.id for one in abandoned_turns] == ["chat-0"]
    # Time goes on for one that beats no more.
    await database.chats.find_abandoned(lambda runner, age: not ages.append(age))
    assert 0 <= ages[0] < ages[1]
    results = await asyncio.gather(*(database.chats.take_over("chat-0", f"r{n}", "holder") for n in range(5)))
    assert sum(results) == 1
    runner = f"r{results.index(True)}"
    new_chat_event = NewChatEvent(Kind.MODEL_MESSAGE, {"text": "x" * (len(events) - 1)}, "step-1")
    (model_event, _) = await database.chats.append(
        "chat-0",
        runner,
        [new_chat_event, NewChatEvent(Kind.END, {"why": "interrupted"})],
        next_state=TurnState.IDLE,
    )
    assert [event.seq for event in await database.chats.list_events("chat-0")] == [
        1,
        model_event.seq,
        model_event.seq + 1,
    ]


async def test_a_process_learns_that_its_chat_was_taken(
    database: Database, process: Callable[[str], Any]
) -> None:
    await chats(database, 1)
    code = f"""
from toolyard.agents.chat.errors import NotHeld
try:
{chr(10).join(f"    {line}" for line in _HOLD.strip().splitlines())}
except NotHeld as error:
    say("not held")
await told()
"""
    async with process(code) as holder:
        await holder.line()
        assert await database.chats.take_over("chat-0", "me", "holder")
        last = (await database.chats.append("chat-0", "me", [NewChatEvent(Kind.NOTE, {})]))[0].seq
        while (line := await holder.line()) != "not held":
            assert int(line) < last
    with pytest.raises(NotHeld):
        await database.chats.append("chat-0", "holder", [NewChatEvent(Kind.NOTE, {})])
    events = await database.chats.list_events("chat-0", limit=10_000)
    assert [event.seq for event in events] == list(range(1, last + 1))
