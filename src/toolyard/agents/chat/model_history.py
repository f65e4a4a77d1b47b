"""From a chat's events to the messages that a model is sent, and from a model's answer to events.

Pure. Whatever the events are, the messages can be sent: each call has exactly one result, right after the
answer that made it, and nothing stands twice. The same events give the same messages, so that what a provider
has cached of a prompt still counts.

A turn that was retried is left out: the one in its place begins with the same words. So is a turn in which
the person called a tool themself. Of an answer that broke off, the text counts, and no call.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
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

from toolyard.agents.chat.result_event import read_full_result
from toolyard.agents.chat.sanitize import is_storable_json, sanitize_text
from toolyard.agents.chat.turn_end import INTERRUPTED_MESSAGE
from toolyard.agents.chat.turn_snapshot import split_turns
from toolyard.meta import META_TOOLS
from toolyard.types.chat import ChatEvent, Kind, NewChatEvent
from toolyard.types.result import Media

__all__ = [
    "InputModalities",
    "build_messages",
    "build_messages_by_turn",
    "merge_messages",
    "model_message_event",
    "normalize_response",
    "usage_event",
]

_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_AUDIO_TYPES = {"audio/wav": "audio/wav", "audio/x-wav": "audio/wav", "audio/wave": "audio/wav"} | {
    "audio/mpeg": "audio/mpeg",
    "audio/mp3": "audio/mpeg",
}
_MAX_MEDIA_BYTES = 5_000_000
"""Of one picture or sound; providers refuse a whole request over one that is larger."""
_CALL_ID_PATTERN = re.compile(r"[A-Za-z0-9_.:|-]{1,128}")
_INVALID_NAME_CHARACTER_PATTERN = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class InputModalities:
    """What a model takes in besides text."""

    images: bool = False
    audio: bool = False


# From events to messages.


def build_messages(
    events: Iterable[ChatEvent],
    kept_data_by_seq: Mapping[int, bytes],
    modalities: InputModalities = InputModalities(),  # noqa: B008 - frozen
    *,
    repeated_turn: int | None = None,
) -> list[ModelMessage]:
    """What a model is told of these events, which are of whole turns, in order. ``again`` is a turn that is
    repeated by one that is not among them."""
    return merge_messages(
        *build_messages_by_turn(events, kept_data_by_seq, modalities, repeated_turn=repeated_turn)
    )


def build_messages_by_turn(
    events: Iterable[ChatEvent],
    kept_data_by_seq: Mapping[int, bytes],
    modalities: InputModalities = InputModalities(),  # noqa: B008 - frozen
    *,
    repeated_turn: int | None = None,
) -> list[list[ModelMessage]]:
    """The same, turn by turn."""
    turns = split_turns(events)
    repeated = {repeated_turn, *(begun[0].body.get("again") for begun in turns.values())}
    answered: set[str] = set()
    return [
        list(_build_turn_messages(turn, kept_data_by_seq, modalities, answered))
        for number, turn in turns.items()
        if number not in repeated and turn[0].kind is Kind.USER
    ]


def merge_messages(*parts: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Messages in which requests and answers take turns, beginning with a request: providers want it so."""
    found: list[ModelMessage] = []
    for message in (each for part in parts for each in part):
        both = _merge_pair(found[-1], message) if found else None
        if both is not None:
            found[-1] = both
        elif found or isinstance(message, ModelRequest):
            found.append(message)
    return found


def _merge_pair(one: ModelMessage, other: ModelMessage) -> ModelMessage | None:
    """Two messages of the same side as one; None where they are of different sides."""
    if isinstance(one, ModelRequest):
        return replace(one, parts=[*one.parts, *other.parts]) if isinstance(other, ModelRequest) else None
    return replace(one, parts=[*one.parts, *other.parts]) if isinstance(other, ModelResponse) else None


