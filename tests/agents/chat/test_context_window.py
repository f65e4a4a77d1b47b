"""Chats longer than the model's context window: the part that is sent, and the notice for people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from tests.agents.chat.chat_harness import (
    ChatProcess,
    Model,
    bodies_of_kind,
    fake_model,
    has_one_result_per_call,
)

from toolyard.agents.chat.context_window import ContextWindow, estimate_message_tokens
from toolyard.agents.chat.model_history import merge_messages
from toolyard.agents.models.model_ref import ModelRef, ProviderAccess
from toolyard.agents.models.provider_errors import translate_error
from toolyard.types.agent import Agent
from toolyard.types.chat import Kind

Opening = Callable[..., Awaitable[ChatProcess]]
WORDS = "several words of a rather long text " * 40


def turn_of(number: int, *results: object) -> list[ModelMessage]:
    """Return a turn in which the model called one tool for each result."""
    made: list[ModelMessage] = [ModelRequest([UserPromptPart(f"question {number}")])]
    for step, content in enumerate(results):
        id = f"{number}-{step}"
        made.append(ModelResponse([ToolCallPart("look", "{}", id)]))
        made.append(ModelRequest([ToolReturnPart("look", content, id)]))
    return [*made, ModelResponse([TextPart(f"answer {number}")])]


def asked(number: int, *results: object) -> list[ModelMessage]:
    """Return the same turn, while it is running."""
    return turn_of(number, *results)[:-1]


def questions(messages: Sequence[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    return [str(part.content) for part in parts if str(part.content).startswith("question")]


def results(messages: Sequence[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    return [str(part.content) for part in parts]


def test_what_fits_is_sent_as_it_is() -> None:
    one, two, now = turn_of(1, WORDS), turn_of(2), asked(3)
    window = ContextWindow([one, two], 100_000)
    assert window.fit_messages(now) == merge_messages(one, two, now)
    assert (window.omitted_turns, window.shortened_results) == (0, 0)


def test_results_of_earlier_turns_are_shortened_before_a_turn_is_left_out() -> None:
    turns = [turn_of(1, WORDS * 5), turn_of(2), turn_of(3, WORDS)]
    window = ContextWindow(turns, 1_000)
    sent = window.fit_messages(asked(4))
    assert questions(sent) == ["question 1", "question 2", "question 3", "question 4"]
    assert results(sent)[0].endswith("more characters do not fit here; call again to see them]")
    assert results(sent)[1] == WORDS, "the turn before this one keeps what it has"
    assert (window.omitted_turns, window.shortened_results) == (0, 1)


def test_the_oldest_turns_are_left_out_whole_and_the_last_one_stays() -> None:
    window = ContextWindow([turn_of(number, "short " * 200) for number in range(1, 9)], 1_500)
    sent = window.fit_messages(asked(9))
    assert questions(sent)[-2:] == ["question 8", "question 9"]
    assert window.omitted_turns == 9 - len(questions(sent))
    assert 0 < window.omitted_turns < 8
    first = sent[0].parts[0]
    assert isinstance(first, UserPromptPart)
    assert "omitted" in str(first.content)


def test_a_long_turn_keeps_what_the_model_has_not_seen_yet() -> None:
    window = ContextWindow([], 2_000)
    sent = window.fit_messages(asked(1, WORDS * 3, WORDS * 3, "last: " + WORDS * 3))
    assert [len(each) < 2_000 for each in results(sent)] == [True, True, False]


def test_results_that_do_not_fit_even_alone_are_cut_to_the_room() -> None:
    window = ContextWindow([turn_of(1)], 2_000)
    both = [ToolReturnPart("look", f"{name}: {WORDS * 30}", name) for name in ("a", "b")]
    calls = ModelResponse([ToolCallPart("look", "{}", name) for name in ("a", "b")])
    sent = window.fit_messages([ModelRequest([UserPromptPart("question 2")]), calls, ModelRequest(both)])
    assert estimate_message_tokens(sent) <= 2_100
    first, second = results(sent)
    assert first.startswith("a: several words")
    assert second.startswith("b: several words")
    assert min(len(first), len(second)) > 3_000
    assert first.endswith("more characters do not fit here; request less at a time]")
    assert window.shortened_results == 2


def test_what_was_left_out_stays_out_for_the_rest_of_the_turn() -> None:
    window = ContextWindow([turn_of(number, "short " * 200) for number in range(1, 9)], 1_500)
    now = asked(9, "a little more")
    first, again = window.fit_messages(now[:1]), window.fit_messages(now)
    assert window.omitted_turns > 0
    assert again[1 : len(first)] == first[1:]


def test_pictures_go_with_the_results_that_are_shortened() -> None:
    picture = ["a picture", BinaryContent(b"x" * 50_000, media_type="image/png")]
    window = ContextWindow([turn_of(1, picture), turn_of(2)], 1_000)
    assert results(window.fit_messages(asked(3))) == ["a picture\n[an image or audio clip does not fit here]"]


SIZES = st.lists(st.lists(st.integers(0, 6_000), max_size=3), max_size=6)


@given(SIZES, st.lists(st.integers(0, 6_000), max_size=3), st.integers(0, 5_000))
def test_whatever_the_room_the_order_stays_and_every_call_has_its_result(
    earlier: list[list[int]], now: list[int], room: int
) -> None:
    turns = [turn_of(number, *("x" * size for size in sizes)) for number, sizes in enumerate(earlier)]
    current = asked(99, *("x" * size for size in now))
    window = ContextWindow(turns, room)
    sent = window.fit_messages(current)
    assert questions(sent) == [
        f"question {number}" for number in range(window.omitted_turns, len(earlier))
    ] + ["question 99"]
    if sent[-1].parts[-1] != current[-1].parts[-1]:
        whole = (
            estimate_message_tokens(sent)
            - estimate_message_tokens(sent[-1:])
            + estimate_message_tokens(current[-1:])
        )
        assert whole > room, "what the model has not seen yet is cut only where it does not fit"
    calls = [part.tool_call_id for each in sent for part in each.parts if isinstance(part, ToolCallPart)]
    given = [part.tool_call_id for each in sent for part in each.parts if isinstance(part, ToolReturnPart)]
    assert calls == given
    if estimate_message_tokens(sent) > room + 100:
        assert window.omitted_turns == len(earlier), "nothing more could be left out"


# In a chat.


async def test_a_result_that_is_longer_than_the_model_takes_is_cut_and_that_is_said(
    open_chats: Opening, model: Model
) -> None:
    process = await open_chats(
        models={"fake": fake_model(model.url, context=2_000)},
        agents=[Agent("brief", "Brief", tools=("s_big",))],
    )
    chat = await process.chat(agent="brief")
    events = await process.say(chat, 'call s_big {"size": 20000}', "then", "say Read.")
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "done"
    assert [note["text"].rpartition(": ")[2] for note in bodies_of_kind(events, Kind.NOTE)] == [
        "long tool results are shortened"
    ]
    told = (await model.journal())[-1]["messages"][-1]
    assert told["role"] == "tool"
    assert 800 < len(told["content"]) < 19_000
    assert told["content"].endswith("more characters do not fit here; request less at a time]")


async def test_a_chat_that_is_too_long_goes_on_and_says_so_once(open_chats: Opening, model: Model) -> None:
    process = await open_chats(
        models={"fake": fake_model(model.url, context=2_000)},
        agents=[Agent("brief", "Brief", prompt="Be brief.", tools=("s_look",))],
    )
    chat = await process.chat(agent="brief")
    notes = [bodies_of_kind(await process.say(chat, f"note {n}: {WORDS}"), Kind.NOTE) for n in range(4)]
    assert notes[0] == [], "a single message is sent, whatever its length"
    last = await process.say(chat, 'call s_look {"text": "moon"}', "then", "results?")
    [note] = bodies_of_kind(last, Kind.NOTE)
    assert note["text"].startswith(
        "this chat is longer than the model takes at once (2,000 tokens): its first "
    )
    assert "context" in note["hint"]
    assert bodies_of_kind(last, Kind.MODEL_MESSAGE)[-1]["text"] == "look: moon"
    sent = (await model.journal())[-1]["messages"]
    assert (sent[0]["role"], sent[0]["content"]) == ("system", "Be brief.")
    assert "note 0:" not in str(sent)
    assert has_one_result_per_call(sent)
    # The stored history is complete.
    stored = await process.chats.list_events(chat.owner, chat.id, limit=1_000)
    assert len(bodies_of_kind(stored, Kind.USER)) == 5


@pytest.mark.parametrize(
    "words",
    [
        "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "This model's maximum context length is 8192 tokens.",
    ],
    ids=["llama.cpp", "anthropic", "vllm"],
)
def test_a_provider_that_finds_it_too_long_is_told_with_what_to_do(words: str) -> None:
    error = ModelHTTPError(400, "one", {"error": {"message": words, "type": "some_error"}})
    told = translate_error(
        error, ModelRef(ProviderAccess("openai", "http://127.0.0.1:1/v1"), "one"), answer_started=False
    )
    assert told.cause.startswith("this chat is too long for one: ")
    assert told.hint is not None
    assert told.hint.startswith("set the model's context")
