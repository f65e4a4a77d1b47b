"""A server's sampling request, answered by the chat's model. Text in, text out: no tools, whatever it wants.

Imports pydantic-ai, so this module is loaded with the first model that is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from toolyard.agents.chat.elicitation_request import Sampling
from toolyard.agents.chat.event_writer import Scribe
from toolyard.agents.chat.model_history import joined, usage_event
from toolyard.agents.models.available_models import PickedModel

__all__ = ["sampled"]

_REASONS = {"length": "maxTokens"}


async def sampled(request: Sampling, picked: PickedModel, scribe: Scribe) -> Mapping[str, Any]:
    """The result of ``sampling/createMessage``. What it cost is written down. Raises a ModelError."""
    asking = picked.stream(
        _messages(request), (), instructions=request.system, temperature=request.temperature
    )
    async with asking as answer:
        async for _ in answer:
            pass
        response = answer.response()
    await scribe.append([usage_event(response, answer.cost)])
    return {
        "role": "assistant",
        "content": {"type": "text", "text": response.text or ""},
        "model": response.model_name or picked.choice.id,
        "stopReason": _REASONS.get(response.finish_reason or "", "endTurn"),
    }


def _messages(request: Sampling) -> list[ModelMessage]:
    found: list[ModelMessage] = [
        ModelResponse([TextPart(text)]) if own else ModelRequest([UserPromptPart(text)])
        for own, text in request.messages
    ]
    return joined(found) or [ModelRequest([UserPromptPart("(nothing)")])]