def _build_turn_messages(
    events: Sequence[ChatEvent],
    kept_data_by_seq: Mapping[int, bytes],
    modalities: InputModalities,
    answered_call_ids: set[str],
) -> Iterator[ModelMessage]:
    """The messages of one turn. ``answered`` are the ids of calls that have their result already."""
    calls = {str(event.body.get("id")): event for event in events if event.kind is Kind.CALL}
    results: dict[str, ChatEvent] = {}
    for event in events:
        if event.kind is Kind.RESULT:
            results.setdefault(str(event.body.get("id")), event)
    for event in events:
        if event.kind is Kind.USER:
            yield ModelRequest([UserPromptPart(str(event.body.get("text", "")))])
        elif event.kind is Kind.MODEL_MESSAGE:
            response = _restore_response(event, kept_data_by_seq.get(event.seq), answered_call_ids)
            if any(isinstance(part, ToolCallPart) or _has_text(part) for part in response.parts):
                yield response
            if response.tool_calls:
                yield ModelRequest(
                    [
                        _build_tool_return(part, calls, results, kept_data_by_seq, modalities)
                        for part in response.tool_calls
                    ]
                )


def _restore_response(
    event: ChatEvent, kept_data: bytes | None, answered_call_ids: set[str]
) -> ModelResponse:
    """The answer as the provider wants it back; its bare text where nothing else is known."""
    found = None if not kept_data else _decode_response(kept_data)
    if found is None:
        return ModelResponse([TextPart(str(event.body.get("text", "")))])
    parts: list[ModelResponsePart] = []
    for part in found.parts:
        if isinstance(part, ToolCallPart):
            if part.tool_call_id in answered_call_ids:
                # What has its result cannot be answered again.
                continue
            answered_call_ids.add(part.tool_call_id)
            part = replace(part, tool_name=_clean_tool_name(part.tool_name))
        parts.append(part)
    return replace(found, parts=parts)


def _clean_tool_name(name: str) -> str:
    """The name of a tool as every provider takes it. Tools have such names, but a model may make up another,
    for which the whole request would be refused, and each one after it."""
    return _INVALID_NAME_CHARACTER_PATTERN.sub("_", name)[:_MAX_NAME_CHARACTERS] or "_"


def _has_text(part: ModelResponsePart) -> bool:
    return isinstance(part, TextPart) and bool(part.content.strip())


def _decode_response(kept_data: bytes) -> ModelResponse | None:
    try:
        messages = ModelMessagesTypeAdapter.validate_json(kept_data)
    except ValidationError:
        return None
    return messages[0] if len(messages) == 1 and isinstance(messages[0], ModelResponse) else None


def _build_tool_return(
    part: ToolCallPart,
    calls: Mapping[str, ChatEvent],
    results: Mapping[str, ChatEvent],
    kept_data_by_seq: Mapping[int, bytes],
    modalities: InputModalities,
) -> ToolReturnPart:
    event = results.get(part.tool_call_id)
    if event is None:
        content: Any = {"error": True, "output": INTERRUPTED_MESSAGE}
    else:
        call = calls.get(part.tool_call_id)
        content = _build_result_content(
            event,
            kept_data_by_seq.get(event.seq),
            modalities,
            is_meta_tool=call is not None and _is_meta_tool_call(call),
        )
    return ToolReturnPart(part.tool_name, content, part.tool_call_id)


def _is_meta_tool_call(call: ChatEvent) -> bool:
    """Whether the answer says by itself whether it is one: ``{"ok": false, …}``."""
    tool = META_TOOLS.get(str(call.body.get("name")))
    return tool is not None and call.body.get("tool") == tool.id


