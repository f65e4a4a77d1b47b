"""Storage protocol for sign-ins, and an implementation in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from toolyard.auth.records import OAuthClient, OAuthGrant, PendingSignIn, issuer_digest

__all__ = ["AuthStorage", "MemoryAuthStorage"]


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
        """Return the client registered dynamically at an issuer for this redirect address."""
        ...

    async def put_client(self, client: OAuthClient) -> None:
        """Store a client under its issuer and redirect address."""
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

    async def get_bound_issuer(self, server_url: str, client_id: str) -> str | None:
        """Return the issuer that a server's configured client id is bound to."""
        ...

    async def bind_issuer(self, server_url: str, client_id: str, issuer: str | None) -> None:
        """Bind a server's configured client id to an issuer; None removes the binding."""
        ...


class MemoryAuthStorage:
    """AuthStorage in memory, for one process and one event loop."""

    def __init__(self) -> None:
        self._pending: dict[str, PendingSignIn] = {}
        self._grants: dict[str, OAuthGrant] = {}
        self._clients: dict[tuple[str, str], OAuthClient] = {}
        self._document_issuers: dict[str, str] = {}
        self._bound_issuers: dict[tuple[str, str], str] = {}
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

    async def get_bound_issuer(self, server_url: str, client_id: str) -> str | None:
        return self._bound_issuers.get((server_url, client_id))

    async def bind_issuer(self, server_url: str, client_id: str, issuer: str | None) -> None:
        if issuer is None:
            self._bound_issuers.pop((server_url, client_id), None)
        else:
            self._bound_issuers[server_url, client_id] = issuer
