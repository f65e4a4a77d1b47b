"""Principals, and user accounts with their browser sessions, API tokens, invite links and notices."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Protocol

__all__ = [
    "LOCAL_OWNER_ID",
    "LOCAL_PRINCIPAL",
    "AccountNotice",
    "AccountNoticeKind",
    "ApiToken",
    "AttemptCount",
    "BrowserSession",
    "Invite",
    "Principal",
    "RequestBrowser",
    "RequestUser",
    "Right",
    "Role",
    "TokenScope",
    "User",
]


@dataclass(frozen=True, slots=True)
class Principal:
    """The user on whose behalf tools are called. Connection pools, caches and records are keyed by ``id``."""

    id: str
    name: str = ""
    admin: bool = False


LOCAL_PRINCIPAL = Principal("local", name="local user", admin=True)
LOCAL_OWNER_ID = LOCAL_PRINCIPAL.id
"""The only user of the library, of the command line and of authentication mode ``none``."""


class Role(StrEnum):
    """Role of a user."""

    ADMIN = "admin"
    """May change the registry and see users and the audit log."""
    USER = "user"
    """May have instances, chats and API tokens."""


class Right(StrEnum):
    """Right of an API token. A token never has more rights than its owner."""

    READ = "read"
    """See servers, instances and tools."""
    CALL = "call"
    """Call tools."""
    APPROVE = "approve"
    """Approve calls on the owner's behalf, as an MCP client that receives the question or through the API."""
    MANAGE = "manage"
    """Create, change and delete the owner's instances."""
    ADMIN = "admin"
    """Administer. Effective only while the owner is an admin."""


class AccountNoticeKind(StrEnum):
    """Security-relevant event about which a user is notified."""

    LINK_MADE = "link_made"
    """A link was created that allows setting the password of the account."""
    LINK_USED = "link_used"
    """The password of the account was set through such a link."""


@dataclass(frozen=True, slots=True)
class AccountNotice:
    """Message shown on every page until the user dismisses it. ``by`` is the creator of the link."""

    kind: AccountNoticeKind
    at: float
    by: str


@dataclass(frozen=True, slots=True)
class User:
    """A user account. ``id`` never changes; ``name`` is the display name, unique regardless of case.

    The stored ``role`` is the one granted by an admin or a command. ``toolyard.accounts.effective_role``
    computes the effective role, which depends on the authentication mode.
    """

    id: str
    name: str
    role: Role
    created_at: float
    disabled: bool = False
    has_password: bool = False
    subject: str | None = None
    """Identity at the identity provider, as ``issuer|sub``; only in oidc mode."""
    last_seen: float | None = None
    verified_email: str | None = None
    """Email address verified by the identity provider at the last sign-in, in lower case."""
    notice: AccountNotice | None = None
    client_seen_at: float | None = None
    """Time at which an MCP client of this user first used the gateway."""
    first_steps_hidden_at: float | None = None
    """Time since which the home page no longer shows the first steps: all are done, or the user hid them."""

    @property
    def principal(self) -> Principal:
        """The principal under which this user calls tools."""
        return Principal(self.id, self.name, admin=self.role is Role.ADMIN)


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A signed-in browser. ``id`` is public; the value of the cookie is stored only as a hash.

    ``network`` is the address block of the last use, ``browser`` a display name such as "Firefox on Linux".
    """

    id: str
    user_id: str
    created_at: float
    expires_at: float
    last_seen: float | None = None
    network: str = ""
    browser: str = ""


@dataclass(frozen=True, slots=True)
class TokenScope:
    """Limits of an API token. A field that is None sets no limit beyond the owner's own.

    ``servers`` contains globs over server ids and instance slugs, ``tools`` patterns over exposed names,
    ``agents`` globs over agent ids.
    """

    rights: frozenset[Right]
    servers: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ApiToken:
    """API token without its secret. The secret is shown once, at creation, and stored only as a hash."""

    id: str
    user_id: str
    name: str
    scope: TokenScope
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None


@dataclass(frozen=True, slots=True)
class Invite:
    """One-time link to set a password, for the first admin, a new user, or after a forgotten password.

    ``made_by`` is the name of its creator, shown to the owner of the account.
    """

    user_id: str
    expires_at: float
    made_by: str = ""


class RequestBrowser(Protocol):
    """The browser that a request came from."""

    @property
    def id(self) -> str: ...
    @property
    def csrf(self) -> str: ...
    def is_valid_csrf(self, csrf: str, /) -> bool: ...


@dataclass(frozen=True)
class RequestUser:
    """The authenticated user of a request.

    ``scope`` holds the limits of an API token; None for a browser or the local user. ``browser`` is the
    browser that a sign-in is bound to; None for tokens and programs without a cookie. ``signed_in`` is True
    for a session, which can be ended.
    """

    user: User
    scope: TokenScope | None = None
    address: str = ""
    browser: RequestBrowser | None = None
    signed_in: bool = False

    @property
    def browser_id(self) -> str:
        """Identifier of the browser; empty without one."""
        return "" if self.browser is None else self.browser.id

    @property
    def csrf(self) -> str:
        """CSRF token for the forms of a page; empty without a browser."""
        return "" if self.browser is None else self.browser.csrf

    @cached_property
    def principal(self) -> Principal:
        """The user as a principal of the core."""
        return Principal(self.user.id, self.user.name, admin=self.is_admin)

    @cached_property
    def is_admin(self) -> bool:
        """True for admins; with a token, only if the token has the right ``admin``."""
        return self.user.role is Role.ADMIN and self.has_right(Right.ADMIN)

    @property
    def is_local(self) -> bool:
        """True for the only user of the mode none."""
        return self.user.id == LOCAL_PRINCIPAL.id

    def has_right(self, right: Right) -> bool:
        """Return True if the token has the right, or if no token is used."""
        return self.scope is None or right in self.scope.rights


@dataclass(frozen=True, slots=True)
class AttemptCount:
    """Number of attempts in a period, and the time of the last one; 0 if there is none."""

    count: int
    latest: float
