"""What waits for a person, in both databases."""

from __future__ import annotations

import time

from toolyard.store import Database
from toolyard.types.approval import Approval, PageQuestion, PendingKind
from toolyard.types.chat import Chat, Kind, NewChatEvent, Question, TurnState

USER = NewChatEvent(Kind.USER, {"text": "Hello", "model": None, "agent": None, "again": None})
QUESTION = NewChatEvent(Kind.QUESTION, {"id": "q", "call": "1"})
ANSWER = NewChatEvent(Kind.QUESTION_ANSWER, {"id": "q", "action": "accept"})


async def begin_turn(database: Database, chat_id: str, *events: NewChatEvent, state: TurnState) -> None:
    await database.chats.create(Chat(chat_id, "ann", chat_id.title(), time.time(), time.time()))
    assert await database.chats.claim(chat_id, "runner", TurnState.IDLE, [USER], new_turn=True)
    await database.chats.append(chat_id, "runner", events, next_state=state)


async def list_items(database: Database, owner: str = "ann") -> dict[str, PendingKind]:
    return {each.title: each.kind for each in await database.pending_items.list(owner, time.time())}


async def test_chats_approvals_and_questions_of_a_person_are_listed(database: Database) -> None:
    await begin_turn(database, "idle", state=TurnState.IDLE)
    await begin_turn(database, "running", state=TurnState.RUNNING)
    await begin_turn(database, "suspended", state=TurnState.WAITING)
    now = time.time()
    await database.approvals.add(Approval("a1", "ann", "x/y", "x_y", "hash", {}, "why", now))
    await database.approvals.add(Approval("a2", "bob", "x/z", "x_z", "hash", {}, "why", now))
    question = Question("q1", "", "github", "form", "Which one?")
    await database.questions.add(PageQuestion("q1", "ann", (), question, now, now + 60), 20)
    await database.questions.add(PageQuestion("q2", "ann", (), question, now - 60, now - 1), 20)
    assert await list_items(database) == {
        "Running": PendingKind.RUNNING_CHAT,
        "Suspended": PendingKind.WAITING_CHAT,
        "x_y": PendingKind.APPROVAL,
        "github": PendingKind.QUESTION,
    }
    assert await list_items(database, "bob") == {"x_z": PendingKind.APPROVAL}


async def test_an_approval_in_a_chat_counts_as_its_chat(database: Database) -> None:
    await begin_turn(database, "suspended", state=TurnState.WAITING)
    approval = Approval("a1", "ann", "x/y", "x_y", "hash", {}, "why", time.time(), "suspended", "call")
    await database.approvals.add(approval)
    assert await list_items(database) == {"Suspended": PendingKind.WAITING_CHAT}


async def test_a_running_chat_waits_while_a_question_of_its_last_turn_is_open(database: Database) -> None:
    await begin_turn(database, "asked", QUESTION, state=TurnState.RUNNING)
    await begin_turn(database, "answered", QUESTION, ANSWER, state=TurnState.RUNNING)
    await begin_turn(database, "earlier", QUESTION, state=TurnState.IDLE)
    assert await database.chats.claim("earlier", "runner", TurnState.IDLE, [USER], new_turn=True)
    assert await list_items(database) == {
        "Asked": PendingKind.WAITING_CHAT,
        "Answered": PendingKind.RUNNING_CHAT,
        "Earlier": PendingKind.RUNNING_CHAT,
    }
