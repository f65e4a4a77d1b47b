"""Where sign-ins are kept: what this room needs of a store, and one in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from toolyard.auth.records import OAuthClient, OAuthGrant, PendingSignIn, issuer_digest

__all__ = ["AuthStorage", "MemoryAuthStorage"]


class AuthStorage(Protocol):
    """Keeps pending sign-ins, grants and clients; shared by every replica. Encrypts what it writes down."""

    async def put_pending(self, pending: PendingSignIn) -> None:
        """Keep a sign-in that was begun, under its state."""
        ...

    async def take_pending(self, state: str) -> PendingSignIn | None:
        """Hand it out and delete it in one step: of two who ask, one gets it."""
        ...

    async def grant(self, key: str) -> OAuthGrant | None:
        """What is kept under a key, as it is now."""
        ...

    async def get_grants(self, keys: Sequence[str]) -> Mapping[str, OAuthGrant]:
        """What is kept under many keys; those with nothing, or with what cannot be read, are left out."""
        ...

    async def put_grant(self, key: str, grant: OAuthGrant) -> None:
        """Keep a new sign-in, whatever was there."""
        ...

    async def swap_grant(self, key: str, serial: str, grant: OAuthGrant) -> bool:
        """Replace the grant that has this serial. False: another one is there by now, or none."""
        ...

    async def drop_grant(self, key: str) -> None:
        """Sign out."""
        ...

    def refresh_lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Hold the right to refresh this key, alone among all tasks, processes and replicas."""
        ...

    async def client(self, issuer: str, redirect_uri: str) -> OAuthClient | None:
        """The client that we registered at an issuer for this redirect address."""
        ...

    async def put_client(self, client: OAuthClient) -> None:
        """Keep a client under its issuer and redirect address."""
        ...

    async def drop_client(self, client: OAuthClient) -> None:
        """Forget it, if it is still the one that is kept."""
        ...

    async def publish_document(self, issuer: str) -> None:
        """Serve the client id metadata document of an issuer from now on."""
        ...

    async def get_document_issuer(self, digest: str) -> str | None:
        """Return the issuer of this digest, if its client id metadata document is served."""
        ...

    async def get_bound_issuer(self, server_url: str, client_id: str) -> str | None:
        """The issuer at which a client id that was entered for a server has worked."""
        ...

    async def bind_issuer(self, server_url: str, client_id: str, issuer: str | None) -> None:
        """Remember it; None forgets it."""
        ...


class MemoryAuthStorage:
    """Keeps everything for as long as the process lives, for one event loop."""

    def __init__(self) -> None:
        self._pending: dict[str, PendingSignIn] = {}
        self._grants: dict[str, OAuthGrant] = {}
        self._clients: dict[tuple[str, str], OAuthClient] = {}
        self._document_issuers: dict[str, str] = {}
        self._bound_issuers: dict[tuple[str, str], str] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def put_pending(self, pending: PendingSignIn) -> None:
        """See AuthStorage."""
        self._pending[pending.state] = pending

    async def take_pending(self, state: str) -> PendingSignIn | None:
        """See AuthStorage."""
        return self._pending.pop(state, None)

    async def grant(self, key: str) -> OAuthGrant | None:
        """See AuthStorage."""
        return self._grants.get(key)

    async def get_grants(self, keys: Sequence[str]) -> Mapping[str, OAuthGrant]:
        """See AuthStorage."""
        return {key: self._grants[key] for key in keys if key in self._grants}

    async def put_grant(self, key: str, grant: OAuthGrant) -> None:
        """See AuthStorage."""
        self._grants[key] = grant

    async def swap_grant(self, key: str, serial: str, grant: OAuthGrant) -> bool:
        """See AuthStorage."""
        kept = self._grants.get(key)
        if kept is None or kept.serial != serial:
            return False
        self._grants[key] = grant
        return True

    async def drop_grant(self, key: str) -> None:
        """See AuthStorage."""
        self._grants.pop(key, None)

    @asynccontextmanager
    async def refresh_lock(self, key: str) -> AsyncGenerator[None, None]:
        """See AuthStorage."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            yield

    async def client(self, issuer: str, redirect_uri: str) -> OAuthClient | None:
        """See AuthStorage."""
        return self._clients.get((issuer, redirect_uri))

    async def put_client(self, client: OAuthClient) -> None:
        """See AuthStorage."""
        self._clients[client.issuer, client.redirect_uri] = client

    async def drop_client(self, client: OAuthClient) -> None:
        """See AuthStorage."""
        place = (client.issuer, client.redirect_uri)
        kept = self._clients.get(place)
        if kept is not None and kept.client_id == client.client_id:
            del self._clients[place]

    async def publish_document(self, issuer: str) -> None:
        """Store the issuer under its digest."""
        self._document_issuers[issuer_digest(issuer)] = issuer

    async def get_document_issuer(self, digest: str) -> str | None:
        """Return the issuer stored under a digest."""
        return self._document_issuers.get(digest)

    async def get_bound_issuer(self, server_url: str, client_id: str) -> str | None:
        """See AuthStorage."""
        return self._bound_issuers.get((server_url, client_id))

    async def bind_issuer(self, server_url: str, client_id: str, issuer: str | None) -> None:
        """See AuthStorage."""
        if issuer is None:
            self._bound_issuers.pop((server_url, client_id), None)
        else:
            self._bound_issuers[server_url, client_id] = issuer
