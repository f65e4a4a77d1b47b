"""Demo chats: one with every kind of event, a finished one, and a long one."""

from __future__ import annotations

import base64
import itertools
import time

from toolyard.agents.chat.result_event import result_event
from toolyard.cli.playground_server import draw_bar_chart
from toolyard.store import Database
from toolyard.types.approval import Approval, Grant
from toolyard.types.chat import Chat, ChatEvent, Kind, NewChatEvent, TurnState
from toolyard.types.tool import JsonObject, Media, Result, TextBlock
from toolyard.web.ui.chat.example_chat import example_events

RUNNER = "nobody"
QUESTION = "Is Friday too full? Draw my week."


async def fill_chats(database: Database, owner: str) -> dict[str, str]:
    """Store chats, approvals and grants of one user; return their ids."""
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
    why = "This tool can change data, so your approval is needed."
    approval = {"owner": owner, "reason": why, "asked_at": now - 60}
    text = {"text": "Too much on Friday"}
    await database.approvals.add(
        Approval("a-1", arguments=text, chat_id=everything, call_id="6", **call, **approval)
    )
    await database.approvals.add(Approval("a-3", arguments={"text": "From an editor"}, **call, **approval))
    await database.approvals.add(Approval("a-4", arguments={}, **call, **approval))
    stored_grant = {"owner": owner, "created_at": now - 600, **call}
    grant = Grant("g-1", predicate_json="{}", expires_at=now + 3_600, chat_id=everything, **stored_grant)
    await database.approvals.answer(owner, "a-4", yes=True, at=now, grant=grant)
    return {"chat": "0" * 24, "chat-waits": everything}


async def fill_screenshot_chat(database: Database, owner: str) -> dict[str, str]:
    """Store one short turn with two tools and an image, which fits on a page; return its id."""
    now = time.time()
    chat = await _chat(database, owner, "f" * 24, "Is Friday too full?", now - 120)
    issues, chart = "mcp_github-work__list_issues", "playground_chart"
    values = {"values": [3, 5, 8, 4, 9, 6, 2], "colour": "green"}
    issues_text = "9 issues: #412 Retries, #418 Release notes, #420 Sign-in on phones …"
    steps = [
        NewChatEvent(Kind.USER, {"text": QUESTION, "model": "fast", "agent": None, "again": None}),
        _model_message("step-1", "I will look at what is due, and draw it.", 2),
        _call("1", issues, "GitHub, at work", {"state": "open", "due": "2026-07-31"}),
        _call("2", chart, "Playground", values, title="Draw a chart"),
        result_event("1", Result(None, issues_text, blocks=(TextBlock(issues_text),)), ok=True, seconds=0.41),
        result_event("2", _image_result("7 bars, the highest is 9."), ok=True, seconds=0.02),
        _model_message(
            "step-2", "Yes: **9 of 37** tasks are due on *Friday*, twice as many as on Thursday.", 0
        ),
        NewChatEvent(Kind.USAGE, {"input": 3515, "output": 112, "cached": 2100, "cost": "0.0021"}),
        NewChatEvent(Kind.END, {"why": "done", "error": None, "hint": None, "seconds": 3.1}),
    ]
    assert await database.chats.claim(chat, RUNNER, TurnState.IDLE, steps[:1], new_turn=True)
    await database.chats.append(chat, RUNNER, steps[1:], next_state=TurnState.IDLE)
    return {"chat-turn": chat}


def _model_message(step: str, text: str, calls: int) -> NewChatEvent:
    return NewChatEvent(
        Kind.MODEL_MESSAGE, {"text": text, "reasoning": "", "model": "gpt-5-mini", "calls": calls}, part=step
    )


def _call(id_: str, name: str, server: str, arguments: JsonObject, title: str = "") -> NewChatEvent:
    body = {"id": id_, "name": name, "tool": f"x/{name}", "server": server, "native": False, "title": title}
    return NewChatEvent(Kind.CALL, {**body, "arguments": arguments})


def _image_result(text: str) -> Result:
    picture = base64.b64encode(draw_bar_chart([3, 5, 8, 4, 9, 6, 2], (23, 130, 80))).decode()
    media = Media("image", "image/png", picture, len(picture) * 3 // 4)
    return Result(None, text, blocks=(TextBlock(text), media))


async def _chat(database: Database, owner: str, id_: str, title: str, at: float) -> str:
    await database.chats.create(Chat(id_, owner, title, at, at))
    return id_


async def _turn(database: Database, chat_id: str, events: list[ChatEvent]) -> None:
    first_events, *rest = [_new_event(event) for event in events]
    assert await database.chats.claim(chat_id, RUNNER, TurnState.IDLE, [first_events], new_turn=True)
    is_ended = rest[-1].kind is Kind.END
    await database.chats.append(
        chat_id, RUNNER, rest, next_state=TurnState.IDLE if is_ended else TurnState.WAITING
    )


def _new_event(event: ChatEvent) -> NewChatEvent:
    if event.kind is Kind.RESULT and event.body["media"]:
        result = _image_result(event.body["text"])
        return result_event(event.body["id"], result, ok=True, seconds=event.body["seconds"])
    return NewChatEvent(event.kind, dict(event.body), event.part)
