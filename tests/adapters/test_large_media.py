"""An image that providers do not accept is not sent to a model: they would reject the whole request."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai.messages import BinaryContent
from pydantic_ai.models.test import TestModel

from toolyard.adapters.anthropic import _build_tool_result
from toolyard.adapters.openai import _build_responses_output, _iter_chat_images
from toolyard.adapters.parallel_calls import ModelToolCall
from toolyard.adapters.pydantic_ai import YardToolset
from toolyard.types.tool import Media, Result, TextBlock

SMALL = Media("image", "image/png", "aGk=", 2)
CALL = ModelToolCall("1", "t", "{}")
MEDIA: dict[str, tuple[Media, bool]] = {
    "small": (SMALL, True),
    "large": (replace(SMALL, size=6_000_000, handle="r0", digest="00"), False),
    "of an odd spelling": (replace(SMALL, mime="IMAGE/PNG; q=1"), True),
    "drawn": (replace(SMALL, mime="image/svg+xml"), False),
    "old": (replace(SMALL, mime="image/bmp"), False),
    "a sound that says it is a picture": (replace(SMALL, kind="audio"), False),
}


@pytest.mark.parametrize("which", MEDIA)
def test_only_what_a_provider_takes_is_sent(which: str) -> None:
    media, sent = MEDIA[which]
    result = Result(None, "text", blocks=(TextBlock("text"), media))
    for told in (str(list(_iter_chat_images(CALL, result))), str(_build_responses_output(result))):
        assert ("data:image/png;base64,aGk=" in told) is sent
        assert ("aGk=" in told) is sent
    blocks: Any = _build_tool_result(CALL, result)["content"]
    pictures = [block["source"]["media_type"] for block in blocks if block["type"] == "image"]
    assert pictures == ["image/png"] * sent


class SingleResultYard:
    """A yard with one result."""

    def __init__(self, *media: Media) -> None:
        self.result = Result(None, "text", blocks=media)

    async def answer(self, name: str, arguments: object, **options: object) -> Result:
        return self.result


@pytest.mark.parametrize("which", ["small", "large", "of an odd spelling", "drawn", "old"])
async def test_nor_is_it_by_pydantic_ai(which: str) -> None:
    media, sent = MEDIA[which]
    sound = Media("audio", "Audio/WAV; rate=8000", "aGk=", 2)
    yard: Any = SingleResultYard(media, sound)
    run: Any = SimpleNamespace(model=TestModel())
    none: Any = None
    told = await YardToolset(yard).call_tool("t", {}, run, none)
    assert told[0] == "text"
    types = [each.media_type for each in told[1:] if isinstance(each, BinaryContent)]
    assert types == ["image/png"] * sent + ["audio/wav"]
