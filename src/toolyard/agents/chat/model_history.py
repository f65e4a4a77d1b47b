"""Convert a chat's turns to messages for a model, and a model's answer to events.

Pure. The messages are valid for any turns: each call has exactly one result, directly after the
answer that made it, and nothing is duplicated. The same turns produce the same messages, so that a
provider's prompt cache stays valid.

A turn in which the user called a tool directly is omitted. Of an interrupted answer, the text is included and
its calls are not.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any, cast

from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from toolyard.agents.chat.attachments import describe_attachment
from toolyard.agents.chat.result_event import read_full_result
from toolyard.agents.chat.storable_values import is_storable_json, sanitize_text
from toolyard.agents.chat.turn_log import INTERRUPTED_MESSAGE
from toolyard.agents.chat.turn_snapshot import CallSnapshot, TurnSnapshot
from toolyard.meta_tools import META_TOOLS
from toolyard.types import chat
from toolyard.types.chat import CallRequest, CallResult, NewChatEvent
from toolyard.types.tool import Media

__all__ = [
    "InputModalities",
    "build_messages",
    "build_messages_by_turn",
    "build_usage",
    "merge_messages",
    "model_message_event",
    "normalize_response",
]

_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_AUDIO_TYPES = {"audio/wav": "audio/wav", "audio/x-wav": "audio/wav", "audio/wave": "audio/wav"} | {
    "audio/mpeg": "audio/mpeg",
    "audio/mp3": "audio/mpeg",
}
_MAX_MEDIA_BYTES = 5_000_000
"""Maximum size of one image or audio clip; providers reject the whole request for a larger one."""
_CALL_ID_PATTERN = re.compile(r"[A-Za-z0-9_.:|-]{1,128}")
_INVALID_NAME_CHARACTER_PATTERN = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class InputModalities:
    """Input that a model accepts besides text."""

    images: bool = False
    audio: bool = False


# From turns to messages.


def build_messages(
    turns: Iterable[TurnSnapshot],
    payload_by_seq: Mapping[int, bytes],
    modalities: InputModalities = InputModalities(),  # noqa: B008 - frozen
    attached: Mapping[str, bytes] = MappingProxyType({}),
) -> list[ModelMessage]:
    """Return the messages for these turns, in order. ``attached`` is content of attachments, by id."""
    return merge_messages(*build_messages_by_turn(turns, payload_by_seq, modalities, attached))


def build_messages_by_turn(
    turns: Iterable[TurnSnapshot],
    payload_by_seq: Mapping[int, bytes],
    modalities: InputModalities = InputModalities(),  # noqa: B008 - frozen
    attached: Mapping[str, bytes] = MappingProxyType({}),
) -> list[list[ModelMessage]]:
    """Return the messages of each turn, as ``build_messages`` does for all."""
    answered_call_ids: set[str] = set()
    return [
        [
            _build_user_message(turn.text, turn.attachments, attached),
            *_build_answer_messages(turn, payload_by_seq, modalities, answered_call_ids),
        ]
        for turn in turns
        if turn.text is not None
    ]


def merge_messages(*parts: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Merge adjacent messages of the same role and drop leading answers.

    Providers require requests and answers to alternate, starting with a request.
    """
    merged: list[ModelMessage] = []
    for message in (each for part in parts for each in part):
        pair = _merge_pair(merged[-1], message) if merged else None
        if pair is not None:
            merged[-1] = pair
        elif merged or isinstance(message, ModelRequest):
            merged.append(message)
    return merged


def _merge_pair(first: ModelMessage, second: ModelMessage) -> ModelMessage | None:
    """Return two messages of the same role as one; None if the roles differ."""
    if isinstance(first, ModelRequest):
        return (
            replace(first, parts=[*first.parts, *second.parts]) if isinstance(second, ModelRequest) else None
        )
    return replace(first, parts=[*first.parts, *second.parts]) if isinstance(second, ModelResponse) else None


