"""An image that providers do not accept is not sent to a model: they would reject the whole request."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic.types import Message, ToolUseBlock
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import Response, ResponseFunctionToolCall
from pydantic_ai.messages import BinaryContent
from pydantic_ai.models.test import TestModel

from toolyard.adapters.anthropic import MessagesTools
from toolyard.adapters.openai import ChatTools, ResponsesTools
from toolyard.adapters.pydantic_ai import YardToolset
from toolyard.types.tool import ContentBlock, Media, Result, TextBlock

SMALL = Media("image", "image/png", "aGk=", 2)
MEDIA: dict[str, tuple[Media, bool]] = {
    "small": (SMALL, True),
    "large": (replace(SMALL, size=6_000_000, handle="r0", digest="00"), False),
    "of an odd spelling": (replace(SMALL, mime="IMAGE/PNG; q=1"), True),
    "drawn": (replace(SMALL, mime="image/svg+xml"), False),
    "old": (replace(SMALL, mime="image/bmp"), False),
    "a sound that says it is a picture": (replace(SMALL, kind="audio"), False),
}


class SingleResultYard:
    """A yard with one result."""

    def __init__(self, *blocks: ContentBlock) -> None:
        self.result = Result(None, "text", blocks=blocks)

    async def answer(self, name: str, arguments: object, **options: object) -> Result:
        return self.result


@pytest.mark.parametrize("which", MEDIA)
async def test_only_media_that_a_provider_accepts_are_sent(which: str) -> None:
    media, sent_media = MEDIA[which]
    yard: Any = SingleResultYard(TextBlock("text"), media)
    call = {"id": "1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    chat = ChatCompletionMessage.model_validate({"role": "assistant", "content": None, "tool_calls": [call]})
    output = [ResponseFunctionToolCall(type="function_call", call_id="1", name="t", arguments="{}")]
    for texts in (
        str(await ChatTools(yard).answer(chat)),
        str(await ResponsesTools(yard).answer(Response.model_construct(output=output))),
    ):
        assert "text" in texts
        assert ("data:image/png;base64,aGk=" in texts) is sent_media
        assert ("aGk=" in texts) is sent_media
    use = ToolUseBlock(type="tool_use", id="1", name="t", input={})
    answers: Any = await MessagesTools(yard).answer(Message.model_construct(content=[use]))
    (result,) = answers[0]["content"]
    pictures = [block["source"]["media_type"] for block in result["content"] if block["type"] == "image"]
    assert pictures == ["image/png"] * sent_media


@pytest.mark.parametrize("which", ["small", "large", "of an odd spelling", "drawn", "old"])
async def test_nor_is_it_by_pydantic_ai(which: str) -> None:
    media, sent_media = MEDIA[which]
    sound = Media("audio", "Audio/WAV; rate=8000", "aGk=", 2)
    yard: Any = SingleResultYard(media, sound)
    run: Any = SimpleNamespace(model=TestModel())
    none: Any = None
    result = await YardToolset(yard).call_tool("t", {}, run, none)
    assert result[0] == "text"
    types = [each.media_type for each in result[1:] if isinstance(each, BinaryContent)]
    assert types == ["image/png"] * sent_media + ["audio/wav"]
