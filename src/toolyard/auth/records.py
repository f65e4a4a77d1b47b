"""Stored records of sign-ins: clients, pending sign-ins and grants.

Secrets are excluded from ``repr``. A storage must encrypt these records.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from toolyard.types.clock import is_future

__all__ = [
    "OAuthClient",
    "OAuthGrant",
    "PendingSignIn",
    "TokenAuthMethod",
    "issuer_digest",
    "new_serial",
    "same_issuer",
]


def issuer_digest(issuer: str) -> str:
    """Return a digest of an issuer for use in URL paths: 128 bits, to make collisions infeasible."""
    return sha256(issuer.encode()).hexdigest()[:32]


def new_serial() -> str:
    """Return a random identifier for one version of a grant."""
    return secrets.token_hex(8)


def same_issuer(one: str, other: str) -> bool:
    """Return whether two issuers are identical, apart from a trailing slash after an origin.

    Common servers write an issuer without a path inconsistently, and both spellings are the same URL.
    """
    if one == other:
        return True
    return one.rstrip("/") == other.rstrip("/") and one.count("/") <= 3 and other.count("/") <= 3


TokenAuthMethod = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """A client id, and the only authorization server that it may be sent to."""

    issuer: str
    client_id: str
    redirect_uri: str
    origin: Literal["entered", "document", "dynamic"]
    auth_method: TokenAuthMethod = "none"
    secret: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    """Expiry of the secret, as a Unix time."""
    scopes: frozenset[str] | None = None
    """Registered scopes; some authorization servers refuse to issue others. None: registered without
    scopes."""


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """State of a started sign-in, sufficient to complete it in any process that shares the storage."""

    state: str = field(repr=False)
    verifier: str = field(repr=False)
    key: str
    owner: str
    """The user and browser session, for example, that started the sign-in; only they may complete it."""
    client: OAuthClient
    token_endpoint: str
    iss_promised: bool
    resource: str | None
    scopes: tuple[str, ...]
    server_url: str
    private_addresses: bool | None
    began_at: float


@dataclass(frozen=True, slots=True)
class OAuthGrant:
    """Tokens from a sign-in, and the data needed to refresh them. ``serial`` differs for every version."""

    server_url: str
    """The server that the tokens are for; they are never sent to another origin."""
    issuer: str
    client: OAuthClient
    token_endpoint: str
    resource: str | None
    requested: tuple[str, ...]
    scopes: tuple[str, ...]
    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    issued_at: float
    expires_at: float | None
    """Unix time; None: unknown, the authorization server sent no expiry."""
    serial: str = field(default_factory=new_serial)
    refresh_began_at: float | None = None
    """Unix time at which a refresh began whose answer has not been stored. The refresh token may have been
    replaced by one that was lost."""
    wanted: tuple[str, ...] = ()
    """Scopes that the server has demanded since; granting them needs another sign-in."""

    @property
    def needs_unrequested_scopes(self) -> bool:
        """Whether the server demanded scopes that were never requested, so some of its calls are refused."""
        return not set(self.wanted) <= set(self.requested)

    def is_valid(self, now: float) -> bool:
        """Return whether there is an access token that has not expired."""
        if self.expires_at is None:
            return bool(self.access_token)
        return bool(self.access_token) and now < self.expires_at and not is_future(self.issued_at, now)

    def is_fresh(self, now: float) -> bool:
        """Return whether the access token is valid and not about to expire.

        The margin is 60 seconds, or a fifth of the lifetime if that is shorter.
        """
        if self.expires_at is None:
            return bool(self.access_token)
        margin = min(60.0, max(0.0, self.expires_at - self.issued_at) * 0.2)
        return self.is_valid(now + margin)
