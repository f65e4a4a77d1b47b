"""A question to a model, from the moment it is asked until its connection is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from toolyard.agents.models.errors import ModelError
from toolyard.agents.models.model_ref import ModelRef

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model
    from pydantic_ai.tools import ToolDefinition

    from toolyard.agents.models.response_stream import ModelStream

__all__ = ["ModelRequest", "ModelStreamContext"]

_MAX_ATTEMPTS = 2
_CLOSE_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a model is asked."""

    messages: Sequence[ModelMessage]
    tools: Sequence[ToolDefinition]
    instructions: str | None
    temperature: float | None


class ModelStreamContext(AbstractAsyncContextManager["ModelStream"]):
    """Asks when it is entered, and lets go of the connection when it is left, wherever the answer is.

    What fails before anything came is tried a second time where that may help.
    """

    def __init__(
        self,
        get_model: Callable[[], Awaitable[tuple[Model, ModelRef]]],
        request: ModelRequest,
        silence_timeout: float,
    ) -> None:
        self._get_model = get_model
        self._request = request
        self._silence_timeout = silence_timeout
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> ModelStream:
        model, asked = await self._get_model()
        for tries in range(1, _MAX_ATTEMPTS + 1):
            got = await self._try_request(model, asked, is_last_attempt=tries == _MAX_ATTEMPTS)
            if isinstance(got, ModelError):
                raise got
            if not isinstance(got, (int, float)):
                return got
            await asyncio.sleep(got)
        raise AssertionError("the last try asks for no other")

    async def _try_request(
        self, model: Model, model_ref: ModelRef, *, is_last_attempt: bool
    ) -> ModelStream | ModelError | float:
        """The stream; or what is wrong; or the seconds after which to try again."""
        # Loaded with the model, in a thread.
        from toolyard.agents.models import provider_errors, response_stream

        try:
            async with asyncio.timeout(self._silence_timeout):
                request = response_stream.stream_request(model, model_ref, self._request)
                streamed = await self._stack.enter_async_context(request)
        except TimeoutError:
            return provider_errors.silence_error(model_ref, self._silence_timeout)
        except Exception as error:  # noqa: BLE001 - a provider's library may raise anything
            # The original may quote the key, so nothing that is raised refers to it.
            pause = None if is_last_attempt else provider_errors.retry_delay(error)
            return (
                provider_errors.translate_error(error, model_ref, answer_started=False)
                if pause is None
                else pause
            )
        return response_stream.ModelStream(streamed, model_ref, self._silence_timeout)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
                await self._stack.aclose()
        except Exception:  # noqa: BLE001 - the answer has ended; how its connection ends says nothing about it
            return
