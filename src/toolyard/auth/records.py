"""What is kept about sign-ins. Secrets never show in a repr; whoever stores these encrypts them."""

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
    """Return the name of an issuer in paths: 128 bits, so that nobody finds two issuers that share one."""
    return sha256(issuer.encode()).hexdigest()[:32]


def new_serial() -> str:
    """A name for one state of a grant."""
    return secrets.token_hex(8)


def same_issuer(one: str, other: str) -> bool:
    """Compare two issuers. They must be identical, except that an origin may have a slash at its end or not:
    common servers write the one in one place and the other in another, and both are the same URL."""
    if one == other:
        return True
    return one.rstrip("/") == other.rstrip("/") and one.count("/") <= 3 and other.count("/") <= 3


TokenAuthMethod = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """A client id, and the one authorization server that it may be shown to."""

    issuer: str
    client_id: str
    redirect_uri: str
    origin: Literal["entered", "document", "dynamic"]
    auth_method: TokenAuthMethod = "none"
    secret: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    """When the secret runs out."""
    scopes: frozenset[str] | None = None
    """What it was registered for: some authorization servers let a client ask for nothing else. None: for
    no scopes in particular."""


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """A sign-in that was begun: everything that its second half needs, in whichever process that happens."""

    state: str = field(repr=False)
    verifier: str = field(repr=False)
    key: str
    owner: str
    """Who began it, e.g. user and browser session. Only the same may finish it."""
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
    """What a sign-in gave us, and what its refresh needs. ``serial`` is another one after every change."""

    server_url: str
    """Whose tokens these are; they are never sent to another origin."""
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
    """Absolute; None: the authorization server did not say."""
    serial: str = field(default_factory=new_serial)
    wanted: tuple[str, ...] = ()
    """Scopes that the server asked for since, for which somebody must sign in again."""

    @property
    def lacks_scopes(self) -> bool:
        """Whether the server wanted scopes that nobody has asked for yet: some of what it offers is refused,
        however well the rest works."""
        return not set(self.wanted) <= set(self.requested)

    def is_valid(self, now: float) -> bool:
        """Whether the access token has not run out."""
        if self.expires_at is None:
            return bool(self.access_token)
        return bool(self.access_token) and now < self.expires_at and not is_future(self.issued_at, now)

    def is_fresh(self, now: float) -> bool:
        """Whether it is not about to run out either: a minute, or a fifth of a short life."""
        if self.expires_at is None:
            return bool(self.access_token)
        margin = min(60.0, max(0.0, self.expires_at - self.issued_at) * 0.2)
        return self.is_valid(now + margin)
