"""Retries and edited messages: all alternatives are stored, and the chosen branch is used everywhere."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.agents.chat.chat_harness import ME, ChatProcess, Model, bodies_of_kind
from tests.agents.chat.conftest import Opening

from toolyard.agents.chat.errors import ChatBusy, ChatChanged, ChatRefused, NoSuchChat
from toolyard.agents.chat.markdown_export import export_markdown
from toolyard.types.chat import Chat, Kind


async def shown(house: ChatProcess, chat: Chat) -> list[str]:
    """Return the messages that a page shows."""
    return [
        each["text"] for each in bodies_of_kind(await house.chats.list_latest_events(ME, chat.id), Kind.USER)
    ]


async def sent(model: Model) -> list[str]:
    """Return the user messages of the last request to the model."""
    return [each["content"] for each in (await model.journal())[-1]["messages"] if each["role"] == "user"]


async def edit(house: ChatProcess, chat: Chat, turn: int, text: str) -> int:
    number = await house.chats.edit(ME, chat.id, turn, text)
    await house.over(chat, number)
    return number


async def test_an_edited_message_starts_a_branch_and_the_earlier_one_is_kept(
    house: ChatProcess, model: Model
) -> None:
    chat = await house.chat()
    first, second = [(await house.say(chat, text))[0].seq for text in ("one", "two")]
    await house.say(chat, "three")
    edited = await edit(house, chat, second, "two, but better")
    assert await shown(house, chat) == await sent(model) == ["one", "two, but better"]
    tree = await house.chats.get_turn_tree(ME, chat.id)
    assert (tree.parents[edited], tree.alternatives(edited)) == (first, [second, edited])
    # The branch continues from its current end.
    await house.say(chat, "four")
    assert await sent(model) == ["one", "two, but better", "four"]
    await house.chats.choose(ME, chat.id, second)
    assert await shown(house, chat) == ["one", "two", "three"]
    await house.say(chat, "five")
    assert await sent(model) == ["one", "two", "three", "five"]
    # The first message can be edited as well.
    await edit(house, chat, first, "another")
    assert await shown(house, chat) == await sent(model) == ["another"]


async def test_any_sequence_of_messages_edits_retries_and_switches_shows_and_sends_its_branch(
    house: ChatProcess, model: Model
) -> None:
    """A simple model: each turn has its path, as a list of texts."""
    chosen, chat = random.Random(20), await house.chat()
    paths: dict[int, list[str]] = {}
    branches: dict[int, list[int]] = {}
    last = 0
    for step in range(24):
        what = "send" if not paths else chosen.choice(["send", "edit", "retry", "choose"])
        turn = chosen.choice(branches[last]) if paths else 0
        before, turns = paths.get(turn, [])[:-1], branches.get(turn, [])[:-1]
        if what == "choose":
            turn = chosen.choice(sorted(paths))
            last = max(each for each, path in branches.items() if turn in path)
            assert (await house.chats.choose(ME, chat.id, turn)).turn == last
        else:
            if what == "send":
                text, before, turns = f"text {step}", paths.get(last, []), branches.get(last, [])
                last = await house.chats.send(ME, chat.id, text)
            elif what == "edit":
                text = f"edited {step}"
                last = await house.chats.edit(ME, chat.id, turn, text)
            else:
                text = paths[turn][-1]
                last = await house.chats.retry(ME, chat.id, turn)
            await house.over(chat, last)
            paths[last], branches[last] = [*before, text], [*turns, last]
            assert await sent(model) == paths[last]
        assert await shown(house, chat) == paths[last]
        # Another process reads the same from the store.
        stored = await house.chats.get(ME, chat.id)
        assert (await house.chats.get_turn_tree(ME, chat.id)).branch(stored.turn) == branches[last]


async def test_the_export_has_the_chosen_branch_only(house: ChatProcess) -> None:
    chat = await house.chat(title="A chat")
    first = (await house.say(chat, "say First answer."))[0].seq
    await house.say(chat, "say Second answer.")
    await edit(house, chat, first, "say Other answer.")

    async def export() -> str:
        return "".join(
            [part async for part in export_markdown(house.chats, await house.chats.get(ME, chat.id))]
        )

    text = await export()
    assert ("Other answer." in text, "First answer." in text, "Second answer." in text) == (
        True,
        False,
        False,
    )
    await house.chats.choose(ME, chat.id, first)
    text = await export()
    assert ("Other answer." in text, "First answer." in text, "Second answer." in text) == (False, True, True)


async def test_who_edits_a_message_that_was_replaced_gets_the_newer_version(house: ChatProcess) -> None:
    chat = await house.chat()
    first, second = [(await house.say(chat, text))[0].seq for text in ("one", "two")]
    newer = await edit(house, chat, second, "two by the first tab")
    with pytest.raises(ChatChanged) as caught:
        await house.chats.edit(ME, chat.id, second, "two by the second tab")
    assert (caught.value.turn, caught.value.text) == (newer, "two by the first tab")
    # A message on a branch that was left further up.
    other = await edit(house, chat, first, "one by the first tab")
    for action in (house.chats.edit(ME, chat.id, second, "x"), house.chats.retry(ME, chat.id, newer)):
        with pytest.raises(ChatChanged) as caught:
            await action
        assert (caught.value.turn, caught.value.text) == (other, "one by the first tab")
    assert await shown(house, chat) == ["one by the first tab"]


async def test_of_two_who_edit_the_same_message_at_once_one_wins(house: ChatProcess) -> None:
    chat = await house.chat()
    turn = (await house.say(chat, "one"))[0].seq
    outcomes = await asyncio.gather(
        *(house.chats.edit(ME, chat.id, turn, f"by tab {tab}\nhold") for tab in range(4)),
        return_exceptions=True,
    )
    [begun] = [each for each in outcomes if isinstance(each, int)]
    assert all(isinstance(each, ChatBusy | ChatChanged) for each in outcomes if each != begun)
    await house.chats.stop(ME, chat.id)
    await house.over(chat, begun)


async def test_a_running_turn_cannot_be_edited_away(house: ChatProcess, model: Model) -> None:
    chat = await house.chat()
    first = (await house.say(chat, "one"))[0].seq
    running = await house.chats.send(ME, chat.id, "say Two\nhold")
    for action in (
        house.chats.edit(ME, chat.id, first, "x"),
        house.chats.retry(ME, chat.id, running),
        house.chats.choose(ME, chat.id, first),
    ):
        with pytest.raises(ChatBusy, match="already running") as caught:
            await action
        assert caught.value.hint == "stop it, or answer"
    await house.chats.stop(ME, chat.id)
    await house.over(chat, running)
    assert await edit(house, chat, first, "now")


async def test_a_turn_that_does_not_exist_or_is_no_message_is_refused(house: ChatProcess) -> None:
    chat, other = await house.chat(), await house.chat()
    with pytest.raises(ChatRefused, match="no message yet"):
        await house.chats.retry(ME, chat.id)
    run = (await house.run(chat, "s_look", text="a"))[0].seq
    said = (await house.say(other, "one"))[0].seq
    with pytest.raises(ChatRefused, match="only messages"):
        await house.chats.edit(ME, chat.id, run, "x")
    for number in (run + 1, 999):
        for action in (
            house.chats.edit(ME, chat.id, number, "x"),
            house.chats.retry(ME, chat.id, number),
            house.chats.choose(ME, chat.id, number),
        ):
            with pytest.raises(NoSuchChat, match="turn not found"):
                await action
    for action in (
        house.chats.edit("mallory", other.id, said, "x"),
        house.chats.retry("mallory", other.id, said),
        house.chats.choose("mallory", other.id, said),
        house.chats.get_turn_tree("mallory", other.id),
        house.chats.get_turn_start("mallory", other.id, said),
    ):
        with pytest.raises(NoSuchChat):
            await action


async def test_a_choice_survives_the_process(opened: Opening) -> None:
    house = await opened()
    chat = await house.chat()
    first = (await house.say(chat, "one"))[0].seq
    await edit(house, chat, first, "two")
    await house.chats.choose(ME, chat.id, first)
    await house.close()
    again = await opened()
    assert await shown(again, chat) == ["one"]
    assert (await again.chats.get(ME, chat.id)).turn == first
