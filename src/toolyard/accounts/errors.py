"""What people can get wrong.

ToolyardError
├── Invalid              a name, a password or a scope that cannot be used; ``problems`` name the fields
├── NameTaken            another user has this name
├── NoSuchUser           there is none of that name
├── SignInRefused        name, password, token or link is not accepted; never says which
│   ├── NotSignedIn      nothing was presented, or nothing that counts any more
│   └── NeverBegun       the answer to a sign-in that nobody began here, or not in this browser
├── TooManySignIns       come back in ``retry_after`` seconds
├── NotAllowed           this person, or this token, may not do that
├── ProviderFailed       the identity provider did not answer, or not as it should
└── StartRefused         the settings about people do not fit together; nothing is served
"""

from __future__ import annotations

from collections.abc import Sequence

from toolyard.errors import Problem, ToolyardError

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
    """What was entered cannot be used. ``problems`` holds all of it."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NameTaken(ToolyardError):
    """Another user has this name."""


class NoSuchUser(ToolyardError):
    """There is no user of that name."""


class SignInRefused(ToolyardError):
    """What was presented is not accepted."""


class NotSignedIn(SignInRefused):
    """Nobody is signed in here, or no longer."""


class NeverBegun(SignInRefused):
    """The answer of an identity provider to a question that we did not ask, or asked another browser."""


class TooManySignIns(ToolyardError):
    """Too many failed attempts."""

    def __init__(self, cause: str, *, retry_after: float, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.retry_after = retry_after


class NotAllowed(ToolyardError):
    """Not with this role, or not with this token."""


class ProviderFailed(ToolyardError):
    """The identity provider cannot be asked, or its answer makes no sense. Trying again may help."""


class StartRefused(ToolyardError):
    """The settings about people do not fit together."""

    exit_code = 2
