"""A storage that is opened when it is first needed, and whose failures a connection can bear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager

from toolyard.auth.errors import AuthUnavailable
from toolyard.auth.records import Client, Grant, Pending
from toolyard.auth.storage import AuthStorage, MemoryAuthStorage
from toolyard.errors import ServerError, ToolyardError

__all__ = ["LazyAuthStorage"]


class LazyAuthStorage:
    """An AuthStorage behind another one that ``open`` gives; where that gives None there is none yet, it is
    asked again the next time, and until then everything stays in memory.

    Whatever goes wrong with the storage comes out as AuthUnavailable.
    """

    def __init__(self, open: Callable[[], Awaitable[AuthStorage | None]]) -> None:
        self._open = open
        self._opened: AuthStorage | None = None
        self._memory = MemoryAuthStorage()
        self._opening = asyncio.Lock()

    @classmethod
    def over(cls, storage: AuthStorage) -> LazyAuthStorage:
        """One whose storage is open already."""

        async def given() -> AuthStorage:
            return storage

        return cls(given)

    async def put_pending(self, pending: Pending) -> None:
        """See AuthStorage."""
        with _told():
            await (await self._storage()).put_pending(pending)

    async def take_pending(self, state: str) -> Pending | None:
        """See AuthStorage."""
        with _told():
            return await (await self._storage()).take_pending(state)

    async def grant(self, key: str) -> Grant | None:
        """See AuthStorage."""
        with _told():
            return await (await self._storage()).grant(key)

    async def grants(self, keys: Sequence[str]) -> Mapping[str, Grant]:
        """See AuthStorage."""
        with _told():
            return await (await self._storage()).grants(keys)

    async def put_grant(self, key: str, grant: Grant) -> None:
        """See AuthStorage."""
        with _told():
            await (await self._storage()).put_grant(key, grant)

    async def swap_grant(self, key: str, serial: str, grant: Grant) -> bool:
        """See AuthStorage."""
        with _told():
            return await (await self._storage()).swap_grant(key, serial, grant)

    async def drop_grant(self, key: str) -> None:
        """See AuthStorage."""
        with _told():
            await (await self._storage()).drop_grant(key)

    @asynccontextmanager
    async def refreshing(self, key: str) -> AsyncGenerator[None, None]:
        """See AuthStorage."""
        with _told():
            async with (await self._storage()).refreshing(key):
                yield

    async def client(self, issuer: str, redirect_uri: str) -> Client | None:
        """See AuthStorage."""
        with _told():
            return await (await self._storage()).client(issuer, redirect_uri)

    async def put_client(self, client: Client) -> None:
        """See AuthStorage."""
        with _told():
            await (await self._storage()).put_client(client)

    async def drop_client(self, client: Client) -> None:
        """See AuthStorage."""
        with _told():
            await (await self._storage()).drop_client(client)

    async def publish_document(self, issuer: str) -> None:
        """Store the issuer in the underlying storage."""
        with _told():
            await (await self._storage()).publish_document(issuer)

    async def document_issuer(self, digest: str) -> str | None:
        """Read the issuer from the underlying storage."""
        with _told():
            return await (await self._storage()).document_issuer(digest)

    async def bound_issuer(self, server_url: str, client_id: str) -> str | None:
        """See AuthStorage."""
        with _told():
            return await (await self._storage()).bound_issuer(server_url, client_id)

    async def bind(self, server_url: str, client_id: str, issuer: str | None) -> None:
        """See AuthStorage."""
        with _told():
            await (await self._storage()).bind(server_url, client_id, issuer)

    async def _storage(self) -> AuthStorage:
        if self._opened is None:
            async with self._opening:
                if self._opened is None:
                    self._opened = await self._open()
        return self._opened or self._memory


@contextmanager
def _told() -> Generator[None, None, None]:
    try:
        yield
    except ServerError:
        raise
    except ToolyardError as error:
        raise AuthUnavailable(
            f"the stored sign-ins cannot be used: {error.cause}", hint=error.hint
        ) from error
