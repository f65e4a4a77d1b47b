"""How long a browser stays signed in."""

from __future__ import annotations

from dataclasses import replace

from toolyard.model.people import Session, User
from toolyard.people.digests import digest

__all__ = ["LONGEST", "new_session", "slid"]

_DAY = 86_400.0
_IDLE = 30 * _DAY
"""Seconds without a visit after which a session ends."""
LONGEST = 90 * _DAY
"""Seconds after which it ends in any case."""


def new_session(text: str, user: User, now: float) -> Session:
    """The session of a cookie's text. Its id tells nothing about the text."""
    return Session(digest(f"session id of {text}")[:16], user.id, now, now + _IDLE)


def slid(session: Session, now: float) -> Session:
    """The session with its end moved, at most once a day; the same object where there is nothing to move."""
    end = min(now + _IDLE, session.created_at + LONGEST)
    later = end - session.expires_at
    # The last stretch before the cap is shorter than a day, and is taken in one step.
    capped = end < now + _IDLE and later > 60
    return replace(session, expires_at=end) if later >= _DAY or capped else session
