"""Long chats for a benchmark, written as the loop writes them."""

from __future__ import annotations

import time
from pathlib import Path

from toolyard.agents.chat.result_event import result_event
from toolyard.store import Database
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.chat import Chat, Kind, NewChatEvent, TurnState
from toolyard.types.tool import Result

__all__ = ["fill"]

_RUNNER = "bench"
_ANSWER = """Here is what I found about it.

- the **first** thing, with `code` in it
- the second thing

```python
def answer(number: int) -> int:
    return number + 1
```
"""


async def fill(data: Path, messages: int) -> tuple[str, str]:
    """A chat of so many messages, and one with a tool result of 5 MB; their ids."""
    database = await Database.open(data, url=None, secret_key=None)
    try:
        return await _long(database, messages), await _wide(database)
    finally:
        await database.close()


async def _long(database: Database, messages: int) -> str:
    """Half of them are questions: with the end of each turn that makes twice as many events as messages."""
    chat = await _chat(database, "long")
    for number in range(messages // 2):
        model_message = {"text": _ANSWER, "reasoning": "", "model": "bench", "calls": 0}
        usage = {"input": 100, "output": 50, "cached": 0, "cost": None}
        end_body = {"why": "done", "error": None, "hint": None, "seconds": 1.0}
        events = [
            NewChatEvent(Kind.MODEL_MESSAGE, model_message, part="step-1"),
            NewChatEvent(Kind.USAGE, usage),
            NewChatEvent(Kind.END, end_body),
        ]
        await _turn(database, chat, f"Question {number}: what about it?", events)
    return chat


async def _wide(database: Database) -> str:
    chat = await _chat(database, "wide")
    call = {"id": "c1", "name": "demo_count", "tool": "demo/count", "server": "demo", "native": False}
    call |= {"title": None, "arguments": {"to": 1}}
    result = result_event("c1", Result(None, "0123456789 line\n" * 312_500), ok=True, seconds=1.0)
    end_body = {"why": "done", "error": None, "hint": None, "seconds": 1.0}
    await _turn(
        database, chat, "Fetch it", [NewChatEvent(Kind.CALL, call), result, NewChatEvent(Kind.END, end_body)]
    )
    return chat


async def _chat(database: Database, id: str) -> str:
    now = time.time()
    await database.chats.create(Chat(id, LOCAL_PRINCIPAL.id, f"A {id} chat", now, now))
    return id


async def _turn(database: Database, chat: str, text: str, events: list[NewChatEvent]) -> None:
    new_chat_event = NewChatEvent(Kind.USER, {"text": text, "model": "bench", "agent": None, "again": None})
    claimed_turn = await database.chats.claim(chat, _RUNNER, TurnState.IDLE, [new_chat_event], new_turn=True)
    assert claimed_turn is not None
    await database.chats.append(chat, _RUNNER, events, next_state=TurnState.IDLE)
