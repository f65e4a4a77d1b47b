"""Lifetime and description of browser sessions, and the device cookies of known browsers.

A device cookie proves that a browser was signed in to an account before. It grants no access; it only selects
a separate counter of failed sign-ins for the browser.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, replace

from toolyard.accounts.random_secrets import hash_secret, is_secret, new_secret
from toolyard.types.account import BrowserSession, User

__all__ = [
    "MAX_SESSION_SECONDS",
    "Device",
    "DeviceCookies",
    "build_session",
    "derive_session_id",
    "describe_browser",
    "with_extended_expiry",
]


_BROWSER_NAMES = (
    # Most browsers also name others, for compatibility; the first match counts.
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
)
_SYSTEM_NAMES = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)
_DAY_SECONDS = 86_400.0
_IDLE_TIMEOUT_SECONDS = 30 * _DAY_SECONDS
"""Inactivity after which a session ends."""
MAX_SESSION_SECONDS = 90 * _DAY_SECONDS
"""Maximum lifetime of a session, regardless of activity."""


def build_session(text: str, user: User, now: float, network: str, user_agent: str) -> BrowserSession:
    """Return a new session for a cookie's text. The text cannot be derived from the session's id."""
    return BrowserSession(
        derive_session_id(text),
        user.id,
        now,
        now + _IDLE_TIMEOUT_SECONDS,
        last_seen=now,
        network=network,
        browser=describe_browser(user_agent),
    )


def derive_session_id(text: str) -> str:
    """Return the session id that belongs to a cookie's text."""
    return hash_secret(f"session id of {text}")[:16]


def describe_browser(user_agent: str) -> str:
    """Return a name such as "Firefox on Linux" for a User-Agent header; empty if it is not recognised.

    The result never contains text of the header, which a client can set to anything.
    """
    product = next((name for mark, name in _BROWSER_NAMES if mark in user_agent), "")
    system = next((name for mark, name in _SYSTEM_NAMES if mark in user_agent), "")
    return f"{product} on {system}" if product and system else product or system


def with_extended_expiry(session: BrowserSession, now: float) -> BrowserSession:
    """Return the session with a later expiry, or the same object if the change would be less than a day.

    This limits writes to the storage to about one per session and day.
    """
    end = min(now + _IDLE_TIMEOUT_SECONDS, session.created_at + MAX_SESSION_SECONDS)
    extension = end - session.expires_at
    # The last extension before the maximum lifetime is shorter than a day.
    reaches_maximum = end < now + _IDLE_TIMEOUT_SECONDS and extension > 60
    return replace(session, expires_at=end) if extension >= _DAY_SECONDS or reaches_maximum else session


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