def _build_user_message(
    text: str, attachments: Sequence[chat.Attachment], attached: Mapping[str, bytes]
) -> ModelRequest:
    content: list[str | BinaryContent] = [text]
    for each in attachments:
        data = attached.get(each.id)
        content.append(describe_attachment(each, data))
        if data is not None and each.is_picture:
            content.append(BinaryContent(data, media_type=each.mime))
    return ModelRequest([UserPromptPart(content if attachments else text)])


def _build_answer_messages(
    turn: TurnSnapshot,
    payload_by_seq: Mapping[int, bytes],
    modalities: InputModalities,
    answered_call_ids: set[str],
) -> Iterator[ModelMessage]:
    """Yield the messages of one turn after the user's.

    ``answered_call_ids`` are the ids of calls that already have a result.
    """
    calls = {call.request.id: call for call in turn.calls}
    for answer in turn.answers:
        if answer.seq is None:
            continue
        response = _restore_response(answer.text, payload_by_seq.get(answer.seq), answered_call_ids)
        if any(isinstance(part, ToolCallPart) or _has_text(part) for part in response.parts):
            yield response
        if response.tool_calls:
            yield ModelRequest(
                [
                    _build_tool_return(part, calls.get(part.tool_call_id), payload_by_seq, modalities)
                    for part in response.tool_calls
                ]
            )


def _restore_response(text: str, payload: bytes | None, answered_call_ids: set[str]) -> ModelResponse:
    """Return the answer as the provider expects it back, or just its text if nothing else was stored."""
    response = None if not payload else _decode_response(payload)
    if response is None:
        return ModelResponse([TextPart(text)])
    parts: list[ModelResponsePart] = []
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            if part.tool_call_id in answered_call_ids:
                # A call that has its result must not be answered twice.
                continue
            answered_call_ids.add(part.tool_call_id)
            part = replace(part, tool_name=_clean_tool_name(part.tool_name))
        parts.append(part)
    return replace(response, parts=parts)


def _clean_tool_name(name: str) -> str:
    """Return a tool name that every provider accepts.

    Toolyard's names are valid, but a model may invent one, and providers would reject this request and every
    later one.
    """
    return _INVALID_NAME_CHARACTER_PATTERN.sub("_", name)[:_MAX_NAME_CHARACTERS] or "_"


def _has_text(part: ModelResponsePart) -> bool:
    return isinstance(part, TextPart) and bool(part.content.strip())


def _decode_response(payload: bytes) -> ModelResponse | None:
    try:
        messages = ModelMessagesTypeAdapter.validate_json(payload)
    except ValidationError:
        return None
    return messages[0] if len(messages) == 1 and isinstance(messages[0], ModelResponse) else None


def _build_tool_return(
    part: ToolCallPart,
    call: CallSnapshot | None,
    payload_by_seq: Mapping[int, bytes],
    modalities: InputModalities,
) -> ToolReturnPart:
    if call is None or call.result is None:
        content: Any = {"error": True, "output": INTERRUPTED_MESSAGE}
    else:
        content = _build_result_content(
            call.result,
            payload_by_seq.get(call.result_seq),
            modalities,
            is_meta_tool=_is_meta_tool_call(call.request),
        )
    return ToolReturnPart(part.tool_name, content, part.tool_call_id)


def _is_meta_tool_call(call: CallRequest) -> bool:
    """Return whether the result reports its own success: ``{"ok": false, …}``."""
    tool = META_TOOLS.get(call.name)
    return tool is not None and call.tool == tool.id


