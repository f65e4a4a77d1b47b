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

from toolyard.agents.chat.result_event import read_kept
from toolyard.agents.chat.sanitize import clean, fits_in_json
from toolyard.agents.chat.turn_end import INTERRUPTED
from toolyard.agents.chat.turn_snapshot import split_turns
from toolyard.meta import META_TOOLS
from toolyard.types.chat import Event, Kind, NewEvent
from toolyard.types.result import Media

__all__ = ["Senses", "joined", "messages_of", "said_event", "sendable", "turns_of", "usage_event"]

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_SOUNDS = {"audio/wav": "audio/wav", "audio/x-wav": "audio/wav", "audio/wave": "audio/wav"} | {
    "audio/mpeg": "audio/mpeg",
    "audio/mp3": "audio/mpeg",
}
_MOST_BYTES = 5_000_000
"""Of one picture or sound; providers refuse a whole request over one that is larger."""
_ID = re.compile(r"[A-Za-z0-9_.:|-]{1,128}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class Senses:
    """What a model takes in besides text."""

    sees: bool = False
    hears: bool = False


# From events to messages.


def messages_of(
    events: Iterable[Event],
    kept: Mapping[int, bytes],
    senses: Senses = Senses(),  # noqa: B008 - frozen
    *,
    again: int | None = None,
) -> list[ModelMessage]:
    """What a model is told of these events, which are of whole turns, in order. ``again`` is a turn that is
    repeated by one that is not among them."""
    return joined(*turns_of(events, kept, senses, again=again))


def turns_of(
    events: Iterable[Event],
    kept: Mapping[int, bytes],
    senses: Senses = Senses(),  # noqa: B008 - frozen
    *,
    again: int | None = None,
) -> list[list[ModelMessage]]:
    """The same, turn by turn."""
    turns = split_turns(events)
    repeated = {again, *(begun[0].body.get("again") for begun in turns.values())}
    answered: set[str] = set()
    return [
        list(_turn(turn, kept, senses, answered))
        for number, turn in turns.items()
        if number not in repeated and turn[0].kind is Kind.USER
    ]


def joined(*parts: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Messages in which requests and answers take turns, beginning with a request: providers want it so."""
    found: list[ModelMessage] = []
    for message in (each for part in parts for each in part):
        both = _merged(found[-1], message) if found else None
        if both is not None:
            found[-1] = both
        elif found or isinstance(message, ModelRequest):
            found.append(message)
    return found


def _merged(one: ModelMessage, other: ModelMessage) -> ModelMessage | None:
    """Two messages of the same side as one; None where they are of different sides."""
    if isinstance(one, ModelRequest):
        return replace(one, parts=[*one.parts, *other.parts]) if isinstance(other, ModelRequest) else None
    return replace(one, parts=[*one.parts, *other.parts]) if isinstance(other, ModelResponse) else None


def _turn(
    events: Sequence[Event], kept: Mapping[int, bytes], senses: Senses, answered: set[str]
) -> Iterator[ModelMessage]:
    """The messages of one turn. ``answered`` are the ids of calls that have their result already."""
    calls = {str(event.body.get("id")): event for event in events if event.kind is Kind.CALL}
    results: dict[str, Event] = {}
    for event in events:
        if event.kind is Kind.RESULT:
            results.setdefault(str(event.body.get("id")), event)
    for event in events:
        if event.kind is Kind.USER:
            yield ModelRequest([UserPromptPart(str(event.body.get("text", "")))])
        elif event.kind is Kind.SAID:
            response = _response(event, kept.get(event.seq), answered)
            if any(isinstance(part, ToolCallPart) or _is_text(part) for part in response.parts):
                yield response
            if response.tool_calls:
                yield ModelRequest(
                    [_return(part, calls, results, kept, senses) for part in response.tool_calls]
                )


def _response(event: Event, kept: bytes | None, answered: set[str]) -> ModelResponse:
    """The answer as the provider wants it back; its bare text where nothing else is known."""
    found = None if not kept else _read(kept)
    if found is None:
        return ModelResponse([TextPart(str(event.body.get("text", "")))])
    parts: list[ModelResponsePart] = []
    for part in found.parts:
        if isinstance(part, ToolCallPart):
            if part.tool_call_id in answered:
                # What has its result cannot be answered again.
                continue
            answered.add(part.tool_call_id)
            part = replace(part, tool_name=_name(part.tool_name))
        parts.append(part)
    return replace(found, parts=parts)


def _name(name: str) -> str:
    """The name of a tool as every provider takes it. Tools have such names, but a model may make up another,
    for which the whole request would be refused, and each one after it."""
    return _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME] or "_"


def _is_text(part: ModelResponsePart) -> bool:
    return isinstance(part, TextPart) and bool(part.content.strip())


def _read(kept: bytes) -> ModelResponse | None:
    try:
        messages = ModelMessagesTypeAdapter.validate_json(kept)
    except ValidationError:
        return None
    return messages[0] if len(messages) == 1 and isinstance(messages[0], ModelResponse) else None


def _return(
    part: ToolCallPart,
    calls: Mapping[str, Event],
    results: Mapping[str, Event],
    kept: Mapping[int, bytes],
    senses: Senses,
) -> ToolReturnPart:
    event = results.get(part.tool_call_id)
    if event is None:
        content: Any = {"error": True, "output": INTERRUPTED}
    else:
        call = calls.get(part.tool_call_id)
        content = _content(event, kept.get(event.seq), senses, meta=call is not None and _is_meta(call))
    return ToolReturnPart(part.tool_name, content, part.tool_call_id)


def _is_meta(call: Event) -> bool:
    """Whether the answer says by itself whether it is one: ``{"ok": false, …}``."""
    tool = META_TOOLS.get(str(call.body.get("name")))
    return tool is not None and call.body.get("tool") == tool.id


def _content(event: Event, kept: bytes | None, senses: Senses, *, meta: bool) -> Any:
    """What a model gets of a result: its text or the error object, then what it can see or hear."""
    body, whole = event.body, read_kept(event.body, kept)
    carried = [found for each in whole.media if (found := _carried(each, senses)) is not None]
    named = [
        str(each) for each in whole.media if _carried(each, senses) is None and str(each) not in whole.text
    ]
    text = "\n".join([whole.text, *named])
    if meta or body.get("ok") is True:
        return [text, *carried] if carried else text
    view: dict[str, Any] = {"error": True, "output": text}
    if body.get("cause") is not None:
        view["cause"] = body["cause"]
    return [view, *carried] if carried else view


def _carried(media: Media, senses: Senses) -> BinaryContent | None:
    """A picture or a sound as the model takes it in; None where it cannot."""
    mime = media.mime.partition(";")[0].strip().lower()
    seen = senses.sees and mime in _IMAGES
    heard = senses.hears and mime in _SOUNDS
    if not (seen or heard) or media.size > _MOST_BYTES:
        return None
    try:
        data = base64.b64decode(media.data, validate=True)
    except binascii.Error:
        return None
    return BinaryContent(data, media_type=mime if seen else _SOUNDS[mime])


# From a model's answer to events.


def sendable(response: ModelResponse, used: Container[str], most_calls: int) -> ModelResponse:
    """The answer as it is kept: texts that can be stored, at most so many calls, each with an id of its own,
    whatever the provider gave."""
    given: set[str] = set()
    parts: list[ModelResponsePart] = []
    for part in response.parts:
        if isinstance(part, TextPart | ThinkingPart):
            parts.append(replace(part, content=clean(part.content)))
        elif isinstance(part, ToolCallPart):
            if len(given) < most_calls:
                # The libraries pass on what servers send, of whatever type.
                id = _own_id(str(part.tool_call_id), used, given)
                given.add(id)
                name, arguments = clean(str(part.tool_name)), _arguments(part.args)
                parts.append(replace(part, tool_name=name, args=arguments, tool_call_id=id))
        else:
            parts.append(part)
    return replace(response, parts=parts)


def _arguments(given: Any) -> Any:
    """The arguments, as a text where they are no object that can be kept: a call that cannot be kept would be
    missing in the next request, and the model would make it again."""
    whole: object = given
    if whole is None or (isinstance(whole, dict) and fits_in_json(cast("object", whole))):
        return given
    return clean(str(given))


def _own_id(id: str, used: Container[str], given: Container[str]) -> str:
    if _ID.fullmatch(id) and id not in used and id not in given:
        return id
    return f"call_{secrets.token_hex(8)}"


def said_event(response: ModelResponse, part: str) -> NewEvent:
    """The event of a whole answer, in place of its pieces."""
    thought = "\n\n".join(each.content for each in response.parts if isinstance(each, ThinkingPart))
    body: dict[str, Any] = {
        "text": response.text or "",
        "reasoning": thought,
        "model": response.model_name,
        "calls": len(response.tool_calls),
    }
    return NewEvent(Kind.SAID, body, part=part, kept=_kept(response))


def _kept(response: ModelResponse) -> bytes:
    """The answer for the next request; nothing where its text is all there is, or all that can be written."""
    if all(type(part) is TextPart and not part.id and not part.provider_details for part in response.parts):
        return b""
    try:
        return ModelMessagesTypeAdapter.dump_json([response])
    except ValueError:
        return b""


def usage_event(response: ModelResponse, cost: Decimal | None) -> NewEvent:
    """What one request cost."""
    usage = response.usage
    body: dict[str, Any] = {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cached": usage.cache_read_tokens,
        "cost": None if cost is None else float(cost),
    }
    return NewEvent(Kind.USAGE, body)
