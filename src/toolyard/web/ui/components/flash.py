"""A message that survives one redirect, in a cookie that lives for a minute."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias, cast

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

__all__ = ["Flash", "FlashKind", "clear_flash", "read_flash", "redirect_with_message"]

FlashKind: TypeAlias = Literal["good", "bad", "note"]

_COOKIE_NAME = "toolyard_flash"
_COOKIE_LIFETIME_SECONDS = 60
_MAX_TEXT_CHARACTERS = 1200
"""Characters of a text."""
_MAX_COOKIE_BYTES = 3600
"""Bytes. Browsers take no cookie over 4 KB."""


@dataclass(frozen=True, slots=True)
class Flash:
    """What to tell a person on the next page. Never a secret: it goes through the browser."""

    text: str
    kind: FlashKind = "good"
    hint: str | None = None


def redirect_with_message(
    url: str, message: str | None = None, *, kind: FlashKind = "good", hint: str | None = None
) -> Response:
    """Redirect after a form, with a message for the page that comes."""
    response = RedirectResponse(url, status_code=303)
    if message:
        value = _encode_flash(Flash(message, kind, hint or None))
        response.set_cookie(
            _COOKIE_NAME, value, max_age=_COOKIE_LIFETIME_SECONDS, path="/", httponly=True, samesite="lax"
        )
    return response


def read_flash(request: Request) -> Flash | None:
    """The message for this page. A cookie that is not ours is none."""
    value = request.cookies.get(_COOKIE_NAME)
    if not value:
        return None
    try:
        told: object = json.loads(base64.urlsafe_b64decode(value.encode()))
    except (binascii.Error, ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    parts = cast("dict[str, object]", told)
    text, kind, hint = parts.get("text"), parts.get("kind"), parts.get("hint")
    if not isinstance(text, str) or kind not in ("good", "bad", "note"):
        return None
    return Flash(
        text[:_MAX_TEXT_CHARACTERS], kind, hint[:_MAX_TEXT_CHARACTERS] if isinstance(hint, str) else None
    )


def clear_flash(response: Response) -> None:
    """The message was shown."""
    response.delete_cookie(_COOKIE_NAME, path="/", httponly=True, samesite="lax")


def _encode_flash(flash: Flash) -> str:
    longest = _MAX_TEXT_CHARACTERS
    while True:
        cut = Flash(
            _truncate_text(flash.text, longest),
            flash.kind,
            flash.hint and _truncate_text(flash.hint, longest // 2),
        )
        body = json.dumps(asdict(cut), ensure_ascii=False).encode("utf-8", "replace")
        value = base64.urlsafe_b64encode(body).decode()
        if len(value) <= _MAX_COOKIE_BYTES:
            return value
        longest //= 2


def _truncate_text(text: str, max_characters: int) -> str:
    return text if len(text) <= max_characters else f"{text[: max_characters - 2]} …"
