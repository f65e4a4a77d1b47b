"""Conversion of events to messages: every history can be sent to a provider."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from toolyard.agents.chat.model_history import (
    InputModalities,
    build_messages,
    build_usage,
    merge_messages,
    model_message_event,
    normalize_response,
)
from toolyard.agents.chat.result_event import failure_event, read_full_result, result_event
from toolyard.agents.chat.turn_log import build_closing_events
from toolyard.agents.chat.turn_snapshot import ChatSnapshot, TurnSnapshot
from toolyard.types.chat import ChatEvent, Kind, ModelUsage, NewChatEvent, TurnEnd, TurnOutcome
from toolyard.types.tool import Media, Result

IDS = st.sampled_from(["a", "b", "c", "d"])
TEXTS = st.text(max_size=8)


def number_events(news: Iterable[NewChatEvent]) -> tuple[list[ChatEvent], dict[int, bytes]]:
    """Return events numbered as by a store, and the texts stored separately."""
    events: list[ChatEvent] = []
    media_bytes: dict[int, bytes] = {}
    turn = 0
    for seq, new in enumerate(news, 1):
        turn = seq if new.kind in (Kind.USER, Kind.RUN) or not turn else turn
        events.append(ChatEvent("c", seq, turn, new.kind, float(seq), new.body, new.part, bool(new.payload)))
        if new.payload:
            media_bytes[seq] = new.payload
    return events, media_bytes


def messages_of(
    events: Iterable[ChatEvent], media_bytes: Mapping[int, bytes], *senses: InputModalities
) -> Any:
    return build_messages(ChatSnapshot.from_events(events).turns, media_bytes, *senses)


def build_model_event(text: str, *calls: ToolCallPart, part: str = "step-1") -> NewChatEvent:
    return model_message_event(ModelResponse([TextPart(text), *calls] if text else list(calls)), part)


def call(id: str, name: str = "s_look") -> NewChatEvent:
    return NewChatEvent(Kind.CALL, {"id": id, "name": name, "tool": "s/look", "arguments": {}})


def user(text: str, again: int | None = None) -> NewChatEvent:
    return NewChatEvent(Kind.USER, {"text": text, "model": None, "agent": None, "again": again})


NEWS = st.lists(
    st.one_of(
        st.builds(user, TEXTS, st.none() | st.integers(1, 12)),
        st.builds(lambda: NewChatEvent(Kind.RUN, {"name": "x", "arguments": {}})),
        st.builds(
            lambda text, ids: build_model_event(text, *(ToolCallPart("s_look", "{}", id) for id in ids)),
            TEXTS,
            st.lists(IDS, max_size=4),
        ),
        st.builds(lambda text: NewChatEvent(Kind.MODEL_MESSAGE, {"text": text, "calls": 0}), TEXTS),
        st.builds(lambda text: NewChatEvent(Kind.MODEL_MESSAGE, {"text": text}, payload=b"[broken"), TEXTS),
        st.builds(call, IDS),
        st.builds(failure_event, IDS, TEXTS),
        st.builds(lambda id: NewChatEvent(Kind.APPROVAL_REQUEST, {"id": id, "approval": id}), IDS),
        st.builds(
            lambda id, yes: NewChatEvent(Kind.APPROVAL_ANSWER, {"approval": id, "yes": yes}),
            IDS,
            st.booleans(),
        ),
        st.builds(lambda id: NewChatEvent(Kind.QUESTION, {"id": id}), IDS),
        st.builds(lambda text: NewChatEvent(Kind.TEXT, {"delta": text}, "step-1"), TEXTS),
        st.builds(lambda: NewChatEvent(Kind.NOTE, {"text": "x"})),
        st.builds(lambda: NewChatEvent(Kind.END, {"why": "done"})),
    ),
    max_size=30,
)


def check(messages: Sequence[ModelMessage]) -> None:
    """Assert that requests and responses alternate, and that each call has one result in the following
    request.
    """
    assert all(message.parts for message in messages)
    assert [type(message) for message in messages] == [
        kind for kind, _ in zip(itertools.cycle((ModelRequest, ModelResponse)), messages, strict=False)
    ]
    histories: list[str] = []
    for message, following in itertools.zip_longest(messages, messages[1:]):
        if isinstance(message, ModelResponse):
            tool_call_ids = [part.tool_call_id for part in message.tool_calls]
            histories += tool_call_ids
            parts = following.parts if following is not None else ()
            returns = [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)]
            assert returns == tool_call_ids
    assert len(histories) == len(set(histories))
    assert sum(isinstance(part, ToolReturnPart) for m in messages for part in m.parts) == len(histories)


@given(NEWS)
def test_every_call_has_exactly_one_result_in_the_history(news: list[NewChatEvent]) -> None:
    events, payloads = number_events(news)
    messages = messages_of(events, payloads)
    check(messages)
    # A running turn is added to the earlier ones.
    last = events[-1].turn if events else 0
    before = messages_of([e for e in events if e.turn != last], payloads)
    check(merge_messages(before, messages_of([e for e in events if e.turn == last], {})))


@given(NEWS, st.sampled_from(list(TurnOutcome)))
def test_a_turn_that_is_closed_lacks_nothing(news: list[NewChatEvent], why: TurnOutcome) -> None:
    events, _ = number_events(news)
    for turn in {event.turn for event in events}:
        turn_events = [event for event in events if event.turn == turn]
        more = build_closing_events(
            TurnSnapshot.from_events(turn_events), TurnEnd(why, "error", "hint"), 99.0
        )
        if any(event.kind is Kind.END for event in turn_events):
            assert more == []
            continue
        assert more[-1].kind is Kind.END
        assert [each.kind for each in more].count(Kind.END) == 1
        after, _ = number_events([NewChatEvent(e.kind, dict(e.body), e.part) for e in turn_events] + more)
        standing = TurnSnapshot.from_events(
            ChatEvent("c", e.seq, turn, e.kind, e.at, e.body, e.part) for e in after
        )
        assert (standing.open_calls, standing.open_questions, standing.open_requests) == ([], [], [])
        assert all(answer.seq is not None for answer in standing.answers)
        assert standing.end is not None


def test_tools_that_the_person_ran_are_not_told() -> None:
    run = NewChatEvent(Kind.RUN, {"name": "s_look", "arguments": {}})
    events, payloads = number_events([run, call("x"), failure_event("x", "no"), user("a")])
    assert [part.content for m in messages_of(events, payloads) for part in m.parts] == ["a"]


def picture(size: int = 3, mime: str = "image/png") -> Media:
    return Media("image", mime, base64.b64encode(b"png").decode(), size)


TEXT_ONLY = InputModalities()


def build_model_part(
    result: Result, *, ok: bool = True, senses: InputModalities = TEXT_ONLY, name: str = "s_look"
) -> Any:
    """Return the part of a result that a model gets."""
    tool = {"id": "x", "name": name, "tool": f"toolyard/{name}", "arguments": {}}
    events, payloads = number_events(
        [
            user("a"),
            build_model_event("", ToolCallPart(name, "{}", "x")),
            NewChatEvent(Kind.CALL, tool),
            result_event("x", result, ok=ok, seconds=1.0),
        ]
    )
    return messages_of(events, payloads, senses)[-1].parts[0].content


def test_a_result_becomes_parts_for_the_model() -> None:
    sees = InputModalities(images=True)
    assert build_model_part(Result(None, "text")) == "text"
    assert build_model_part(Result(None, "x" * 9_000)) == "x" * 9_000
    assert build_model_part(Result(None, "no", is_error=True), ok=False) == {"error": True, "output": "no"}
    result = Result(None, "MCP server unreachable", is_error=True, cause="it exited")
    assert build_model_part(result, ok=False) == {
        "error": True,
        "output": "MCP server unreachable",
        "cause": "it exited",
    }
    # A meta tool reports itself whether it succeeded.
    assert build_model_part(Result(None, '{"ok":false}'), ok=False, name="tools_call") == '{"ok":false}'
    returned_parts = build_model_part(Result(None, "here", blocks=(picture(),)), senses=sees)
    assert returned_parts == ["here", BinaryContent(b"png", media_type="image/png")]
    for media, senses in (
        (picture(), InputModalities()),
        (picture(6_000_000), sees),
        (picture(mime="image/tiff"), sees),
    ):
        assert build_model_part(Result(None, "here", blocks=(media,)), senses=senses) == f"here\n{media}"
    # The text already mentions the handle of a stored result; once is enough.
    stored_picture = replace(picture(6_000_000), handle="r0", digest="00")
    assert (
        build_model_part(Result(None, f"here\n{stored_picture}", blocks=(stored_picture,)), senses=sees)
        == f"here\n{stored_picture}"
    )


def test_an_answer_comes_back_as_the_provider_wants_it() -> None:
    response = ModelResponse(
        [
            ThinkingPart("hm", signature="sig", provider_name="anthropic"),
            TextPart("Look:"),
            ToolCallPart("s_look", '{"a": 1}', "x", id="fc_1", provider_name="openai"),
        ],
        model_name="m-1",
        provider_name="anthropic",
        usage=RequestUsage(input_tokens=7, output_tokens=3, cache_read_tokens=2),
    )
    event = model_message_event(response, "step-1")
    assert event.body == {"text": "Look:", "reasoning": "hm", "model": "m-1", "calls": 1}
    assert ModelMessagesTypeAdapter.validate_json(event.payload) == [response]
    events, payloads = number_events([user("a"), event])
    assert messages_of(events, payloads)[1] == response
    # For a text-only answer the text is enough.
    plain = ModelResponse([TextPart("a"), TextPart("b")])
    events, payloads = number_events([user("a"), model_message_event(plain, "step-1")])
    assert payloads == {}
    assert messages_of(events, payloads)[1].parts == [TextPart(plain.text or "")]
    assert build_usage(response, Decimal("0.5")) == ModelUsage(7, 3, 2, 0.5)


def test_every_call_gets_an_id_of_its_own() -> None:
    calls = [
        ToolCallPart("t", "{}", id) for id in ("a", "a", "", "used", '"><script>', "x" * 200, "fine|fc_1")
    ]
    tool_call_ids = [
        part.tool_call_id for part in normalize_response(ModelResponse(calls), {"used"}, 100).tool_calls
    ]
    assert (tool_call_ids[0], tool_call_ids[-1]) == ("a", "fine|fc_1")
    assert len(set(tool_call_ids)) == 7
    assert all(each.startswith("call_") for each in tool_call_ids[1:6])
    assert len(normalize_response(ModelResponse(calls), set(), 3).tool_calls) == 3


def test_answers_that_cannot_be_stored_are_made_fit() -> None:
    response = normalize_response(
        ModelResponse([TextPart("a\0\ud800"), ToolCallPart("t\0", '{"a": "\ud800"}', "x")]), (), 9
    )
    event = model_message_event(response, "p")
    assert event.body["text"] == "a\ufffd?"
    orjson.dumps(event.body)
    assert ModelMessagesTypeAdapter.validate_json(event.payload)


@pytest.mark.parametrize(
    "arguments", [{"a": "\ud800"}, {"a": 10**30}, [1], 5], ids=["half", "huge", "list", "5"]
)
def test_a_call_is_stored_with_any_arguments_of_a_server(arguments: Any) -> None:
    response = normalize_response(ModelResponse([ToolCallPart("t", arguments, "x")]), (), 9)
    events, payloads = number_events([user("a"), model_message_event(response, "p")])
    [call] = messages_of(events, payloads)[1].parts
    assert (type(call), call.part_kind) == (ToolCallPart, "tool-call")


def test_names_and_ids_may_be_of_any_type() -> None:
    number: Any = 5
    [call] = normalize_response(ModelResponse([ToolCallPart(number, "{}", number)]), (), 9).tool_calls
    assert (call.tool_name, call.tool_call_id) == ("5", "5")


def test_a_result_that_is_short_is_kept_in_its_event_alone() -> None:
    short = result_event("x", Result(None, "a\0b"), ok=True, seconds=0.12345)
    assert (short.payload, short.body["text"], short.body["seconds"], short.part) == (
        b"",
        "a\ufffdb",
        0.123,
        "x",
    )
    long = result_event("x", Result(None, "y" * 5_000, blocks=(picture(),)), ok=True, seconds=1)
    assert (len(long.body["text"]), long.body["length"]) == (4_000, 5_000)
    assert long.body["media"] == [{"kind": "image", "mime": "image/png", "size": 3}]
    chat_event = ChatEvent("c", 1, 1, long.kind, 0.0, long.body)
    whole = read_full_result(chat_event.data, long.payload)
    assert (whole.text, whole.media) == ("y" * 5_000, (picture(),))


def test_a_message_of_the_person_is_told_as_it_is() -> None:
    events, payloads = number_events([user("  a\n")])
    [message] = messages_of(events, payloads)
    assert [type(part) for part in message.parts] == [UserPromptPart]
    assert message.parts[0].content == "  a\n"
