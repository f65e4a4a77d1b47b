"""What a call came to, as an event: what a page shows at once, and the whole kept aside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import orjson

from toolyard.agents.chat.sanitize import sanitize_text
from toolyard.types.chat import Kind, NewChatEvent
from toolyard.types.result import Media, Result

__all__ = ["MAX_PREVIEW_CHARACTERS", "FullResult", "failure_event", "read_full_result", "result_event"]

MAX_PREVIEW_CHARACTERS = 4_000
"""Characters of a result that stand in the event itself."""


@dataclass(frozen=True, slots=True)
class FullResult:
    """A result as a model gets it, whole."""

    text: str
    media: tuple[Media, ...] = ()


def result_event(
    call_id: str, result: Result, *, ok: bool, seconds: float, reconnect_instance_id: str | None = None
) -> NewChatEvent:
    """The event that stands for a result, in place of the call's progress."""
    text, media = sanitize_text(result.text), result.media
    body: dict[str, Any] = {
        "id": call_id,
        "ok": ok,
        "text": text[:MAX_PREVIEW_CHARACTERS],
        "length": len(text),
        "cause": None if result.cause is None else sanitize_text(result.cause),
        "seconds": round(seconds, 3),
        "media": [{"kind": each.kind, "mime": each.mime, "size": each.size} for each in media],
        "handle": result.handle,
        "reconnect": reconnect_instance_id,
    }
    kept = _encode_full_result(text, media) if media or len(text) > MAX_PREVIEW_CHARACTERS else b""
    return NewChatEvent(Kind.RESULT, body, part=call_id, kept=kept)


def failure_event(call_id: str, message: str) -> NewChatEvent:
    """The result of a call that was not made, or whose outcome nobody knows."""
    return result_event(call_id, Result(None, message, is_error=True), ok=False, seconds=0.0)


def read_full_result(body: Mapping[str, Any], kept_data: bytes | None) -> FullResult:
    """The whole result of a RESULT event, from its body and what was kept aside with it, if anything was."""
    if not kept_data:
        return FullResult(str(body.get("text", "")))
    found = cast("dict[str, Any]", orjson.loads(kept_data))
    return FullResult(found["text"], tuple(Media(**each) for each in found["media"]))


def _encode_full_result(text: str, media: tuple[Media, ...]) -> bytes:
    listed = [{key: value for key, value in asdict(each).items() if value is not None} for each in media]
    return orjson.dumps({"text": text, "media": listed})
