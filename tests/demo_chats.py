"""Chats with something in them: one in which everything happens once, a finished one, one that is long."""

from __future__ import annotations

import base64
import itertools
import time

from toolyard.agents.chat.keeping import result_event
from toolyard.cli.playground_server import bars
from toolyard.model.approval import Approval, Grant
from toolyard.model.chat import Chat, Event, Kind, NewEvent, TurnState
from toolyard.model.result import Media, Result, Text
from toolyard.store import Database
from toolyard.web.ui.chat_example import example_events

RUNNER = "nobody"


async def fill_chats(database: Database, owner: str) -> dict[str, str]:
    """Chats, approvals and grants of one person; their ids."""
    now = time.time()
    events = list(example_events(now - 900))
    everything = await _chat(database, owner, "b" * 24, "How busy was my week?", now - 900)
    for _, turn in itertools.groupby(events, lambda event: event.turn):
        await _turn(database, everything, list(turn))
    for number, title in enumerate(
        ("Retries in the HTTP client", "Which issues are about sign-in?", "Release notes for 1.4")
    ):
        chat = await _chat(database, owner, f"{number}" * 24, title, now - 3_600 * (number + 2))
        await _turn(database, chat, [each for each in events if each.turn == 1])
    call = {"tool": "playground/note", "name": "playground_note", "definition_hash": "0" * 64}
    why = "the tool says that it writes, and write_tools is 'ask'"
    asked = {"owner": owner, "reason": why, "asked_at": now - 60}
    text = {"text": "Too much on Friday"}
    await database.approvals.ask(
        Approval("a-1", arguments=text, chat_id=everything, call_id="6", **call, **asked)
    )
    await database.approvals.ask(Approval("a-3", arguments={"text": "From an editor"}, **call, **asked))
    await database.approvals.ask(Approval("a-4", arguments={}, **call, **asked))
    granted = {"owner": owner, "created_at": now - 600, **call}
    grant = Grant("g-1", predicate={}, expires_at=now + 3_600, chat_id=everything, **granted)
    await database.approvals.answer(owner, "a-4", yes=True, at=now, grant=grant)
    return {"chat": "0" * 24, "chat-waits": everything}


async def _chat(database: Database, owner: str, id_: str, title: str, at: float) -> str:
    await database.chats.create(Chat(id_, owner, title, at, at))
    return id_


async def _turn(database: Database, chat_id: str, events: list[Event]) -> None:
    begun, *rest = [_stored(event) for event in events]
    assert await database.chats.claim(chat_id, RUNNER, TurnState.IDLE, [begun], new_turn=True)
    ended = rest[-1].kind is Kind.END
    await database.chats.append(chat_id, RUNNER, rest, then=TurnState.IDLE if ended else TurnState.WAITING)


def _stored(event: Event) -> NewEvent:
    if event.kind is Kind.RESULT and event.body["media"]:
        picture = base64.b64encode(bars([3, 5, 8, 4, 9, 6, 2], (23, 130, 80))).decode()
        media = Media("image", "image/png", picture, len(picture) * 3 // 4)
        result = Result(None, event.body["text"], blocks=(Text(event.body["text"]), media))
        return result_event(event.body["id"], result, ok=True, seconds=event.body["seconds"])
    return NewEvent(event.kind, dict(event.body), event.part)
