"""Stored records of sign-ins (clients, pending sign-ins and grants), their storage protocol, and two
implementations: in memory, and opened on first use.

Secrets are excluded from ``repr``. A storage must encrypt these records.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from toolyard.auth.errors import AuthUnavailable
from toolyard.errors import ServerError, ToolyardError
from toolyard.types.timestamps import is_future

if TYPE_CHECKING:
    from types import CoroutineType

__all__ = [
    "AuthStorage",
    "LazyAuthStorage",
    "MemoryAuthStorage",
    "OAuthClient",
    "OAuthGrant",
    "PendingSignIn",
    "TokenAuthMethod",
    "issuer_digest",
    "new_serial",
    "same_issuer",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")


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


class AuthStorage(Protocol):
    """Storage of pending sign-ins, grants and clients, shared by all replicas. Data at rest is encrypted."""

    async def put_pending(self, pending: PendingSignIn) -> None:
        """Store a started sign-in under its state."""
        ...

    async def take_pending(self, state: str) -> PendingSignIn | None:
        """Return a pending sign-in and delete it atomically, so that only one caller gets it."""
        ...

    async def get_grant(self, key: str) -> OAuthGrant | None:
        """Return the current grant of a key."""
        ...

    async def get_grants(self, keys: Sequence[str]) -> Mapping[str, OAuthGrant]:
        """Return the grants of several keys. Missing and unreadable grants are omitted."""
        ...

    async def put_grant(self, key: str, grant: OAuthGrant) -> None:
        """Store a grant, replacing any other."""
        ...

    async def swap_grant(self, key: str, serial: str, grant: OAuthGrant) -> bool:
        """Replace the grant if it still has this serial, and return whether it was replaced."""
        ...

    async def drop_grant(self, key: str) -> None:
        """Delete the grant of a key."""
        ...

    def refresh_lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Return a lock that only one task among all processes and replicas can hold per key."""
        ...

    async def get_client(self, issuer: str, redirect_uri: str) -> OAuthClient | None:
        """Return the client registered dynamically at an issuer for this redirect URI."""
        ...

    async def put_client(self, client: OAuthClient) -> None:
        """Store a client under its issuer and redirect URI."""
        ...

    async def drop_client(self, client: OAuthClient) -> None:
        """Delete a client if it is still the stored one."""
        ...

    async def publish_document(self, issuer: str) -> None:
        """Serve the client id metadata document of an issuer from now on."""
        ...

    async def get_document_issuer(self, digest: str) -> str | None:
        """Return the issuer with this digest if its client id metadata document is served."""
        ...

    async def get_bound_issuer(self, server_url: str, client_id: str, *, for_secret: bool) -> str | None:
        """Return the issuer that a server's configured client id is bound to.

        With ``for_secret``, only an issuer that was bound so, which may receive the client secret.
        """
        ...

    async def bind_issuer(self, server_url: str, client_id: str, issuer: str, *, for_secret: bool) -> None:
        """Bind a server's configured client id to an issuer, and its secret too with ``for_secret``."""
        ...


