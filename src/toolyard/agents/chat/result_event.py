"""Result of a call as an event: a preview in the event's body, the full result stored beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, cast

import orjson

from toolyard.agents.chat.sanitize import sanitize_text
from toolyard.types.chat import CallResult, NewChatEvent, ResultMedia
from toolyard.types.result import Media, Result

__all__ = ["MAX_PREVIEW_CHARACTERS", "FullResult", "failure_event", "read_full_result", "result_event"]

MAX_PREVIEW_CHARACTERS = 4_000
"""Characters of a result that the event's body contains."""


@dataclass(frozen=True, slots=True)
class FullResult:
    """The full result, as sent to a model."""

    text: str
    media: tuple[Media, ...] = ()


def result_event(
    call_id: str, result: Result, *, ok: bool, seconds: float, reconnect_instance_id: str | None = None
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
    )
    kept = _encode_full_result(text, media) if media or len(text) > MAX_PREVIEW_CHARACTERS else b""
    return NewChatEvent.from_data(data, call_id, kept)


def failure_event(call_id: str, message: str) -> NewChatEvent:
    """Return the result of a call that was not made or whose outcome is unknown."""
    return result_event(call_id, Result(None, message, is_error=True), ok=False, seconds=0.0)


def read_full_result(result: CallResult, kept_data: bytes | None) -> FullResult:
    """Return the full result of a call, from its event and the data stored beside it, if any."""
    if not kept_data:
        return FullResult(result.text)
    decoded = cast("dict[str, Any]", orjson.loads(kept_data))
    return FullResult(decoded["text"], tuple(Media(**each) for each in decoded["media"]))


def _encode_full_result(text: str, media: tuple[Media, ...]) -> bytes:
    media_rows = [{key: value for key, value in asdict(each).items() if value is not None} for each in media]
    return orjson.dumps({"text": text, "media": media_rows})
