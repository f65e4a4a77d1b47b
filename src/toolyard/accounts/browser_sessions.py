"""How long a browser stays signed in, and what its owner recognises it by."""

from __future__ import annotations

from dataclasses import replace

from toolyard.accounts.random_secrets import hash_secret
from toolyard.types.account import BrowserSession, User

__all__ = [
    "MAX_SESSION_SECONDS",
    "build_session",
    "derive_session_id",
    "describe_browser",
    "with_extended_expiry",
]

_BROWSER_NAMES = (
    # Most name others too, for the sake of old servers; the first that fits counts.
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
"""Seconds without a visit after which a session ends."""
MAX_SESSION_SECONDS = 90 * _DAY_SECONDS
"""Seconds after which it ends in any case."""


def build_session(text: str, user: User, now: float, network: str, user_agent: str) -> BrowserSession:
    """The session of a cookie's text. Its id tells nothing about the text."""
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
    """Return the id of the session of a cookie's text."""
    return hash_secret(f"session id of {text}")[:16]


def describe_browser(user_agent: str) -> str:
    """Return a name such as "Firefox on Linux" for a User-Agent header; empty if it names no known browser.

    Never text of the header itself, which anybody can write.
    """
    product = next((name for mark, name in _BROWSER_NAMES if mark in user_agent), "")
    system = next((name for mark, name in _SYSTEM_NAMES if mark in user_agent), "")
    return f"{product} on {system}" if product and system else product or system


def with_extended_expiry(session: BrowserSession, now: float) -> BrowserSession:
    """The session with its end moved, at most once a day; the same object where there is nothing to move."""
    end = min(now + _IDLE_TIMEOUT_SECONDS, session.created_at + MAX_SESSION_SECONDS)
    later = end - session.expires_at
    # The last stretch before the cap is shorter than a day, and is taken in one step.
    capped = end < now + _IDLE_TIMEOUT_SECONDS and later > 60
    return replace(session, expires_at=end) if later >= _DAY_SECONDS or capped else session
