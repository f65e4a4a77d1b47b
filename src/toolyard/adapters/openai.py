"""Tools for OpenAI's library: a list for the request, and the messages that answer the model's calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from toolyard.adapters.parallel_calls import ModelToolCall, ToolCaller, result_text, select_images
from toolyard.types.result import Media, Result
from toolyard.yard import Toolyard

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
    """For Chat Completions, also as Ollama, llama.cpp, vLLM and others speak it."""

    def __init__(
        self, yard: Toolyard, *, agent: str | None = None, bundles: Iterable[str] = (), strict: bool = False
    ) -> None:
        """``strict``: the model is held to the schemas, where they allow that."""
        self._tool_caller = ToolCaller(yard, "openai-strict" if strict else "openai", agent, tuple(bundles))

    async def list(self) -> list[ChatCompletionToolParam]:
        """What goes into the request as ``tools``."""
        return cast("list[ChatCompletionToolParam]", await self._tool_caller.tools())

    async def answer(self, message: ChatCompletionMessage) -> Sequence[ChatCompletionMessageParam]:
        """Call what the message asks for, all at once; the messages to send after it, if any.

        Pictures cannot stand in the message of a tool, so they follow in one of the user's.
        """
        calls = [
            ModelToolCall(call.id, call.function.name, call.function.arguments)
            for call in message.tool_calls or ()
            if call.type == "function"
        ]
        answers: list[ChatCompletionMessageParam] = []
        shown: list[ChatCompletionContentPartParam] = []
        for call, result in await self._tool_caller.call_all(calls):
            answers.append({"role": "tool", "tool_call_id": call.id, "content": result_text(result)})
            shown += _iter_chat_images(call, result)
        if shown:
            answers.append({"role": "user", "content": shown})
        return answers


class ResponsesTools:
    """For the Responses API."""

    def __init__(self, yard: Toolyard, *, agent: str | None = None, bundles: Iterable[str] = ()) -> None:
        self._tool_caller = ToolCaller(yard, "openai-responses", agent, tuple(bundles))

    async def list(self) -> list[ToolParam]:
        """What goes into the request as ``tools``."""
        return cast("list[ToolParam]", await self._tool_caller.tools())

    async def answer(self, response: Response) -> Sequence[ResponseInputItemParam]:
        """Call what the response asks for, all at once; the items to send after it, if any."""
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
    for picture in select_images(result):
        yield {"type": "text", "text": f"A picture from {call.name}, call {call.id}:"}
        yield {"type": "image_url", "image_url": {"url": _make_data_url(picture)}}


def _build_responses_output(result: Result) -> Any:
    images = [
        {"type": "input_image", "detail": "auto", "image_url": _make_data_url(each)}
        for each in select_images(result)
    ]
    text = result_text(result)
    return [{"type": "input_text", "text": text}, *images] if images else text


def _make_data_url(media: Media) -> str:
    return f"data:{media.mime};base64,{media.data}"
