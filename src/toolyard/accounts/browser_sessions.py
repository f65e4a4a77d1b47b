"""How long a browser stays signed in, and what its owner recognises it by."""

from __future__ import annotations

from dataclasses import replace

from toolyard.accounts.random_secrets import digest
from toolyard.types.account import Session, User

__all__ = ["LONGEST", "browser_name", "new_session", "session_id", "slid"]

_BROWSERS = (
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
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)
_DAY = 86_400.0
_IDLE = 30 * _DAY
"""Seconds without a visit after which a session ends."""
LONGEST = 90 * _DAY
"""Seconds after which it ends in any case."""


def new_session(text: str, user: User, now: float, network: str, user_agent: str) -> Session:
    """The session of a cookie's text. Its id tells nothing about the text."""
    return Session(
        session_id(text),
        user.id,
        now,
        now + _IDLE,
        last_seen=now,
        network=network,
        browser=browser_name(user_agent),
    )


def session_id(text: str) -> str:
    """Return the id of the session of a cookie's text."""
    return digest(f"session id of {text}")[:16]


def browser_name(user_agent: str) -> str:
    """Return a name such as "Firefox on Linux" for a User-Agent header; empty if it names no known browser.

    Never text of the header itself, which anybody can write.
    """
    product = next((name for mark, name in _BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    return f"{product} on {system}" if product and system else product or system


def slid(session: Session, now: float) -> Session:
    """The session with its end moved, at most once a day; the same object where there is nothing to move."""
    end = min(now + _IDLE, session.created_at + LONGEST)
    later = end - session.expires_at
    # The last stretch before the cap is shorter than a day, and is taken in one step.
    capped = end < now + _IDLE and later > 60
    return replace(session, expires_at=end) if later >= _DAY or capped else session
