"""A server's sampling request, answered by the chat's model. Text in, text out: no tools, whatever it wants.

Imports pydantic-ai, so this module is loaded with the first model that is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from toolyard.agents.chat.elicitation_request import SamplingRequest
from toolyard.agents.chat.event_writer import EventWriter
from toolyard.agents.chat.model_history import merge_messages, usage_event
from toolyard.agents.models.available_models import PickedModel

__all__ = ["answer_sampling_request"]

_STOP_REASONS = {"length": "maxTokens"}


async def answer_sampling_request(
    request: SamplingRequest, picked_model: PickedModel, event_writer: EventWriter
) -> Mapping[str, Any]:
    """The result of ``sampling/createMessage``. What it cost is written down. Raises a ModelError."""
    asking = picked_model.stream(
        _build_messages(request), (), instructions=request.system_prompt, temperature=request.temperature
    )
    async with asking as answer:
        async for _ in answer:
            pass
        response = answer.response()
    await event_writer.append([usage_event(response, answer.cost)])
    return {
        "role": "assistant",
        "content": {"type": "text", "text": response.text or ""},
        "model": response.model_name or picked_model.choice.id,
        "stopReason": _STOP_REASONS.get(response.finish_reason or "", "endTurn"),
    }


def _build_messages(request: SamplingRequest) -> list[ModelMessage]:
    found: list[ModelMessage] = [
        ModelResponse([TextPart(text)]) if own else ModelRequest([UserPromptPart(text)])
        for own, text in request.messages
    ]
    return merge_messages(found) or [ModelRequest([UserPromptPart("(nothing)")])]
