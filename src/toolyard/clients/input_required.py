"""Multi-round requests of the modern era: answers ``input_required`` results and repeats the request."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from toolyard.clients.callbacks import INPUT_NAME_META_KEY, Callbacks, CapabilityNotOffered
from toolyard.clients.session import McpSession
from toolyard.errors import BadAnswer
from toolyard.types.call import McpRequest
from toolyard.types.json_values import object_or_empty
from toolyard.types.server import Timeouts

__all__ = ["InputRequiredLoop"]

_MAX_ROUNDS = 16
_MAX_INPUTS_PER_ROUND = 16
"""Maximum number of inputs that a server may request in one round."""


class InputRequiredLoop:
    """Answers ``input_required`` with the program's callbacks until the result is complete."""

    def __init__(self, server: str, callbacks: Callbacks) -> None:
        self._server = server
        self._callbacks = callbacks

    async def complete(
        self,
        session: McpSession,
        request: McpRequest,
        result: dict[str, Any],
        timeouts: Timeouts,
        headers: Mapping[str, str] | None,
    ) -> dict[str, Any]:
        """Return the complete result of a request, given its first result. Raise BadAnswer for an unknown
        result type or too many rounds."""
        method, params = request.method, request.params or {}
        for _ in range(_MAX_ROUNDS):
            kind = result.get("resultType")
            if kind != "input_required":
                raise BadAnswer(f"answered {method} with a result of the unknown type {str(kind)[:60]!r}")
            next_params = await self._collect_inputs(method, result)
            next_request = replace(request, params={**params, **next_params})
            result = await session.request(next_request, timeouts, headers)
            if result.get("resultType", "complete") == "complete":
                return result
        raise BadAnswer(f"asked for input more than {_MAX_ROUNDS} times during one {method}")

    async def _collect_inputs(self, method: str, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the params to add in the next round: the answers, and the opaque state of the server."""
        next_params: dict[str, Any] = {}
        requests, state = result.get("inputRequests"), result.get("requestState")
        if isinstance(requests, dict) and requests:
            inputs = cast("dict[str, Any]", requests)
            if len(inputs) > _MAX_INPUTS_PER_ROUND:
                raise BadAnswer(
                    f"asked for {len(inputs)} inputs at once; at most {_MAX_INPUTS_PER_ROUND} are answered"
                )
            answers = await asyncio.gather(
                *(self._answer_input(method, name, one) for name, one in inputs.items())
            )
            next_params["inputResponses"] = dict(zip(inputs, answers, strict=True))
        if isinstance(state, str):
            next_params["requestState"] = state
        if not next_params:
            raise BadAnswer(f"requires input for {method} but does not say which")
        return next_params

    async def _answer_input(self, method: str, name: str, input_request: object) -> dict[str, Any]:
        request = object_or_empty(input_request)
        kind, raw_params = request.get("method"), request.get("params")
        params = object_or_empty(raw_params)
        if self._callbacks.name_inputs:
            raw_meta = params.get("_meta")
            meta = object_or_empty(raw_meta)
            params = {**params, "_meta": {**meta, INPUT_NAME_META_KEY: name}}
        try:
            return await self._callbacks.answer(self._server, str(kind), params)
        except CapabilityNotOffered:
            cause = f"asked for {str(kind)[:60]} during {method}, which this client does not support"
            raise BadAnswer(cause, hint="use a client that supports such requests") from None
