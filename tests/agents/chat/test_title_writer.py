"""Titles written by the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.agents.chat.chat_harness import ME, ChatProcess

from toolyard.agents.chat.title_writer import clean_title
from toolyard.types.chat import Chat, Kind


@pytest.mark.parametrize(
    ("written", "title"),
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
def test_a_title_is_one_short_line_without_decoration(written: str, title: str) -> None:
    assert clean_title(written) == title


async def read_title(house: ChatProcess, chat: Chat) -> str:
    """Return the title that the model wrote, once its event is stored."""
    events = await house.until(chat, 1, lambda events: events[-1].kind is Kind.TITLE)
    return events[-1].body["title"]


async def test_the_title_is_written_once_after_the_first_turn(
    opened: Callable[..., Awaitable[ChatProcess]],
) -> None:
    house = await opened(writes_titles=True)
    chat = await house.chat()
    await house.say(chat, "title Counting sheep", "say One.")
    assert await read_title(house, chat) == "Counting sheep"
    assert (await house.chats.get(ME, chat.id)).title == "Counting sheep"


async def test_a_title_that_the_person_chose_is_kept(opened: Callable[..., Awaitable[ChatProcess]]) -> None:
    house = await opened(writes_titles=True)
    renamed, other = await house.chat(title="Mine"), await house.chat()
    await house.say(renamed, "title Counting sheep", "say One.")
    # The title of the second chat shows that the first one had its turn.
    await house.say(other, "title Counting cows", "say One.")
    assert await read_title(house, other) == "Counting cows"
    assert (await house.chats.get(ME, renamed.id)).title == "Mine"
