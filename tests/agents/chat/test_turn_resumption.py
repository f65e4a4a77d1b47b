"""The process that received an answer dies before the turn continues: another process continues it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest
from tests.agents.chat.chat_harness import ME, ChatProcess, bodies_of_kind, kinds

from toolyard.agents.chat.approval_grants import create_grant
from toolyard.types.chat import Chat, Kind, NewChatEvent, TurnState

Opening = Callable[..., Awaitable[ChatProcess]]
SCRIPT = ('call s_put {"text": "a"}', "then", "results?")


async def start_waiting_turn(process: ChatProcess) -> tuple[Chat, int, str]:
    """Return a chat with a waiting turn, the turn, and the approval."""
    chat = await process.chat()
    turn = await process.chats.send(ME, chat.id, "\n".join(SCRIPT))
    [ask] = bodies_of_kind(await process.waits(chat, turn), Kind.APPROVAL_REQUEST)
    return chat, turn, ask["approval"]


async def store_approval(process: ChatProcess, approval: str) -> None:
    """Store an approval of a minute ago."""
    requested_approval, now = await process.database.approvals.find(ME, approval), time.time()
    assert requested_approval is not None
    grant = create_grant(requested_approval, None, now)
    assert await process.database.approvals.answer(ME, approval, yes=True, at=now - 60, grant=grant)


async def publish_answer(process: ChatProcess, chat: Chat, approval: str) -> None:
    requested_approval = await process.database.approvals.find(ME, approval)
    assert requested_approval is not None
    body = {"id": requested_approval.call_id, "approval": approval, "yes": True, "remembered": None}
    await process.database.chats.append_without_claim(chat.id, [NewChatEvent(Kind.APPROVAL_ANSWER, body)])


@pytest.mark.parametrize("how_far", ["the chat was told", "the answer was stored"])
async def test_a_turn_continues_after_an_answer_without_a_running_process(
    open_chats: Opening, how_far: str, database_url: str | None
) -> None:
    first = await open_chats(url=database_url)
    chat, turn, approval = await start_waiting_turn(first)
    await store_approval(first, approval)
    if how_far == "the chat was told":
        await publish_answer(first, chat, approval)
    assert (await first.chats.get(ME, chat.id)).state is TurnState.WAITING
    second = await open_chats(url=database_url, everybodys=True)
    events = await second.over(chat, turn)
    assert kinds(events) == ["user", "said", "call", "ask", "answer", "result", "said", "end"]
    assert bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"] == "put: a"


async def test_a_turn_that_waits_for_a_person_waits_on(open_chats: Opening) -> None:
    chat, turn, approval = await start_waiting_turn(await open_chats())
    process = await open_chats(everybodys=True)
    assert (await process.chats.get(ME, chat.id)).state is TurnState.WAITING
    await process.chats.resume_if_answered(ME, chat.id)
    assert (await process.chats.get(ME, chat.id)).state is TurnState.WAITING
    await process.chats.answer_approval(ME, approval, yes=False)
    assert bodies_of_kind(await process.over(chat, turn), Kind.END)[0]["why"] == "done"


async def test_a_terminal_leaves_the_chats_of_others_alone_and_takes_up_its_own(open_chats: Opening) -> None:
    first = await open_chats()
    chat, turn, approval = await start_waiting_turn(first)
    await store_approval(first, approval)
    process = await open_chats()
    assert (await process.chats.get(ME, chat.id)).state is TurnState.WAITING
    await process.chats.resume_if_answered(ME, chat.id)
    assert bodies_of_kind(await process.over(chat, turn), Kind.MODEL_MESSAGE)[-1]["text"] == "put: a"
