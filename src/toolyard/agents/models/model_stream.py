"""The request to a model in the terms of pydantic-ai, and the stream of its answer.

Whatever a provider sends, a stream ends with an answer or a ModelError. Imports pydantic-ai, so this module
is loaded only when a model is first used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import orjson
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    InstructionPart,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.settings import ModelSettings

from toolyard.agents.models import provider_errors
from toolyard.agents.models.errors import ModelError
from toolyard.agents.models.model_ref import ModelRef, ModelRequest, TokenPrices
from toolyard.results.redaction import redact_known_secrets
from toolyard.tracing.tracer import Attributes

__all__ = ["AnswerDelta", "ModelStream", "stream_request"]

_MAX_ANSWER_CHARACTERS = 2_000_000
"""Maximum characters of one answer, several times what any model writes; a longer answer is considered
endless.
"""


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """A piece of the model's text or reasoning."""

    kind: Literal["text", "reasoning"]
    delta: str


class ModelStream:
    """An arriving answer. Iterate it once, to the end; it raises only ModelErrors."""

    def __init__(
        self,
        streamed_response: StreamedResponse,
        model_ref: ModelRef,
        silence_timeout: float,
        prices: TokenPrices | None,
    ) -> None:
        self._streamed_response = streamed_response
        self._events = aiter(streamed_response)
        self._model_ref = model_ref
        self._silence_timeout = silence_timeout
        self._prices = prices
        self._answer_size = 0
        self.cost: Decimal | None = None
        """Cost of the complete answer in US dollars; None if unknown."""

    def __aiter__(self) -> AsyncIterator[AnswerDelta]:
        return self

    async def __anext__(self) -> AnswerDelta:
        while True:
            event = await self._next_event()
            if isinstance(event, ModelError):
                raise event
            if event is None:
                raise self._finish_answer() or StopAsyncIteration
            kind, text = _read_event(event)
            # Plus one: an endless sequence of empty events must be stopped, too.
            self._answer_size += 1 + len(text)
            if self._answer_size > _MAX_ANSWER_CHARACTERS:
                raise provider_errors.endless_answer_error(self._model_ref, _MAX_ANSWER_CHARACTERS)
            if text and kind != "other":
                return AnswerDelta(kind, text)

    def response(self) -> ModelResponse:
        """Return the answer so far, in the form that the provider expects in later requests."""
        return self._streamed_response.get()

    def describe(self, content_of: ModelRequest | None, secrets: Iterable[str] = ()) -> Attributes:
        """Return the attributes of the request's span, with the content of this request and its answer if
        one is given, without ``secrets``."""
        answer = self.response()
        usage = answer.usage
        attributes: dict[str, str | int | Sequence[str] | None] = {
            "gen_ai.response.model": answer.model_name,
            "gen_ai.response.id": answer.provider_response_id,
            "gen_ai.response.finish_reasons": [answer.finish_reason] if answer.finish_reason else None,
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens or None,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens or None,
        }
        if content_of is not None:
            settings = InstrumentationSettings(include_binary_content=False, version=6)
            for name, messages in (("input", content_of.messages), ("output", [answer])):
                written = settings.messages_to_otel_messages(list(messages))
                redacted = redact_known_secrets({name: written}, secrets)[name]
                attributes[f"gen_ai.{name}.messages"] = orjson.dumps(redacted).decode()
        return attributes

    def _finish_answer(self) -> ModelError | None:
        response = self.response()
        self.cost = _answer_cost(response, self._prices)
        return _find_answer_error(response, self._model_ref)

    async def _next_event(self) -> ModelResponseStreamEvent | ModelError | None:
        """Return the next event, None at the end, or an error.

        Errors are returned, not raised, so that no exception keeps a reference to the original, which may
        contain the key and holds the connection.
        """
        try:
            async with asyncio.timeout(self._silence_timeout):
                return await anext(self._events)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            return provider_errors.model_silent_error(self._model_ref, self._silence_timeout)
        except Exception as error:  # noqa: BLE001 - a provider's library may raise anything
            return provider_errors.translate_error(error, self._model_ref, answer_started=True)


def stream_request(
    model: Model, model_ref: ModelRef, model_request: ModelRequest
) -> AbstractAsyncContextManager[StreamedResponse]:
    """Return the request; it is sent on entry."""
    instructions = model_request.instructions
    parameters = ModelRequestParameters(
        function_tools=list(model_request.tools),
        instruction_parts=[InstructionPart(content=instructions)] if instructions else [],
    )
    settings = _build_settings(model_ref, model_request)
    return model_request_stream(
        model, model_request.messages, model_settings=settings, model_request_parameters=parameters
    )


def _build_settings(model_ref: ModelRef, model_request: ModelRequest) -> ModelSettings:
    # Toolyard retries by itself; retries of the libraries would multiply these.
    settings: ModelSettings = {"max_retries": 0}
    if model_request.temperature is not None:
        settings["temperature"] = model_request.temperature
    if model_request.max_tokens is not None:
        settings["max_tokens"] = model_request.max_tokens
    if model_ref.access.definition.explicit_cache:
        # Other providers cache prompts automatically. Each step of a turn repeats the messages of the
        # previous one.
        settings["cache"] = True
    return settings


def _read_event(event: ModelResponseStreamEvent) -> tuple[Literal["text", "reasoning", "other"], str]:
    """Return the text that an event adds, and its kind."""
    match event:
        case (
            PartDeltaEvent(delta=TextPartDelta(content_delta=str(text)))
            | PartStartEvent(part=TextPart(content=str(text)))
        ):
            return "text", text
        case (
            PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text)))
            | PartStartEvent(part=ThinkingPart(content=str(text)))
        ):
            return "reasoning", text
        case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=str(text))):
            return "other", text
        case _:
            return "other", ""


def _find_answer_error(response: ModelResponse, model_ref: ModelRef) -> ModelError | None:
    """Return an error for an answer without a finish reason or without content."""
    finish_reason = response.finish_reason
    if finish_reason != "content_filter" and "finish_reason" not in (response.provider_details or {}):
        return provider_errors.unfinished_answer_error(model_ref)
    if not response.tool_calls and not response.text:
        return provider_errors.empty_answer_error(model_ref, finish_reason)
    return None


def _answer_cost(response: ModelResponse, prices: TokenPrices | None) -> Decimal | None:
    if prices is not None:
        return prices.compute_cost(response.usage.input_tokens, response.usage.output_tokens)
    try:
        return response.cost().total_price
    except (LookupError, ValueError, AssertionError):
        return None
