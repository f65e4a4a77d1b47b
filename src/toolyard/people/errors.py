"""What people can get wrong.

ToolyardError
├── NameTaken            another user has this name
├── SignInRefused        name, password, token or link is not accepted; never says which
├── TooManySignIns       come back in ``retry_after`` seconds
└── NotAllowed           this person, or this token, may not do that
"""

from __future__ import annotations

from toolyard.errors import ToolyardError

__all__ = ["NameTaken", "NotAllowed", "SignInRefused", "TooManySignIns"]


class NameTaken(ToolyardError):
    """Another user has this name."""


class SignInRefused(ToolyardError):
    """What was presented is not accepted."""


class TooManySignIns(ToolyardError):
    """Too many failed attempts."""

    def __init__(self, cause: str, *, retry_after: float, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.retry_after = retry_after


class NotAllowed(ToolyardError):
    """Not with this role, or not with this token."""