def _build_result_content(
    event: ChatEvent, kept_data: bytes | None, modalities: InputModalities, *, is_meta_tool: bool
) -> Any:
    """What a model gets of a result: its text or the error object, then what it can see or hear."""
    body, whole = event.body, read_full_result(event.body, kept_data)
    carried = [found for each in whole.media if (found := _to_binary_content(each, modalities)) is not None]
    named = [
        str(each)
        for each in whole.media
        if _to_binary_content(each, modalities) is None and str(each) not in whole.text
    ]
    text = "\n".join([whole.text, *named])
    if is_meta_tool or body.get("ok") is True:
        return [text, *carried] if carried else text
    view: dict[str, Any] = {"error": True, "output": text}
    if body.get("cause") is not None:
        view["cause"] = body["cause"]
    return [view, *carried] if carried else view


def _to_binary_content(media: Media, modalities: InputModalities) -> BinaryContent | None:
    """A picture or a sound as the model takes it in; None where it cannot."""
    mime = media.mime.partition(";")[0].strip().lower()
    seen = modalities.images and mime in _IMAGE_TYPES
    heard = modalities.audio and mime in _AUDIO_TYPES
    if not (seen or heard) or media.size > _MAX_MEDIA_BYTES:
        return None
    try:
        data = base64.b64decode(media.data, validate=True)
    except binascii.Error:
        return None
    return BinaryContent(data, media_type=mime if seen else _AUDIO_TYPES[mime])


# From a model's answer to events.


def normalize_response(
    response: ModelResponse, used_call_ids: Container[str], max_calls: int
) -> ModelResponse:
    """The answer as it is kept: texts that can be stored, at most so many calls, each with an id of its own,
    whatever the provider gave."""
    given: set[str] = set()
    parts: list[ModelResponsePart] = []
    for part in response.parts:
        if isinstance(part, TextPart | ThinkingPart):
            parts.append(replace(part, content=sanitize_text(part.content)))
        elif isinstance(part, ToolCallPart):
            if len(given) < max_calls:
                # The libraries pass on what servers send, of whatever type.
                id = _choose_call_id(str(part.tool_call_id), used_call_ids, given)
                given.add(id)
                name, arguments = sanitize_text(str(part.tool_name)), _normalize_arguments(part.args)
                parts.append(replace(part, tool_name=name, args=arguments, tool_call_id=id))
        else:
            parts.append(part)
    return replace(response, parts=parts)


def _normalize_arguments(given: Any) -> Any:
    """The arguments, as a text where they are no object that can be kept: a call that cannot be kept would be
    missing in the next request, and the model would make it again."""
    whole: object = given
    if whole is None or (isinstance(whole, dict) and is_storable_json(cast("object", whole))):
        return given
    return sanitize_text(str(given))


def _choose_call_id(id: str, used_call_ids: Container[str], assigned_call_ids: Container[str]) -> str:
    if _CALL_ID_PATTERN.fullmatch(id) and id not in used_call_ids and id not in assigned_call_ids:
        return id
    return f"call_{secrets.token_hex(8)}"


def model_message_event(response: ModelResponse, part: str) -> NewChatEvent:
    """The event of a whole answer, in place of its pieces."""
    thought = "\n\n".join(each.content for each in response.parts if isinstance(each, ThinkingPart))
    body: dict[str, Any] = {
        "text": response.text or "",
        "reasoning": thought,
        "model": response.model_name,
        "calls": len(response.tool_calls),
    }
    return NewChatEvent(Kind.MODEL_MESSAGE, body, part=part, kept=_encode_response(response))


def _encode_response(response: ModelResponse) -> bytes:
    """The answer for the next request; nothing where its text is all there is, or all that can be written."""
    if all(type(part) is TextPart and not part.id and not part.provider_details for part in response.parts):
        return b""
    try:
        return ModelMessagesTypeAdapter.dump_json([response])
    except ValueError:
        return b""


def usage_event(response: ModelResponse, cost: Decimal | None) -> NewChatEvent:
    """What one request cost."""
    usage = response.usage
    body: dict[str, Any] = {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cached": usage.cache_read_tokens,
        "cost": None if cost is None else float(cost),
    }
    return NewChatEvent(Kind.USAGE, body)
