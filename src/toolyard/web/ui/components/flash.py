"""A message that survives one redirect, in a cookie that lives for a minute."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias, cast

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

__all__ = ["Flash", "FlashKind", "drop_flash", "go", "read_flash"]

FlashKind: TypeAlias = Literal["good", "bad", "note"]

_COOKIE = "toolyard_flash"
_SECONDS = 60
_LONGEST = 1200
"""Characters of a text."""
_COOKIE_SIZE = 3600
"""Bytes. Browsers take no cookie over 4 KB."""


@dataclass(frozen=True, slots=True)
class Flash:
    """What to tell a person on the next page. Never a secret: it goes through the browser."""

    text: str
    kind: FlashKind = "good"
    hint: str | None = None


def go(to: str, say: str | None = None, *, kind: FlashKind = "good", hint: str | None = None) -> Response:
    """Redirect after a form, with a message for the page that comes."""
    response = RedirectResponse(to, status_code=303)
    if say:
        value = _packed(Flash(say, kind, hint or None))
        response.set_cookie(_COOKIE, value, max_age=_SECONDS, path="/", httponly=True, samesite="lax")
    return response


def read_flash(request: Request) -> Flash | None:
    """The message for this page. A cookie that is not ours is none."""
    value = request.cookies.get(_COOKIE)
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
    return Flash(text[:_LONGEST], kind, hint[:_LONGEST] if isinstance(hint, str) else None)


def drop_flash(response: Response) -> None:
    """The message was shown."""
    response.delete_cookie(_COOKIE, path="/", httponly=True, samesite="lax")


def _packed(told: Flash) -> str:
    longest = _LONGEST
    while True:
        cut = Flash(_cut(told.text, longest), told.kind, told.hint and _cut(told.hint, longest // 2))
        body = json.dumps(asdict(cut), ensure_ascii=False).encode("utf-8", "replace")
        value = base64.urlsafe_b64encode(body).decode()
        if len(value) <= _COOKIE_SIZE:
            return value
        longest //= 2


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 2]} …"
