"""Result of a call as an event: a preview in the event's body, the full result stored beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, cast

import orjson

from toolyard.agents.chat.storable_values import sanitize_text
from toolyard.results.json_size import estimate_characters
from toolyard.results.untrusted_text import unfence_text
from toolyard.types.chat import CallResult, NewChatEvent, ResultMedia
from toolyard.types.tool import Media, Result

__all__ = ["MAX_PREVIEW_CHARACTERS", "FullResult", "failure_event", "read_full_result", "result_event"]

MAX_PREVIEW_CHARACTERS = 4_000
"""Characters of a result that the event's body contains."""
_MAX_STRUCTURED_BYTES = 1_000_000
"""Maximum size of structured content that is stored beside the text of a result."""


@dataclass(frozen=True, slots=True)
class FullResult:
    """The full result, as sent to a model."""

    text: str
    media: tuple[Media, ...] = ()
    structured: str = ""
    """Structured content as JSON, if the text is not the same JSON."""


def result_event(
    call_id: str,
    result: Result,
    *,
    ok: bool,
    seconds: float,
    reconnect_instance_id: str | None = None,
    stopped: bool = False,
) -> NewChatEvent:
    """Return the RESULT event of a call, which replaces its progress events."""
    text, media = sanitize_text(result.text), result.media
    data = CallResult(
        call_id,
        ok,
        text[:MAX_PREVIEW_CHARACTERS],
        len(text),
        None if result.cause is None else sanitize_text(result.cause),
        round(seconds, 3),
        tuple(ResultMedia(each.kind, each.mime, each.size) for each in media),
        result.handle,
        reconnect_instance_id,
        stopped,
    )
    structured = _encode_structured(result)
    is_longer = media or structured or len(text) > MAX_PREVIEW_CHARACTERS
    payload = _encode_full_result(text, media, structured) if is_longer else b""
    return NewChatEvent.from_data(data, call_id, payload)


def failure_event(call_id: str, message: str, *, stopped: bool = False) -> NewChatEvent:
    """Return the result of a call that was not made or whose outcome is unknown."""
    result = Result(None, message, is_error=True)
    return result_event(call_id, result, ok=False, seconds=0.0, stopped=stopped)


def read_full_result(result: CallResult, payload: bytes | None) -> FullResult:
    """Return the full result of a call, from its event and the data stored beside it, if any."""
    if not payload:
        return FullResult(result.text)
    decoded = cast("dict[str, Any]", orjson.loads(payload))
    media = tuple(Media(**each) for each in decoded["media"])
    return FullResult(decoded["text"], media, decoded.get("structured", ""))


def _encode_structured(result: Result) -> str:
    """Return the structured content as JSON; empty if the text has it, too, or if it is too long."""
    # Estimated first, because encoding 60 MB would block the event loop.
    limit = 2 * _MAX_STRUCTURED_BYTES
    if result.structured is None or estimate_characters(result.structured, limit) > limit:
        return ""
    try:
        encoded = orjson.dumps(result.structured)
    except orjson.JSONEncodeError:
        return ""
    if len(encoded) > _MAX_STRUCTURED_BYTES:
        return ""
    try:
        # Servers should send the same JSON as text, for clients that do not know structured content.
        is_same = bool(orjson.loads(unfence_text(result.text)) == result.structured)
    except orjson.JSONDecodeError:
        is_same = False
    return "" if is_same else encoded.decode()


def _encode_full_result(text: str, media: tuple[Media, ...], structured: str) -> bytes:
    media_rows = [{key: value for key, value in asdict(each).items() if value is not None} for each in media]
    # Absent in most rows, and in those of earlier versions.
    extra = {"structured": structured} if structured else {}
    return orjson.dumps({"text": text, "media": media_rows, **extra})
