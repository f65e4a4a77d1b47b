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


async def list_shown_messages(process: ChatProcess, chat: Chat) -> list[str]:
    """Return the messages that a page shows."""
    return [
        each["text"]
        for each in bodies_of_kind(await process.chats.list_latest_events(ME, chat.id), Kind.USER)
    ]


async def list_user_messages(model: Model) -> list[str]:
    """Return the user messages of the last request to the model."""
    return [each["content"] for each in (await model.journal())[-1]["messages"] if each["role"] == "user"]


async def edit(process: ChatProcess, chat: Chat, turn: int, text: str) -> int:
    number = await process.chats.edit(ME, chat.id, turn, text)
    await process.over(chat, number)
    return number


async def test_an_edited_message_starts_a_branch_and_the_earlier_one_is_kept(
    process: ChatProcess, model: Model
) -> None:
    chat = await process.chat()
    first, second = [(await process.say(chat, text))[0].seq for text in ("one", "two")]
    await process.say(chat, "three")
    edited_message = await edit(process, chat, second, "two, but better")
    assert (
        await list_shown_messages(process, chat)
        == await list_user_messages(model)
        == ["one", "two, but better"]
    )
    tree = await process.chats.get_turn_tree(ME, chat.id)
    assert (tree.parents[edited_message], tree.alternatives(edited_message)) == (
        first,
        [second, edited_message],
    )
    # The branch continues from its current end.
    await process.say(chat, "four")
    assert await list_user_messages(model) == ["one", "two, but better", "four"]
    await process.chats.choose(ME, chat.id, second)
    assert await list_shown_messages(process, chat) == ["one", "two", "three"]
    await process.say(chat, "five")
    assert await list_user_messages(model) == ["one", "two", "three", "five"]
    # The first message can be edited as well.
    await edit(process, chat, first, "another")
    assert await list_shown_messages(process, chat) == await list_user_messages(model) == ["another"]


async def test_any_sequence_of_messages_edits_retries_and_switches_shows_and_sends_its_branch(
    process: ChatProcess, model: Model
) -> None:
    """A simple model: each turn has its path, as a list of texts."""
    rng, chat = random.Random(20), await process.chat()
    paths: dict[int, list[str]] = {}
    branches: dict[int, list[int]] = {}
    last = 0
    for step in range(24):
        operation = "send" if not paths else rng.choice(["send", "edit", "retry", "choose"])
        turn = rng.choice(branches[last]) if paths else 0
        before, turns = paths.get(turn, [])[:-1], branches.get(turn, [])[:-1]
        if operation == "choose":
            turn = rng.choice(sorted(paths))
            last = max(each for each, path in branches.items() if turn in path)
            assert (await process.chats.choose(ME, chat.id, turn)).turn == last
        else:
            if operation == "send":
                text, before, turns = f"text {step}", paths.get(last, []), branches.get(last, [])
                last = await process.chats.send(ME, chat.id, text)
            elif operation == "edit":
                text = f"edited {step}"
                last = await process.chats.edit(ME, chat.id, turn, text)
            else:
                text = paths[turn][-1]
                last = await process.chats.retry(ME, chat.id, turn)
            await process.over(chat, last)
            paths[last], branches[last] = [*before, text], [*turns, last]
            assert await list_user_messages(model) == paths[last]
        assert await list_shown_messages(process, chat) == paths[last]
        # Another process reads the same from the store.
        stored_chat = await process.chats.get(ME, chat.id)
        assert (await process.chats.get_turn_tree(ME, chat.id)).branch(stored_chat.turn) == branches[last]


async def test_the_export_has_the_chosen_branch_only(process: ChatProcess) -> None:
    chat = await process.chat(title="A chat")
    first = (await process.say(chat, "say First answer."))[0].seq
    await process.say(chat, "say Second answer.")
    await edit(process, chat, first, "say Other answer.")

    async def export() -> str:
        return "".join(
            [part async for part in export_markdown(process.chats, await process.chats.get(ME, chat.id))]
        )

    text = await export()
    assert ("Other answer." in text, "First answer." in text, "Second answer." in text) == (
        True,
        False,
        False,
    )
    await process.chats.choose(ME, chat.id, first)
    text = await export()
    assert ("Other answer." in text, "First answer." in text, "Second answer." in text) == (False, True, True)


