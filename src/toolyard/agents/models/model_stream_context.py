"""One request to a model, from sending it to releasing its connection.

Separate from ``model_stream``, because it must not import pydantic-ai.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from toolyard.agents.models.errors import ModelError
from toolyard.agents.models.model_ref import ModelRef, ModelRequest, TokenPrices

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from toolyard.agents.models.model_stream import ModelStream

__all__ = ["ModelStreamContext"]

_MAX_ATTEMPTS = 2
_CLOSE_TIMEOUT_SECONDS = 5.0


class ModelStreamContext(AbstractAsyncContextManager["ModelStream"]):
    """Sends the request on entry, and releases the connection on exit, even in the middle of an answer.

    A failure before the first data is retried once if that may help.
    """

    def __init__(
        self,
        get_model: Callable[[], Awaitable[tuple[Model, ModelRef]]],
        request: ModelRequest,
        silence_timeout: float,
        prices: TokenPrices | None = None,
    ) -> None:
        """Without ``prices``, the cost follows from the price list of the libraries."""
        self._prices = prices
        self._get_model = get_model
        self._request = request
        self._silence_timeout = silence_timeout
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> ModelStream:
        model, model_ref = await self._get_model()
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            outcome = await self._try_request(model, model_ref, is_last_attempt=attempt == _MAX_ATTEMPTS)
            if isinstance(outcome, ModelError):
                raise outcome
            if not isinstance(outcome, (int, float)):
                return outcome
            await asyncio.sleep(outcome)
        raise AssertionError("the last attempt never requests another")

    async def _try_request(
        self, model: Model, model_ref: ModelRef, *, is_last_attempt: bool
    ) -> ModelStream | ModelError | float:
        """Return the stream, the error to raise, or the seconds after which to try again."""
        # Already loaded in a thread, together with the model.
        from toolyard.agents.models import model_stream, provider_errors

        try:
            async with asyncio.timeout(self._silence_timeout):
                request = model_stream.stream_request(model, model_ref, self._request)
                streamed_response = await self._stack.enter_async_context(request)
        except TimeoutError:
            return provider_errors.model_silent_error(model_ref, self._silence_timeout)
        except Exception as error:  # noqa: BLE001 - a provider's library may raise anything
            # The original exception may contain the key, so nothing that is raised may refer to it.
            delay = None if is_last_attempt else provider_errors.retry_delay(error)
            return (
                provider_errors.translate_error(error, model_ref, answer_started=False)
                if delay is None
                else delay
            )
        return model_stream.ModelStream(streamed_response, model_ref, self._silence_timeout, self._prices)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
                await self._stack.aclose()
        except Exception:  # noqa: BLE001 - the answer is complete; a failure to close does not affect it
            return
