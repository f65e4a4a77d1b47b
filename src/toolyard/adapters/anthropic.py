"""Adapter for the ``anthropic`` library: tool parameters for a request, and results for the model's calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from toolyard.adapters.parallel_calls import ModelToolCall, ToolCaller, result_text, select_images
from toolyard.library import Toolyard
from toolyard.types.tool import Result

try:
    from anthropic.types import Message, MessageParam, ToolParam, ToolResultBlockParam
except ImportError as error:
    raise ImportError(
        "toolyard.adapters.anthropic needs the anthropic library: pip install 'toolyard[anthropic]'"
    ) from error

__all__ = ["MessagesTools"]


class MessagesTools:
    """Tools of a yard for the Messages API."""

    def __init__(self, yard: Toolyard, *, agent: str | None = None, bundles: Iterable[str] = ()) -> None:
        self._tool_caller = ToolCaller(yard, "anthropic", agent, tuple(bundles))

    async def list(self) -> list[ToolParam]:
        """Return the ``tools`` parameter of a request."""
        return cast("list[ToolParam]", await self._tool_caller.list_tools())

    async def answer(self, message: Message) -> Sequence[MessageParam]:
        """Run all tool calls of a message concurrently, and return the message to append, if any."""
        calls = [
            ModelToolCall(block.id, block.name, block.input)
            for block in message.content
            if block.type == "tool_use"
        ]
        blocks = [
            _build_tool_result(call, result) for call, result in await self._tool_caller.call_all(calls)
        ]
        return [{"role": "user", "content": blocks}] if blocks else []


def _build_tool_result(call: ModelToolCall, result: Result) -> ToolResultBlockParam:
    content: list[Any] = [{"type": "text", "text": result_text(result)}]
    content += [
        {"type": "image", "source": {"type": "base64", "media_type": media.mime, "data": media.data}}
        for media in select_images(result)
    ]
    return {"type": "tool_result", "tool_use_id": call.id, "content": content, "is_error": result.is_error}
