"""What a call came to, as an event: what a page shows at once, and the whole kept aside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import orjson

from toolyard.agents.chat.sanitize import clean
from toolyard.types.chat import Kind, NewEvent
from toolyard.types.result import Media, Result

__all__ = ["SHOWN", "Kept", "failure_event", "read_kept", "result_event"]

SHOWN = 4_000
"""Characters of a result that stand in the event itself."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A result as a model gets it, whole."""

    text: str
    media: tuple[Media, ...] = ()


def result_event(
    call_id: str, result: Result, *, ok: bool, seconds: float, reconnect: str | None = None
) -> NewEvent:
    """The event that stands for a result, in place of the call's progress."""
    text, media = clean(result.text), result.media
    body: dict[str, Any] = {
        "id": call_id,
        "ok": ok,
        "text": text[:SHOWN],
        "length": len(text),
        "cause": None if result.cause is None else clean(result.cause),
        "seconds": round(seconds, 3),
        "media": [{"kind": each.kind, "mime": each.mime, "size": each.size} for each in media],
        "handle": result.handle,
        "reconnect": reconnect,
    }
    kept = _written(text, media) if media or len(text) > SHOWN else b""
    return NewEvent(Kind.RESULT, body, part=call_id, kept=kept)


def failure_event(call_id: str, words: str) -> NewEvent:
    """The result of a call that was not made, or whose outcome nobody knows."""
    return result_event(call_id, Result(None, words, is_error=True), ok=False, seconds=0.0)


def read_kept(body: Mapping[str, Any], kept: bytes | None) -> Kept:
    """The whole result of a RESULT event, from its body and what was kept aside with it, if anything was."""
    if not kept:
        return Kept(str(body.get("text", "")))
    found = cast("dict[str, Any]", orjson.loads(kept))
    return Kept(found["text"], tuple(Media(**each) for each in found["media"]))


def _written(text: str, media: tuple[Media, ...]) -> bytes:
    listed = [{key: value for key, value in asdict(each).items() if value is not None} for each in media]
    return orjson.dumps({"text": text, "media": listed})
