"""AuthStorage that opens its backend on first use and reports its failures as AuthUnavailable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager

from toolyard.auth.errors import AuthUnavailable
from toolyard.auth.records import OAuthClient, OAuthGrant, PendingSignIn
from toolyard.auth.storage import AuthStorage, MemoryAuthStorage
from toolyard.errors import ServerError, ToolyardError

__all__ = ["LazyAuthStorage"]


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

    # Methods of AuthStorage.

    async def put_pending(self, pending: PendingSignIn) -> None:
        with _translate_storage_errors():
            await (await self._get_storage()).put_pending(pending)

    async def take_pending(self, state: str) -> PendingSignIn | None:
        with _translate_storage_errors():
            return await (await self._get_storage()).take_pending(state)

    async def get_grant(self, key: str) -> OAuthGrant | None:
        with _translate_storage_errors():
            return await (await self._get_storage()).get_grant(key)

    async def get_grants(self, keys: Sequence[str]) -> Mapping[str, OAuthGrant]:
        with _translate_storage_errors():
            return await (await self._get_storage()).get_grants(keys)

    async def put_grant(self, key: str, grant: OAuthGrant) -> None:
        with _translate_storage_errors():
            await (await self._get_storage()).put_grant(key, grant)

    async def swap_grant(self, key: str, serial: str, grant: OAuthGrant) -> bool:
        with _translate_storage_errors():
            return await (await self._get_storage()).swap_grant(key, serial, grant)

    async def drop_grant(self, key: str) -> None:
        with _translate_storage_errors():
            await (await self._get_storage()).drop_grant(key)

    @asynccontextmanager
    async def refresh_lock(self, key: str) -> AsyncGenerator[None, None]:
        with _translate_storage_errors():
            async with (await self._get_storage()).refresh_lock(key):
                yield

    async def get_client(self, issuer: str, redirect_uri: str) -> OAuthClient | None:
        with _translate_storage_errors():
            return await (await self._get_storage()).get_client(issuer, redirect_uri)

    async def put_client(self, client: OAuthClient) -> None:
        with _translate_storage_errors():
            await (await self._get_storage()).put_client(client)

    async def drop_client(self, client: OAuthClient) -> None:
        with _translate_storage_errors():
            await (await self._get_storage()).drop_client(client)

    async def publish_document(self, issuer: str) -> None:
        with _translate_storage_errors():
            await (await self._get_storage()).publish_document(issuer)

    async def get_document_issuer(self, digest: str) -> str | None:
        with _translate_storage_errors():
            return await (await self._get_storage()).get_document_issuer(digest)

    async def get_bound_issuer(self, server_url: str, client_id: str) -> str | None:
        with _translate_storage_errors():
            return await (await self._get_storage()).get_bound_issuer(server_url, client_id)

    async def bind_issuer(self, server_url: str, client_id: str, issuer: str | None) -> None:
        with _translate_storage_errors():
            await (await self._get_storage()).bind_issuer(server_url, client_id, issuer)

    async def _get_storage(self) -> AuthStorage:
        if self._opened_storage is None:
            async with self._open_lock:
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
