"""Registry servers, entered by admins, and the instances that users connect to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from toolyard.types.server import Trust, UrlTransportName

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
    """Way in which a server authenticates users."""

    PUBLIC = "public"
    """No authentication."""
    HEADER = "header"
    """API key: each user enters a value, sent in a header or query parameter chosen by the admin."""
    OAUTH = "oauth"
    """Each user signs in with OAuth 2.1."""


class RegistrationMethod(StrEnum):
    """Way to obtain a client id at a server's authorization server."""

    AUTO = "auto"
    """Client id metadata document or dynamic registration, whichever deployment and server support."""
    DOCUMENT = "document"
    """Client id metadata document only."""
    DYNAMIC = "dynamic"
    """Dynamic client registration only."""
    ENTERED = "entered"
    """The admin registered a client there and entered its client id."""


@dataclass(frozen=True, slots=True)
class AuthChoice:
    """One authentication method of a server; a server may have several. ``id`` never changes."""

    id: str
    kind: AuthKind
    label: str = ""
    place: Literal["header", "query"] = "header"
    key: str | None = None
    """Name of the header or query parameter, for the kind header."""
    registration: RegistrationMethod = RegistrationMethod.AUTO
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()
    resource: str | None = None
    legacy_discovery: bool = False
    issuer: str | None = None
    """Authorization server at which the admin registered the entered client."""
    issuer_redirect: bool = False
    """Whether the entered client is registered with the issuer-specific redirect URI only."""


@dataclass(frozen=True, slots=True)
class RegistryServer:
    """A server of the registry, http or sse only.

    ``id`` never changes; ``name`` is unique regardless of case.
    """

    id: str
    name: str
    url: str
    transport: UrlTransportName = "http"
    trust: Trust = Trust.TRUSTED
    enabled: bool = True
    description: str = ""
    private_addresses: bool = False
    """Whether this server, and the URLs in its metadata, may be on private network addresses."""
    allow_tools: tuple[str, ...] | None = None
    deny_tools: tuple[str, ...] = ()
    choices: tuple[AuthChoice, ...] = ()
    created_at: float = 0.0
    updated_at: float = 0.0

    def find_choice(self, choice_id: str) -> AuthChoice | None:
        """Return the authentication method with this id, or None."""
        return next((choice for choice in self.choices if choice.id == choice_id), None)


class InstanceState(StrEnum):
    """Last known state of an instance, stored in the database for all replicas."""

    PENDING = "pending"
    """Created; its user has not signed in or entered the key yet. Remains until the user deletes it."""
    READY = "ready"
    """Usable as of the last attempt."""
    NEEDS_REAUTH = "needs_reauth"
    """The sign-in ended; the user must reconnect."""
    FAILED = "failed"
    """The last attempt to connect failed; ``reason`` is the cause. The next use tries again."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A user's connection to a registry server. ``slug`` is unique per user, regardless of case."""

    id: str
    user_id: str
    server_id: str
    choice_id: str
    slug: str
    name: str
    enabled: bool = True
    tool_filter: tuple[str, ...] | None = None
    """Enabled tools, by the server's own names. None: all; empty: none."""
    value: str | None = field(default=None, repr=False)
    """Key entered by the user, for the kind header."""
    state: InstanceState = InstanceState.PENDING
    reason: str | None = None
    """Explanation of the state for the user, one sentence."""
    created_at: float = 0.0
    updated_at: float = 0.0

    @property
    def core_id(self) -> str:
        """Id of the instance's server, the first part of the canonical ids of its tools."""
        return f"@{self.user_id}/{self.slug}"

    @property
    def grant_key(self) -> str:
        """Key under which its OAuth tokens are stored."""
        return grant_key(self.id)


def grant_key(instance_id: str) -> str:
    """Return the key under which the OAuth tokens of an instance are stored."""
    return f"{_GRANT_KEY_PREFIX}{instance_id}"


def parse_grant_key(key: str) -> str:
    """Return the id of the instance to which a key of stored OAuth tokens belongs."""
    return key.removeprefix(_GRANT_KEY_PREFIX)
