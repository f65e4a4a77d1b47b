"""People as the server knows them: users, the browsers they are signed in with, and their API tokens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from toolyard.types.principal import Principal

__all__ = [
    "ApiToken",
    "BrowserSession",
    "Invite",
    "Notice",
    "NoticeKind",
    "Right",
    "Role",
    "TokenScope",
    "User",
]


class Role(StrEnum):
    """What a person may do."""

    ADMIN = "admin"
    """Changes the registry, sees people and the audit log."""
    USER = "user"
    """Has instances, chats and tokens of their own."""


class Right(StrEnum):
    """What an API token may do, never more than its owner."""

    READ = "read"
    """See servers, instances and tools."""
    CALL = "call"
    """Call tools."""
    APPROVE = "approve"
    """Answer for the owner where a call needs an approval: as an MCP client that is asked, or by the API."""
    MANAGE = "manage"
    """Create, change and delete the owner's instances."""
    ADMIN = "admin"
    """What only admins may do. Worth something only while the owner is one."""


class NoticeKind(StrEnum):
    """An event that a person must learn of."""

    LINK_MADE = "link_made"
    """Somebody made a link with which the password of the account can be set."""
    LINK_USED = "link_used"
    """The password of the account was set with such a link."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message that every page shows to a person until they dismiss it. ``by``: who made the link."""

    kind: NoticeKind
    at: float
    by: str


@dataclass(frozen=True, slots=True)
class User:
    """A person with an account. ``id`` never changes; ``name`` is what others see, unique without case.

    As stored, ``role`` is the one that an admin or a command granted. What it is worth depends on the mode:
    see ``toolyard.accounts.account_status``.
    """

    id: str
    name: str
    role: Role
    created_at: float
    disabled: bool = False
    has_password: bool = False
    subject: str | None = None
    """Who this is at the identity provider, as ``issuer|sub``; only in the mode oidc."""
    last_seen: float | None = None
    verified_email: str | None = None
    """The address that the identity provider verified at the last sign-in, in lower case."""
    notice: Notice | None = None

    @property
    def principal(self) -> Principal:
        """The same person as the call path sees them."""
        return Principal(self.id, self.name, admin=self.role is Role.ADMIN)


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A browser that is signed in. ``id`` is public; the cookie's value is stored as a hash only.

    ``network`` is the block of addresses that it was last used from, ``browser`` a name for people.
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
    """What a token is limited to. None: whatever its owner may use.

    ``servers`` holds server ids and instance slugs, ``tools`` patterns over exposed names, ``agents`` ids.
    """

    rights: frozenset[Right]
    servers: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ApiToken:
    """A token as it is listed. Its text is shown once, when it is made, and stored as a hash only."""

    id: str
    user_id: str
    name: str
    scope: TokenScope
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None


@dataclass(frozen=True, slots=True)
class Invite:
    """A one-time link with which somebody sets a password: the first admin, a new user, a forgotten one.

    ``made_by`` names who made it, for the person whose password it sets.
    """

    user_id: str
    expires_at: float
    made_by: str = ""
