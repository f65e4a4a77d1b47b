"""Device cookies, which prove that a browser was signed in to an account before.

The cookie grants no access. It only selects a separate counter of failed sign-ins for the browser.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from toolyard.accounts.random_secrets import is_secret, new_secret

__all__ = ["Device", "DeviceCookies"]

_MAX_COOKIE_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True)
class Device:
    """A browser and the user who signed in with it."""

    id: str
    user_id: str


class DeviceCookies:
    """Issues and verifies device cookies, signed with ``key`` (HMAC-SHA256)."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def issue(self, user_id: str) -> str:
        """Return the text of a new cookie, for a browser in which this user has just signed in."""
        body = f"{new_secret()}.{user_id}"
        return f"{self._sign_body(body)}.{body}"

    def read(self, text: str) -> Device | None:
        """Return the device of a cookie, or None if the signature is not valid."""
        if len(text) > _MAX_COOKIE_CHARACTERS:
            return None
        signature, _, body = text.partition(".")
        device_id, _, user_id = body.partition(".")
        if not is_secret(device_id) or not hmac.compare_digest(
            signature.encode("utf-8", "surrogatepass"), self._sign_body(body).encode()
        ):
            return None
        return Device(device_id, user_id)

    def _sign_body(self, body: str) -> str:
        return hmac.new(self._key, body.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
