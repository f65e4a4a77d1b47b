"""Servers that an admin entered, and each person's own instances of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from toolyard.types.server import Trust

__all__ = [
    "AuthChoice",
    "AuthKind",
    "Instance",
    "InstanceState",
    "RegistrationMethod",
    "RegistryServer",
    "grant_key",
    "parse_grant_key",
]


_GRANT_KEY_PREFIX = "instance:"


class AuthKind(StrEnum):
    """How a server wants to be told who calls."""

    PUBLIC = "public"
    """It does not ask."""
    HEADER = "header"
    """A value that each user gives, in a header or query parameter that the admin names."""
    OAUTH = "oauth"
    """Each user signs in, by OAuth 2.1."""


class RegistrationMethod(StrEnum):
    """How we get a client id at a server's authorization server."""

    AUTO = "auto"
    """By metadata document or dynamically, whichever the deployment and the server allow."""
    DOCUMENT = "document"
    """Our client id metadata document, or not at all."""
    DYNAMIC = "dynamic"
    """Dynamic registration, or not at all."""
    ENTERED = "entered"
    """The admin registered us there and entered the client id."""


@dataclass(frozen=True, slots=True)
class AuthChoice:
    """One way of signing in that a server offers; a server may have several. ``id`` never changes."""

    id: str
    kind: AuthKind
    label: str = ""
    place: Literal["header", "query"] = "header"
    key: str | None = None
    """The header's or parameter's name, for the kind header."""
    registration: RegistrationMethod = RegistrationMethod.AUTO
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()
    resource: str | None = None
    legacy_discovery: bool = False
    issuer: str | None = None
    """The authorization server at which the admin registered the entered client."""
    issuer_redirect: bool = False
    """Whether the entered client is registered with the redirect address of its issuer alone."""


@dataclass(frozen=True, slots=True)
class RegistryServer:
    """A server of the registry: http or sse only. ``id`` never changes; ``name`` is unique without case."""

    id: str
    name: str
    url: str
    transport: Literal["http", "sse"] = "http"
    trust: Trust = Trust.TRUSTED
    enabled: bool = True
    description: str = ""
    private_addresses: bool = False
    """Whether the operator lets this server, and what it names, be on private addresses."""
    allow_tools: tuple[str, ...] | None = None
    deny_tools: tuple[str, ...] = ()
    choices: tuple[AuthChoice, ...] = ()
    created_at: float = 0.0
    updated_at: float = 0.0

    def choice(self, choice_id: str) -> AuthChoice | None:
        """The auth choice of this id."""
        return next((choice for choice in self.choices if choice.id == choice_id), None)


class InstanceState(StrEnum):
    """What is known about an instance without asking its server. Kept in the database for all replicas."""

    PENDING = "pending"
    """Created; its user has not signed in yet, or not given the value. Stays until its user deletes it."""
    READY = "ready"
    """Can be used as far as we know."""
    NEEDS_REAUTH = "needs_reauth"
    """Its sign-in ended: the user must reconnect."""
    FAILED = "failed"
    """The last connect failed; ``reason`` says why. The next use tries again."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One user's own connection to a registry server. ``slug`` is unique per user without case."""

    id: str
    user_id: str
    server_id: str
    choice_id: str
    slug: str
    name: str
    enabled: bool = True
    tool_filter: tuple[str, ...] | None = None
    """The server's own tool names; None all, () none."""
    value: str | None = field(default=None, repr=False)
    """What the user gave for the kind header."""
    state: InstanceState = InstanceState.PENDING
    reason: str | None = None
    """Why the state is what it is, in one sentence for the user."""
    created_at: float = 0.0
    updated_at: float = 0.0

    @property
    def core_id(self) -> str:
        """The first part of its tools' canonical ids."""
        return f"@{self.user_id}/{self.slug}"

    @property
    def grant_key(self) -> str:
        """The key under which its sign-in is kept."""
        return grant_key(self.id)


def grant_key(instance_id: str) -> str:
    """The key under which an instance's sign-in is kept."""
    return f"{_GRANT_KEY_PREFIX}{instance_id}"


def parse_grant_key(key: str) -> str:
    """The id of the instance whose sign-in is kept under a key."""
    return key.removeprefix(_GRANT_KEY_PREFIX)