class MemoryAuthStorage:
    """AuthStorage in memory, for one process and one event loop."""

    def __init__(self) -> None:
        self._pending: dict[str, PendingSignIn] = {}
        self._grants: dict[str, OAuthGrant] = {}
        self._clients: dict[tuple[str, str], OAuthClient] = {}
        self._document_issuers: dict[str, str] = {}
        self._bound_issuers: dict[tuple[str, str, bool], str] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def put_pending(self, pending: PendingSignIn) -> None:
        self._pending[pending.state] = pending

    async def take_pending(self, state: str) -> PendingSignIn | None:
        return self._pending.pop(state, None)

    async def get_grant(self, key: str) -> OAuthGrant | None:
        return self._grants.get(key)

    async def get_grants(self, keys: Sequence[str]) -> Mapping[str, OAuthGrant]:
        return {key: self._grants[key] for key in keys if key in self._grants}

    async def put_grant(self, key: str, grant: OAuthGrant) -> None:
        self._grants[key] = grant

    async def swap_grant(self, key: str, serial: str, grant: OAuthGrant) -> bool:
        stored = self._grants.get(key)
        if stored is None or stored.serial != serial:
            return False
        self._grants[key] = grant
        return True

    async def drop_grant(self, key: str) -> None:
        self._grants.pop(key, None)

    @asynccontextmanager
    async def refresh_lock(self, key: str) -> AsyncGenerator[None, None]:
        async with self._locks.setdefault(key, asyncio.Lock()):
            yield

    async def get_client(self, issuer: str, redirect_uri: str) -> OAuthClient | None:
        return self._clients.get((issuer, redirect_uri))

    async def put_client(self, client: OAuthClient) -> None:
        self._clients[client.issuer, client.redirect_uri] = client

    async def drop_client(self, client: OAuthClient) -> None:
        client_key = (client.issuer, client.redirect_uri)
        stored = self._clients.get(client_key)
        if stored is not None and stored.client_id == client.client_id:
            del self._clients[client_key]

    async def publish_document(self, issuer: str) -> None:
        self._document_issuers[issuer_digest(issuer)] = issuer

    async def get_document_issuer(self, digest: str) -> str | None:
        return self._document_issuers.get(digest)

    async def get_bound_issuer(self, server_url: str, client_id: str, *, for_secret: bool) -> str | None:
        issuer = self._bound_issuers.get((server_url, client_id, True))
        return issuer if issuer or for_secret else self._bound_issuers.get((server_url, client_id, False))

    async def bind_issuer(self, server_url: str, client_id: str, issuer: str, *, for_secret: bool) -> None:
        self._bound_issuers[server_url, client_id, for_secret] = issuer


def _delegate(
    operation: Callable[Concatenate[AuthStorage, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[LazyAuthStorage, _P], CoroutineType[Any, Any, _T]]:
    """Return a method that runs an operation on the storage of a LazyAuthStorage."""

    @wraps(operation)
    async def run(self: LazyAuthStorage, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with _translate_storage_errors():
            storage = await self.get_storage()
            return await getattr(storage, operation.__name__)(*args, **kwargs)

    return run


class LazyAuthStorage:
    """AuthStorage that delegates to the storage returned by ``open_storage``.

    As long as ``open_storage`` returns None, data is held in memory, and every operation tries to open it
    again. Errors of the storage are raised as AuthUnavailable, which connections can handle.
    """

    def __init__(self, open_storage: Callable[[], Awaitable[AuthStorage | None]]) -> None:
        self._open_storage = open_storage
        self._opened_storage: AuthStorage | None = None
        self._memory_storage = MemoryAuthStorage()
        self._open_lock = asyncio.Lock()

    @classmethod
    def wrap(cls, storage: AuthStorage) -> LazyAuthStorage:
        """Return an instance for a storage that is open already."""

        async def return_storage() -> AuthStorage:
            return storage

        return cls(return_storage)

    put_pending = _delegate(AuthStorage.put_pending)
    take_pending = _delegate(AuthStorage.take_pending)
    get_grant = _delegate(AuthStorage.get_grant)
    get_grants = _delegate(AuthStorage.get_grants)
    put_grant = _delegate(AuthStorage.put_grant)
    swap_grant = _delegate(AuthStorage.swap_grant)
    drop_grant = _delegate(AuthStorage.drop_grant)
    get_client = _delegate(AuthStorage.get_client)
    put_client = _delegate(AuthStorage.put_client)
    drop_client = _delegate(AuthStorage.drop_client)
    publish_document = _delegate(AuthStorage.publish_document)
    get_document_issuer = _delegate(AuthStorage.get_document_issuer)
    get_bound_issuer = _delegate(AuthStorage.get_bound_issuer)
    bind_issuer = _delegate(AuthStorage.bind_issuer)

    @asynccontextmanager
    async def refresh_lock(self, key: str) -> AsyncGenerator[None, None]:
        with _translate_storage_errors():
            async with (await self.get_storage()).refresh_lock(key):
                yield

    async def get_storage(self) -> AuthStorage:
        """Return the storage for the next operation."""
        if self._opened_storage is None:
            async with self._open_lock:
                # Asked again under the lock: another caller may have opened it meanwhile.
                if self._opened_storage is None:
                    self._opened_storage = await self._open_storage()
        return self._opened_storage or self._memory_storage


@contextmanager
def _translate_storage_errors() -> Generator[None, None, None]:
    try:
        yield
    except ServerError:
        raise
    except ToolyardError as error:
        raise AuthUnavailable(
            f"the stored sign-ins cannot be used: {error.cause}", hint=error.hint
        ) from error