async def test_editing_a_replaced_message_returns_the_newer_version(process: ChatProcess) -> None:
    chat = await process.chat()
    first, second = [(await process.say(chat, text))[0].seq for text in ("one", "two")]
    newer = await edit(process, chat, second, "two by the first tab")
    with pytest.raises(ChatChanged) as exc_info:
        await process.chats.edit(ME, chat.id, second, "two by the second tab")
    assert (exc_info.value.turn, exc_info.value.text) == (newer, "two by the first tab")
    # A message on a branch that was left further up.
    other = await edit(process, chat, first, "one by the first tab")
    for action in (process.chats.edit(ME, chat.id, second, "x"), process.chats.retry(ME, chat.id, newer)):
        with pytest.raises(ChatChanged) as exc_info:
            await action
        assert (exc_info.value.turn, exc_info.value.text) == (other, "one by the first tab")
    assert await list_shown_messages(process, chat) == ["one by the first tab"]


async def test_of_two_simultaneous_edits_of_a_message_one_wins(process: ChatProcess) -> None:
    chat = await process.chat()
    turn = (await process.say(chat, "one"))[0].seq
    outcomes = await asyncio.gather(
        *(process.chats.edit(ME, chat.id, turn, f"by tab {tab}\nhold") for tab in range(4)),
        return_exceptions=True,
    )
    [winners] = [each for each in outcomes if isinstance(each, int)]
    assert all(isinstance(each, ChatBusy | ChatChanged) for each in outcomes if each != winners)
    await process.chats.stop_turn(ME, chat.id)
    await process.over(chat, winners)


async def test_a_running_turn_cannot_be_edited_away(process: ChatProcess, model: Model) -> None:
    chat = await process.chat()
    first = (await process.say(chat, "one"))[0].seq
    response = await process.chats.send(ME, chat.id, "say Two\nhold")
    for action in (
        process.chats.edit(ME, chat.id, first, "x"),
        process.chats.retry(ME, chat.id, response),
        process.chats.choose(ME, chat.id, first),
    ):
        with pytest.raises(ChatBusy, match="already running") as exc_info:
            await action
        assert exc_info.value.hint == "stop the turn, or answer its question"
    await process.chats.stop_turn(ME, chat.id)
    await process.over(chat, response)
    assert await edit(process, chat, first, "now")


async def test_a_turn_that_does_not_exist_or_is_not_a_message_is_refused(process: ChatProcess) -> None:
    chat, other = await process.chat(), await process.chat()
    with pytest.raises(ChatRefused, match="no message yet"):
        await process.chats.retry(ME, chat.id)
    run = (await process.run(chat, "s_look", text="a"))[0].seq
    message_seq = (await process.say(other, "one"))[0].seq
    with pytest.raises(ChatRefused, match="only messages"):
        await process.chats.edit(ME, chat.id, run, "x")
    for number in (run + 1, 999):
        for action in (
            process.chats.edit(ME, chat.id, number, "x"),
            process.chats.retry(ME, chat.id, number),
            process.chats.choose(ME, chat.id, number),
        ):
            with pytest.raises(NoSuchChat, match="message not found"):
                await action
    for action in (
        process.chats.edit("mallory", other.id, message_seq, "x"),
        process.chats.retry("mallory", other.id, message_seq),
        process.chats.choose("mallory", other.id, message_seq),
        process.chats.get_turn_tree("mallory", other.id),
        process.chats.get_turn_start("mallory", other.id, message_seq),
    ):
        with pytest.raises(NoSuchChat):
            await action


async def test_a_choice_survives_the_process(open_chats: Opening) -> None:
    process = await open_chats()
    chat = await process.chat()
    first = (await process.say(chat, "one"))[0].seq
    await edit(process, chat, first, "two")
    await process.chats.choose(ME, chat.id, first)
    await process.close()
    again = await open_chats()
    assert await list_shown_messages(again, chat) == ["one"]
    assert (await again.chats.get(ME, chat.id)).turn == first
