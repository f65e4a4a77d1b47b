"""OpenAI's own library with the tools of a yard: Chat Completions and Responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessage

from toolyard import Toolyard
from toolyard.adapters.openai import ChatTools, ResponsesTools


@pytest.fixture
async def chat(yard: Toolyard, chat_model: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{chat_model}/v1", api_key="good", max_retries=0) as client:
        yield client


@pytest.fixture
async def responses(yard: Toolyard, other_models: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{other_models}/v1", api_key="good", max_retries=0) as client:
        yield client


async def run_model_loop(client: AsyncOpenAI, tools: ChatTools, script: str) -> tuple[str, list[Any]]:
    """Make the two requests of a program; return the final text and all messages."""
    messages: list[Any] = [{"role": "user", "content": script}]
    for _ in range(5):
        request = {"model": "fake-1", "messages": messages, "tools": await tools.list()}
        message = (await client.chat.completions.create(**request)).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        answers = await tools.answer(message)
        if not answers:
            return message.content or "", messages
        messages += answers
    raise AssertionError("it goes on and on")


def build_tool_call_message(*calls: tuple[str, str, str]) -> ChatCompletionMessage:
    tool_calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, name, arguments in calls
    ]
    return ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": None, "tool_calls": tool_calls}
    )


async def test_a_conversation_with_calls(yard: Toolyard, chat: AsyncOpenAI) -> None:
    script = (
        'call demo_weekday {"date": "2026-07-28"}\ncall demo_weekday {"date": "2026-07-29"}\nthen\nresults?'
    )
    replies, messages = await run_model_loop(chat, ChatTools(yard), script)
    assert replies == "2026-07-28 is a Tuesday. | 2026-07-29 is a Wednesday."
    calls = [call["id"] for call in messages[1]["tool_calls"]]
    assert [message["tool_call_id"] for message in messages[2:4]] == calls


async def test_strict_tools_are_called_without_the_arguments_added_for_strictness(
    yard: Toolyard, chat: AsyncOpenAI
) -> None:
    tools = ChatTools(yard, agent="narrow", strict=True)
    (weekday_tool,) = await tools.list()
    assert weekday_tool["function"]["strict"] is True
    replies, _ = await run_model_loop(chat, tools, 'call demo_weekday {"date": "2026-07-28"}\nthen\nresults?')
    assert replies == "2026-07-28 is a Tuesday."


async def test_a_picture_follows_the_messages_of_the_tools(yard: Toolyard, chat: AsyncOpenAI) -> None:
    replies, messages = await run_model_loop(
        chat, ChatTools(yard), "call every_get-tiny-image {}\nthen\nimage?"
    )
    # The image is in a user message, which the model treats as the latest input.
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert messages[3]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert replies.startswith("You said: Image from every_get-tiny-image, call call_")


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("demo_weekday", "not json", "not valid JSON"),
        ("demo_weekday", "[1]", "not a JSON object"),
        ("demo_weekday", '{"date": NaN}', "not valid JSON"),
        ("demo_weekday", '{"date": "never"}', "never"),
        ("demo_nothing", "{}", "demo_nothing"),
        ("demo_forget", "{}", "demo_forget"),
        ("every_echo", '{"message": "x"}', "every_echo"),
    ],
)
async def test_every_failure_is_reported_to_the_model(
    yard: Toolyard, name: str, arguments: str, words: str
) -> None:
    (answer,) = await ChatTools(yard, agent="narrow").answer(build_tool_call_message(("a", name, arguments)))
    assert answer["role"] == "tool"
    assert '"error": true' in str(answer["content"])
    assert words in str(answer["content"])


async def test_all_calls_are_made_at_once(yard: Toolyard, monkeypatch: pytest.MonkeyPatch) -> None:
    everyone, answer = asyncio.Barrier(3), yard.answer

    async def together(*words: Any, **options: Any) -> Any:
        await asyncio.wait_for(everyone.wait(), 30)
        return await answer(*words, **options)

    monkeypatch.setattr(yard, "answer", together)
    calls = [(f"c{n}", "demo_weekday", f'{{"date": "2026-07-2{n}"}}') for n in (7, 8, 9)]
    answers = await ChatTools(yard).answer(build_tool_call_message(*calls))
    assert [answer["tool_call_id"] for answer in answers if answer["role"] == "tool"] == ["c7", "c8", "c9"]


async def test_a_conversation_over_responses(yard: Toolyard, responses: AsyncOpenAI) -> None:
    tools = ResponsesTools(yard)
    items: list[Any] = [{"role": "user", "content": 'call demo_weekday {"date": "2026-07-28"}'}]
    tool_list = await tools.list()
    async with responses.responses.stream(model="gpt-5-mini", input=items, tools=tool_list) as stream:
        first = await stream.get_final_response()
    answers = await tools.answer(first)
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items += answers
    async with responses.responses.stream(model="gpt-5-mini", input=items, tools=tool_list) as stream:
        second = await stream.get_final_response()
    assert second.output_text == "It says: 2026-07-28 is a Tuesday."
    assert await tools.answer(second) == []


async def test_a_picture_goes_within_the_output_of_responses(yard: Toolyard, responses: AsyncOpenAI) -> None:
    items: Any = [{"role": "user", "content": "call every_get-tiny-image {}"}]
    async with responses.responses.stream(model="gpt-5-mini", input=items) as stream:
        first = await stream.get_final_response()
    (answer,) = await ResponsesTools(yard).answer(first)
    kinds = [part["type"] for part in answer["output"]]  # type: ignore[index,typeddict-item]
    assert kinds == ["input_text", "input_image"]
