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
    messages: list[ModelMessage] = [ModelRequest([UserPromptPart(f"question {number}")])]
    for step, content in enumerate(results):
        id = f"{number}-{step}"
        messages.append(ModelResponse([ToolCallPart("look", "{}", id)]))
        messages.append(ModelRequest([ToolReturnPart("look", content, id)]))
    return [*messages, ModelResponse([TextPart(f"answer {number}")])]


def build_running_turn(number: int, *results: object) -> list[ModelMessage]:
    """Return the same turn, while it is running."""
    return turn_of(number, *results)[:-1]


def questions(messages: Sequence[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    return [str(part.content) for part in parts if str(part.content).startswith("question")]


def results(messages: Sequence[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    return [str(part.content) for part in parts]


def test_messages_that_fit_are_sent_unchanged() -> None:
    one, two, now = turn_of(1, WORDS), turn_of(2), build_running_turn(3)
    window = ContextWindow([one, two], 100_000)
    assert window.fit_messages(now) == merge_messages(one, two, now)
    assert (window.omitted_turns, window.shortened_results) == (0, 0)


def test_results_of_earlier_turns_are_shortened_before_a_turn_is_left_out() -> None:
    turns = [turn_of(1, WORDS * 5), turn_of(2), turn_of(3, WORDS)]
    window = ContextWindow(turns, 1_000)
    sent_messages = window.fit_messages(build_running_turn(4))
    assert questions(sent_messages) == ["question 1", "question 2", "question 3", "question 4"]
    assert results(sent_messages)[0].endswith("more characters do not fit here; call again to see them]")
    assert results(sent_messages)[1] == WORDS, "the turn before this one keeps what it has"
    assert (window.omitted_turns, window.shortened_results) == (0, 1)


def test_the_oldest_turns_are_left_out_whole_and_the_last_one_stays() -> None:
    window = ContextWindow([turn_of(number, "short " * 200) for number in range(1, 9)], 1_500)
    sent_messages = window.fit_messages(build_running_turn(9))
    assert questions(sent_messages)[-2:] == ["question 8", "question 9"]
    assert window.omitted_turns == 9 - len(questions(sent_messages))
    assert 0 < window.omitted_turns < 8
    first = sent_messages[0].parts[0]
    assert isinstance(first, UserPromptPart)
    assert "omitted" in str(first.content)


def test_a_long_turn_keeps_the_messages_that_are_new_to_the_model() -> None:
    window = ContextWindow([], 2_000)
    sent_messages = window.fit_messages(build_running_turn(1, WORDS * 3, WORDS * 3, "last: " + WORDS * 3))
    assert [len(each) < 2_000 for each in results(sent_messages)] == [True, True, False]


def test_results_that_do_not_fit_even_alone_are_cut_to_the_room() -> None:
    window = ContextWindow([turn_of(1)], 2_000)
    both = [ToolReturnPart("look", f"{name}: {WORDS * 30}", name) for name in ("a", "b")]
    calls = ModelResponse([ToolCallPart("look", "{}", name) for name in ("a", "b")])
    sent_messages = window.fit_messages(
        [ModelRequest([UserPromptPart("question 2")]), calls, ModelRequest(both)]
    )
    assert estimate_message_tokens(sent_messages) <= 2_100
    first, second = results(sent_messages)
    assert first.startswith("a: several words")
    assert second.startswith("b: several words")
    assert min(len(first), len(second)) > 3_000
    assert first.endswith("more characters do not fit here; request less at a time]")
    assert window.shortened_results == 2


def test_omitted_messages_stay_omitted_for_the_rest_of_the_turn() -> None:
    window = ContextWindow([turn_of(number, "short " * 200) for number in range(1, 9)], 1_500)
    now = build_running_turn(9, "a little more")
    first, again = window.fit_messages(now[:1]), window.fit_messages(now)
    assert window.omitted_turns > 0
    assert again[1 : len(first)] == first[1:]


def test_pictures_go_with_the_results_that_are_shortened() -> None:
    picture = ["a picture", BinaryContent(b"x" * 50_000, media_type="image/png")]
    window = ContextWindow([turn_of(1, picture), turn_of(2)], 1_000)
    assert results(window.fit_messages(build_running_turn(3))) == [
        "a picture\n[an image or audio clip does not fit here]"
    ]


SIZES = st.lists(st.lists(st.integers(0, 6_000), max_size=3), max_size=6)


@given(SIZES, st.lists(st.integers(0, 6_000), max_size=3), st.integers(0, 5_000))
def test_the_order_stays_and_every_call_has_its_result_in_every_window(
    earlier: list[list[int]], now: list[int], room: int
) -> None:
    turns = [turn_of(number, *("x" * size for size in sizes)) for number, sizes in enumerate(earlier)]
    current = build_running_turn(99, *("x" * size for size in now))
    window = ContextWindow(turns, room)
    sent_messages = window.fit_messages(current)
    assert questions(sent_messages) == [
        f"question {number}" for number in range(window.omitted_turns, len(earlier))
    ] + ["question 99"]
    if sent_messages[-1].parts[-1] != current[-1].parts[-1]:
        whole = (
            estimate_message_tokens(sent_messages)
            - estimate_message_tokens(sent_messages[-1:])
            + estimate_message_tokens(current[-1:])
        )
        assert whole > room, "what the model has not seen yet is cut only where it does not fit"
    calls = [
        part.tool_call_id for each in sent_messages for part in each.parts if isinstance(part, ToolCallPart)
    ]
    tool_call_ids = [
        part.tool_call_id for each in sent_messages for part in each.parts if isinstance(part, ToolReturnPart)
    ]
    assert calls == tool_call_ids
    if estimate_message_tokens(sent_messages) > room + 100:
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
    message = (await model.journal())[-1]["messages"][-1]
    assert message["role"] == "tool"
    assert 800 < len(message["content"]) < 19_000
    assert message["content"].endswith("more characters do not fit here; request less at a time]")


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
        "this chat is longer than the model takes at once (2,000 tokens): the first "
    )
    assert "context" in note["hint"]
    assert bodies_of_kind(last, Kind.MODEL_MESSAGE)[-1]["text"] == "look: moon"
    messages = (await model.journal())[-1]["messages"]
    assert (messages[0]["role"], messages[0]["content"]) == ("system", "Be brief.")
    assert "note 0:" not in str(messages)
    assert has_one_result_per_call(messages)
    # The stored history is complete.
    events = await process.chats.list_events(chat.owner, chat.id, limit=1_000)
    assert len(bodies_of_kind(events, Kind.USER)) == 5


@pytest.mark.parametrize(
    "words",
    [
        "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "This model's maximum context length is 8192 tokens.",
    ],
    ids=["llama.cpp", "anthropic", "vllm"],
)
def test_a_context_error_of_the_provider_has_a_hint(words: str) -> None:
    error = ModelHTTPError(400, "one", {"error": {"message": words, "type": "some_error"}})
    translated_error = translate_error(
        error, ModelRef(ProviderAccess("openai", "http://127.0.0.1:1/v1"), "one"), answer_started=False
    )
    assert translated_error.cause.startswith("this chat is too long for one: ")
    assert translated_error.hint is not None
    assert translated_error.hint.startswith("set the model's context")
