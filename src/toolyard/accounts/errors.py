"""Errors of accounts and sign-in.

ToolyardError
├── Invalid              an invalid name, password or scope; ``problems`` name the fields
├── NameTaken            another user has this name (``toolyard.errors``)
├── NoSuchUser           there is no user with this name
├── SignInRefused        name, password, token or link is not accepted; the message does not tell which
│   ├── NotSignedIn      credentials are missing or no longer valid
│   └── NeverBegun       a provider's response without a matching sign-in in this browser
├── TooManySignIns       rate limit; retry in ``retry_after`` seconds
├── NotAllowed           the user or token lacks the permission
├── ProviderFailed       the identity provider is unreachable or sent an invalid response
└── StartRefused         the settings for accounts are inconsistent or unsafe; nothing is served
"""

from __future__ import annotations

from collections.abc import Sequence

from toolyard.errors import NameTaken, Problem, ToolyardError

__all__ = [
    "Invalid",
    "NameTaken",
    "NeverBegun",
    "NoSuchUser",
    "NotAllowed",
    "NotSignedIn",
    "ProviderFailed",
    "SignInRefused",
    "StartRefused",
    "TooManySignIns",
]


class Invalid(ToolyardError):
    """The input is invalid. ``problems`` lists every problem."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NoSuchUser(ToolyardError):
    """No user has this name."""


class SignInRefused(ToolyardError):
    """The presented credentials are not accepted."""


class NotSignedIn(SignInRefused):
    """The request has no credentials, or they are no longer valid."""


class NeverBegun(SignInRefused):
    """An identity provider's response to a sign-in that was not started here, or in another browser."""


class TooManySignIns(ToolyardError):
    """Too many sign-in attempts; try again in ``retry_after`` seconds."""

    def __init__(self, cause: str, *, retry_after: float, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.retry_after = retry_after


class NotAllowed(ToolyardError):
    """The role or the token does not allow this."""


class ProviderFailed(ToolyardError):
    """The identity provider is unreachable or sent an invalid response. A retry may succeed."""


class StartRefused(ToolyardError):
    """The settings for accounts are inconsistent or unsafe."""

    exit_code = 2
