"""Anthropic's own library with the tools of a yard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message

from toolyard import Toolyard
from toolyard.adapters.anthropic import MessagesTools


@pytest.fixture
async def client(yard: Toolyard, other_models: str) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=other_models, api_key="good", max_retries=0) as client:
        yield client


async def say(client: AsyncAnthropic, tools: MessagesTools, messages: list[Any]) -> Message:
    request: Any = {"model": "claude-haiku-5-5", "max_tokens": 1000, "messages": messages}
    async with client.messages.stream(**request, tools=await tools.list()) as stream:
        return await stream.get_final_message()


async def test_a_conversation_with_a_call(yard: Toolyard, client: AsyncAnthropic) -> None:
    tools = MessagesTools(yard)
    messages: list[Any] = [{"role": "user", "content": 'call demo_weekday {"date": "2026-07-28"}'}]
    first = await say(client, tools, messages)
    answers = await tools.answer(first)
    messages += [{"role": "assistant", "content": first.content}, *answers]
    second = await say(client, tools, messages)
    assert second.content[0].text == "It says: 2026-07-28 is a Tuesday."  # type: ignore[union-attr]
    assert await tools.answer(second) == []


def build_tool_call_message(*calls: tuple[str, object]) -> Message:
    content = [
        {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": arguments}
        for n, (name, arguments) in enumerate(calls)
    ]
    return Message.model_construct(
        content=[_Block(**block) for block in content], role="assistant", stop_reason="tool_use"
    )


class _Block:
    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)


async def test_results_failures_and_pictures_stand_in_one_message(yard: Toolyard) -> None:
    calls = (
        ("demo_weekday", {"date": "2026-07-28"}),
        ("demo_weekday", {"date": "never"}),
        ("demo_nothing", {}),
        ("demo_weekday", ["no object"]),
        ("every_get-tiny-image", {}),
    )
    (answer,) = await MessagesTools(yard).answer(build_tool_call_message(*calls))
    assert answer["role"] == "user"
    blocks: list[Any] = list(answer["content"])
    assert [block["tool_use_id"] for block in blocks] == [f"toolu_{n}" for n in range(5)]
    assert [block["is_error"] for block in blocks] == [False, True, True, True, False]
    assert blocks[0]["content"] == [{"type": "text", "text": "2026-07-28 is a Tuesday."}]
    assert "not a JSON object" in blocks[3]["content"][0]["text"]
    assert blocks[4]["content"][1]["source"]["media_type"] == "image/png"
