"""One answer of a model, as it comes. Whatever a provider does, it ends: in an answer or in a ModelError.

Imports pydantic-ai, so this module is loaded with the first model that is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

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
from pydantic_ai.settings import ModelSettings

from toolyard.agents.models import provider_errors
from toolyard.agents.models.errors import ModelError
from toolyard.agents.models.model_ref import Asked
from toolyard.agents.models.model_request import Question

__all__ = ["ModelStream", "Piece", "request"]

_LONGEST = 2_000_000
"""Characters of one answer, several times what any model writes: what goes on after that has no end."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A little more of what the model says or thinks."""

    kind: Literal["text", "reasoning"]
    delta: str


class ModelStream:
    """An answer that is arriving. Iterate it once, to its end; only ModelErrors are raised."""

    def __init__(self, streamed: StreamedResponse, asked: Asked, silence: float) -> None:
        self._streamed = streamed
        self._events = aiter(streamed)
        self._asked = asked
        self._silence = silence
        self._length = 0
        self.cost: Decimal | None = None
        """What the answer cost, in US dollars, once it is whole; None: not known."""

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self

    async def __anext__(self) -> Piece:
        while True:
            event = await self._next()
            if isinstance(event, ModelError):
                raise event
            if event is None:
                raise self._ended() or StopAsyncIteration
            self._length += _length(event)
            if self._length > _LONGEST:
                raise provider_errors.endless(self._asked, _LONGEST)
            piece = _piece(event)
            if piece is not None:
                return piece

    def response(self) -> ModelResponse:
        """The answer as far as it has arrived, as the provider wants it back."""
        return self._streamed.get()

    def _ended(self) -> ModelError | None:
        response = self.response()
        self.cost = _cost(response)
        return _fault(response, self._asked)

    async def _next(self) -> ModelResponseStreamEvent | ModelError | None:
        """What comes next; None: that was all. An error is given, not raised: none may hold on to another,
        which may quote the key and keeps the connection."""
        try:
            async with asyncio.timeout(self._silence):
                return await anext(self._events)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            return provider_errors.silent(self._asked, self._silence)
        except Exception as error:  # noqa: BLE001 - a provider's library may raise anything
            return provider_errors.failure(error, self._asked, begun=True)


def request(model: Model, asked: Asked, question: Question) -> AbstractAsyncContextManager[StreamedResponse]:
    """The request itself; it is sent when this is entered."""
    said = question.instructions
    parameters = ModelRequestParameters(
        function_tools=list(question.tools),
        instruction_parts=[InstructionPart(content=said)] if said else [],
    )
    settings = _settings(asked, question)
    return model_request_stream(
        model, question.messages, model_settings=settings, model_request_parameters=parameters
    )


def _settings(asked: Asked, question: Question) -> ModelSettings:
    # Second tries are ours alone: those of the libraries would multiply them.
    settings: ModelSettings = {"max_retries": 0}
    if question.temperature is not None:
        settings["temperature"] = question.temperature
    if asked.access.provider == "anthropic":
        # The others do it unasked. Every step of a turn repeats what the one before it sent.
        settings["cache"] = True
    return settings


def _piece(event: ModelResponseStreamEvent) -> Piece | None:
    if isinstance(event, PartDeltaEvent):
        delta = event.delta
        if isinstance(delta, TextPartDelta) and delta.content_delta:
            return Piece("text", delta.content_delta)
        if isinstance(delta, ThinkingPartDelta) and delta.content_delta:
            return Piece("reasoning", delta.content_delta)
    elif isinstance(event, PartStartEvent):
        part = event.part
        if isinstance(part, TextPart) and part.content:
            return Piece("text", part.content)
        if isinstance(part, ThinkingPart) and part.content:
            return Piece("reasoning", part.content)
    return None


def _length(event: ModelResponseStreamEvent) -> int:
    """One more than the characters that an event adds: those without any are an answer without end, too."""
    added: object = None
    if isinstance(event, PartDeltaEvent):
        delta = event.delta
        if isinstance(delta, ToolCallPartDelta):
            added = delta.args_delta
        elif isinstance(delta, TextPartDelta | ThinkingPartDelta):
            added = delta.content_delta
    elif isinstance(event, PartStartEvent):
        part = event.part
        added = part.content if isinstance(part, TextPart | ThinkingPart) else None
    return 1 + (len(added) if isinstance(added, str) else 0)


def _fault(response: ModelResponse, asked: Asked) -> ModelError | None:
    """An answer that ended as it should says so, and says something."""
    finish = response.finish_reason
    if finish != "content_filter" and "finish_reason" not in (response.provider_details or {}):
        return provider_errors.unfinished(asked)
    if not response.tool_calls and not response.text:
        return provider_errors.nothing(asked, finish)
    return None


def _cost(response: ModelResponse) -> Decimal | None:
    try:
        return response.cost().total_price
    except (LookupError, ValueError, AssertionError):
        return None
