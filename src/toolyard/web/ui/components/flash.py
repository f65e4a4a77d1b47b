"""Flash messages: shown once after a redirect, and stored in a cookie for at most a minute."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias, cast

from fastapi import Request, Response
from starlette.responses import RedirectResponse

__all__ = ["Flash", "FlashKind", "clear_flash", "read_flash", "redirect_with_message"]

FlashKind: TypeAlias = Literal["good", "bad", "note"]

_COOKIE_NAME = "toolyard_flash"
_COOKIE_LIFETIME_SECONDS = 60
_MAX_TEXT_CHARACTERS = 1200
"""Maximum length of a message in the cookie."""
_MAX_COOKIE_BYTES = 3600
"""Maximum size of the cookie value. Browsers reject cookies over 4 KB."""


@dataclass(frozen=True, slots=True)
class Flash:
    """Message for the next page. It must not contain secrets, because it is stored in the browser."""

    text: str
    kind: FlashKind = "good"
    hint: str | None = None


def redirect_with_message(
    url: str, message: str | None = None, *, kind: FlashKind = "good", hint: str | None = None
) -> Response:
    """Return a redirect (303) after a form, with a message for the next page."""
    response = RedirectResponse(url, status_code=303)
    if message:
        value = _encode_flash(Flash(message, kind, hint or None))
        response.set_cookie(
            _COOKIE_NAME, value, max_age=_COOKIE_LIFETIME_SECONDS, path="/", httponly=True, samesite="lax"
        )
    return response


def read_flash(request: Request) -> Flash | None:
    """Return the message for this page. None without a cookie, or if its value is not valid."""
    value = request.cookies.get(_COOKIE_NAME)
    if not value:
        return None
    try:
        decoded: object = json.loads(base64.urlsafe_b64decode(value.encode()))
    # The cookie comes from the browser and may hold anything, including deeply nested JSON.
    except (binascii.Error, ValueError, RecursionError):
        return None
    if not isinstance(decoded, dict):
        return None
    parts = cast("dict[str, object]", decoded)
    text, kind, hint = parts.get("text"), parts.get("kind"), parts.get("hint")
    # The kind becomes a CSS class, so that only known ones are accepted.
    if not isinstance(text, str) or kind not in ("good", "bad", "note"):
        return None
    return Flash(
        text[:_MAX_TEXT_CHARACTERS], kind, hint[:_MAX_TEXT_CHARACTERS] if isinstance(hint, str) else None
    )


def clear_flash(response: Response) -> None:
    """Delete the cookie after the message was shown."""
    response.delete_cookie(_COOKIE_NAME, path="/", httponly=True, samesite="lax")


def _encode_flash(flash: Flash) -> str:
    # Characters take up to four bytes and base64 a third more: shorten the text until the cookie fits.
    max_characters = _MAX_TEXT_CHARACTERS
    while True:
        cut = Flash(
            _truncate_text(flash.text, max_characters),
            flash.kind,
            flash.hint and _truncate_text(flash.hint, max_characters // 2),
        )
        body = json.dumps(asdict(cut), ensure_ascii=False).encode("utf-8", "replace")
        value = base64.urlsafe_b64encode(body).decode()
        if len(value) <= _MAX_COOKIE_BYTES:
            return value
        max_characters //= 2


def _truncate_text(text: str, max_characters: int) -> str:
    return text if len(text) <= max_characters else f"{text[: max_characters - 2]} …"
