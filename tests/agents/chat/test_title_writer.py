"""Titles written by the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.agents.chat.chat_harness import ME, ChatProcess

from toolyard.agents.chat.title_writer import clean_title
from toolyard.types.chat import Chat, Kind


@pytest.mark.parametrize(
    ("answer_text", "title"),
    [
        ("Weather in Rome", "Weather in Rome"),
        ('"Weather in Rome."', "Weather in Rome"),
        ("**Title: Weather in Rome**\nMore text", "Weather in Rome"),
        ("# Weather\u202e in Rome", "Weather\u202e in Rome"),
        ("\n\n  - Weather   in Rome\n", "Weather in Rome"),
        ("A" * 100, "A" * 59 + "…"),
        ("“…”", "…"),
        ("\0\0", "\ufffd\ufffd"),
        ("   ", ""),
    ],
)
def test_a_title_is_one_short_line_without_decoration(answer_text: str, title: str) -> None:
    assert clean_title(answer_text) == title


async def read_title(process: ChatProcess, chat: Chat) -> str:
    """Return the title that the model wrote, once its event is stored."""
    events = await process.until(chat, 1, lambda events: events[-1].kind is Kind.TITLE)
    return events[-1].body["title"]


async def test_the_title_is_written_once_after_the_first_turn(
    open_chats: Callable[..., Awaitable[ChatProcess]],
) -> None:
    process = await open_chats(writes_titles=True)
    chat = await process.chat()
    await process.say(chat, "title Counting sheep", "say One.")
    assert await read_title(process, chat) == "Counting sheep"
    assert (await process.chats.get(ME, chat.id)).title == "Counting sheep"


async def test_a_title_that_the_person_chose_is_kept(
    open_chats: Callable[..., Awaitable[ChatProcess]],
) -> None:
    process = await open_chats(writes_titles=True)
    renamed_chat, other = await process.chat(title="Mine"), await process.chat()
    await process.say(renamed_chat, "title Counting sheep", "say One.")
    # The title of the second chat shows that the first one had its turn.
    await process.say(other, "title Counting cows", "say One.")
    assert await read_title(process, other) == "Counting cows"
    assert (await process.chats.get(ME, renamed_chat.id)).title == "Mine"