def _build_result_content(
    result: CallResult, payload: bytes | None, modalities: InputModalities, *, is_meta_tool: bool
) -> Any:
    """Return the content of a result for a model: its text or an error object, then images and audio."""
    full_result = read_full_result(result, payload)
    binary_parts = [
        content for each in full_result.media if (content := _to_binary_content(each, modalities)) is not None
    ]
    media_names = [
        str(each)
        for each in full_result.media
        if _to_binary_content(each, modalities) is None and str(each) not in full_result.text
    ]
    text = "\n".join([full_result.text, *media_names])
    if is_meta_tool or result.ok:
        return [text, *binary_parts] if binary_parts else text
    view: dict[str, Any] = {"error": True, "output": text}
    if result.cause is not None:
        view["cause"] = result.cause
    return [view, *binary_parts] if binary_parts else view


def _to_binary_content(media: Media, modalities: InputModalities) -> BinaryContent | None:
    """Return an image or audio clip for the model, or None if it cannot process it."""
    mime = media.mime.partition(";")[0].strip().lower()
    is_image = modalities.images and mime in _IMAGE_TYPES
    is_audio = modalities.audio and mime in _AUDIO_TYPES
    if not (is_image or is_audio) or media.size > _MAX_MEDIA_BYTES:
        return None
    try:
        data = base64.b64decode(media.data, validate=True)
    except binascii.Error:
        return None
    return BinaryContent(data, media_type=mime if is_image else _AUDIO_TYPES[mime])


# From a model's answer to events.


def normalize_response(
    response: ModelResponse, used_call_ids: Container[str], max_calls: int
) -> ModelResponse:
    """Return the answer as it is stored: valid text, at most ``max_calls`` calls, and a unique id for each
    call.
    """
    assigned_call_ids: set[str] = set()
    parts: list[ModelResponsePart] = []
    for part in response.parts:
        if isinstance(part, TextPart | ThinkingPart):
            parts.append(replace(part, content=sanitize_text(part.content)))
        elif isinstance(part, ToolCallPart):
            if len(assigned_call_ids) < max_calls:
                # Libraries pass on the provider's values, whatever their type.
                id = _choose_call_id(str(part.tool_call_id), used_call_ids, assigned_call_ids)
                assigned_call_ids.add(id)
                name, arguments = sanitize_text(str(part.tool_name)), _normalize_arguments(part.args)
                parts.append(replace(part, tool_name=name, args=arguments, tool_call_id=id))
        else:
            parts.append(part)
    return replace(response, parts=parts)


def _normalize_arguments(arguments: Any) -> Any:
    """Return the arguments, as text if they are not a storable object.

    A call that could not be stored would be missing in the next request, and the model would repeat it.
    """
    value: object = arguments
    if value is None or (isinstance(value, dict) and is_storable_json(cast("object", value))):
        return arguments
    return sanitize_text(str(arguments))


def _choose_call_id(id: str, used_call_ids: Container[str], assigned_call_ids: Container[str]) -> str:
    if _CALL_ID_PATTERN.fullmatch(id) and id not in used_call_ids and id not in assigned_call_ids:
        return id
    return f"call_{secrets.token_hex(8)}"


def model_message_event(response: ModelResponse, part: str) -> NewChatEvent:
    """Return the event of a complete answer, which replaces its pieces."""
    reasoning = "\n\n".join(each.content for each in response.parts if isinstance(each, ThinkingPart))
    message = chat.ModelMessage(response.text or "", reasoning, response.model_name, len(response.tool_calls))
    return NewChatEvent.from_data(message, part, _encode_response(response))


def _encode_response(response: ModelResponse) -> bytes:
    """Return the answer serialized for later requests; empty if its text is all there is, or serialization
    fails.
    """
    if all(type(part) is TextPart and not part.id and not part.provider_details for part in response.parts):
        return b""
    try:
        return ModelMessagesTypeAdapter.dump_json([response])
    except ValueError:
        return b""


def build_usage(response: ModelResponse, cost: Decimal | None) -> chat.ModelUsage:
    """Return the token usage and cost of one request."""
    usage = response.usage
    return chat.ModelUsage(
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        None if cost is None else float(cost),
    )
