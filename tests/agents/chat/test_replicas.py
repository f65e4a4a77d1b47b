"""Two processes with one database show the same chat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.agents.chat.chat_harness import ME, ChatProcess, Model, bodies_of_kind, kinds

from toolyard.agents.chat.errors import ChatBusy
from toolyard.types.chat import Kind

pytestmark = pytest.mark.slow

Opening = Callable[..., Awaitable[ChatProcess]]
Until = Callable[..., Awaitable[None]]


async def test_a_turn_is_seen_and_answered_from_both(
    open_chats: Opening, model: Model, wait_until: Until, database_url: str | None
) -> None:
    here, other_chats = await open_chats(url=database_url), await open_chats(url=database_url)
    chat = await here.chat()

    # Text produced here is streamed there, piece by piece.
    turn = await here.chats.send(ME, chat.id, "say One two\nhold\nsay  three")
    await other_chats.until(
        chat,
        turn,
        lambda chat_events: "One two" in "".join(str(e.body.get("delta", "")) for e in chat_events),
    )
    with pytest.raises(ChatBusy):
        await other_chats.chats.send(ME, chat.id, "and I?")
    await model.release()
    assert (
        bodies_of_kind(await other_chats.over(chat, turn), Kind.MODEL_MESSAGE)[0]["text"] == "One two three"
    )

    # An approval requested here is given there, and the turn continues there.
    turn = await here.chats.send(ME, chat.id, 'call s_put {"text": "a"}\nthen\nresults?')
    events = await other_chats.waits(chat, turn)
    await other_chats.chats.answer_approval(
        ME, bodies_of_kind(events, Kind.APPROVAL_REQUEST)[0]["approval"], yes=True
    )
    assert bodies_of_kind(await here.over(chat, turn), Kind.MODEL_MESSAGE)[-1]["text"] == "put: a"

    # A question asked here is answered there.
    turn = await here.chats.send(ME, chat.id, "call s_ask {}\nthen\nresults?")
    events = await other_chats.until(
        chat, turn, lambda chat_events: bodies_of_kind(chat_events, Kind.QUESTION)
    )
    await other_chats.chats.answer_question(
        ME, chat.id, bodies_of_kind(events, Kind.QUESTION)[0]["id"], "accept", {"name": "Ann"}
    )
    assert '"Ann"' in bodies_of_kind(await here.over(chat, turn), Kind.MODEL_MESSAGE)[-1]["text"]

    # A turn that runs here is stopped there.
    turn = await here.chats.send(ME, chat.id, "call s_wait {}")
    await wait_until(lambda: "wait {}" in here.calls())
    await other_chats.chats.stop_turn(ME, chat.id)
    events = await other_chats.over(chat, turn)
    assert kinds(events) == ["user", "said", "call", "result", "end"]
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "stopped"
