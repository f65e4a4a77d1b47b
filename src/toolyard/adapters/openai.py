"""Adapter for the ``openai`` library: tool parameters for a request, and results for the model's calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from toolyard.adapters.parallel_calls import ModelToolCall, ToolCaller, result_text, select_images
from toolyard.library import Toolyard
from toolyard.types.tool import Media, Result

try:
    from openai.types.chat import (
        ChatCompletionContentPartParam,
        ChatCompletionMessage,
        ChatCompletionMessageParam,
        ChatCompletionToolParam,
    )
    from openai.types.responses import Response, ResponseInputItemParam, ToolParam
except ImportError as error:
    raise ImportError(
        "toolyard.adapters.openai needs the openai library: pip install 'toolyard[openai]'"
    ) from error

__all__ = ["ChatTools", "ResponsesTools"]


class ChatTools:
    """Tools of a yard for the Chat Completions API, as offered also by Ollama, llama.cpp, vLLM and others."""

    def __init__(
        self, yard: Toolyard, *, agent: str | None = None, bundles: Iterable[str] = (), strict: bool = False
    ) -> None:
        """Create the adapter. ``strict`` enables strict mode for tools with schemas that support it."""
        self._tool_caller = ToolCaller(yard, "openai-strict" if strict else "openai", agent, tuple(bundles))

    async def list(self) -> list[ChatCompletionToolParam]:
        """Return the ``tools`` parameter of a request."""
        return cast("list[ChatCompletionToolParam]", await self._tool_caller.list_tools())

    async def answer(self, message: ChatCompletionMessage) -> Sequence[ChatCompletionMessageParam]:
        """Run all tool calls of a message concurrently, and return the messages to append, if any.

        Tool messages cannot contain images, so images follow in one user message.
        """
        calls = [
            ModelToolCall(call.id, call.function.name, call.function.arguments)
            for call in message.tool_calls or ()
            if call.type == "function"
        ]
        messages: list[ChatCompletionMessageParam] = []
        images: list[ChatCompletionContentPartParam] = []
        for call, result in await self._tool_caller.call_all(calls):
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result_text(result)})
            images += _iter_chat_images(call, result)
        if images:
            messages.append({"role": "user", "content": images})
        return messages


class ResponsesTools:
    """Tools of a yard for the Responses API."""

    def __init__(self, yard: Toolyard, *, agent: str | None = None, bundles: Iterable[str] = ()) -> None:
        self._tool_caller = ToolCaller(yard, "openai-responses", agent, tuple(bundles))

    async def list(self) -> list[ToolParam]:
        """Return the ``tools`` parameter of a request."""
        return cast("list[ToolParam]", await self._tool_caller.list_tools())

    async def answer(self, response: Response) -> Sequence[ResponseInputItemParam]:
        """Run all tool calls of a response concurrently, and return the input items to append, if any."""
        calls = [
            ModelToolCall(item.call_id, item.name, item.arguments)
            for item in response.output
            if item.type == "function_call"
        ]
        return [
            {"type": "function_call_output", "call_id": call.id, "output": _build_responses_output(result)}
            for call, result in await self._tool_caller.call_all(calls)
        ]


def _iter_chat_images(call: ModelToolCall, result: Result) -> Iterator[ChatCompletionContentPartParam]:
    for image in select_images(result):
        # The text names the call, because a user message has no tool_call_id.
        yield {"type": "text", "text": f"Image from {call.name}, call {call.id}:"}
        yield {"type": "image_url", "image_url": {"url": _make_data_url(image)}}


def _build_responses_output(result: Result) -> Any:
    images = [
        {"type": "input_image", "detail": "auto", "image_url": _make_data_url(image)}
        for image in select_images(result)
    ]
    text = result_text(result)
    return [{"type": "input_text", "text": text}, *images] if images else text


def _make_data_url(media: Media) -> str:
    return f"data:{media.mime};base64,{media.data}"
