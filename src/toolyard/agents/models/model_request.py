"""A question to a model, from the moment it is asked until its connection is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from toolyard.agents.models.errors import ModelError
from toolyard.agents.models.model_ref import Asked

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model
    from pydantic_ai.tools import ToolDefinition

    from toolyard.agents.models.response_stream import ModelStream

__all__ = ["Opening", "Question"]

_TRIES = 2
_CLOSING = 5.0


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is asked."""

    messages: Sequence[ModelMessage]
    tools: Sequence[ToolDefinition]
    instructions: str | None
    temperature: float | None


class Opening(AbstractAsyncContextManager["ModelStream"]):
    """Asks when it is entered, and lets go of the connection when it is left, wherever the answer is.

    What fails before anything came is tried a second time where that may help.
    """

    def __init__(
        self, ready: Callable[[], Awaitable[tuple[Model, Asked]]], question: Question, silence: float
    ) -> None:
        self._ready = ready
        self._question = question
        self._silence = silence
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> ModelStream:
        model, asked = await self._ready()
        for tries in range(1, _TRIES + 1):
            got = await self._try(model, asked, last=tries == _TRIES)
            if isinstance(got, ModelError):
                raise got
            if not isinstance(got, (int, float)):
                return got
            await asyncio.sleep(got)
        raise AssertionError("the last try asks for no other")

    async def _try(self, model: Model, asked: Asked, *, last: bool) -> ModelStream | ModelError | float:
        """The stream; or what is wrong; or the seconds after which to try again."""
        # Loaded with the model, in a thread.
        from toolyard.agents.models import provider_errors, response_stream

        try:
            async with asyncio.timeout(self._silence):
                request = response_stream.request(model, asked, self._question)
                streamed = await self._stack.enter_async_context(request)
        except TimeoutError:
            return provider_errors.silent(asked, self._silence)
        except Exception as error:  # noqa: BLE001 - a provider's library may raise anything
            # The original may quote the key, so nothing that is raised refers to it.
            pause = None if last else provider_errors.again_after(error)
            return provider_errors.failure(error, asked, begun=False) if pause is None else pause
        return response_stream.ModelStream(streamed, asked, self._silence)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            async with asyncio.timeout(_CLOSING):
                await self._stack.aclose()
        except Exception:  # noqa: BLE001 - the answer has ended; how its connection ends says nothing about it
            return
