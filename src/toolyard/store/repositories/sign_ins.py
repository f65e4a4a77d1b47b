"""Storage of sign-ins to servers: pending ones, OAuth grants, and client registrations."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar, cast

import orjson
from sqlalchemy import Connection, Table, delete, select, update

from toolyard.auth.storage import OAuthClient, OAuthGrant, PendingSignIn, issuer_digest
from toolyard.store.errors import Unreadable, Unstorable
from toolyard.store.locks import RefreshLocks
from toolyard.store.repositories.rows import batches, delete_all_but_newest, secret_location
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.dialects import upsert
from toolyard.store.sql.executor import DatabaseExecutor, Repository, transaction
from toolyard.store.sql.stored_values import compute_digest
from toolyard.store.sql.tables import auth_bound, auth_clients, auth_documents, auth_grants, auth_pending

__all__ = ["SqlAuthStorage"]

_log = logging.getLogger("toolyard.store.auth")
_R = TypeVar("_R", PendingSignIn, OAuthGrant, OAuthClient)

_PENDING_MAX_AGE_SECONDS = 86_400.0
"""Age after which a pending sign-in is deleted, since the user will not return from it."""
_MAX_PENDING_PER_KEY = 20
"""Maximum number of pending sign-ins of one user to one server; the oldest are deleted."""


class SqlAuthStorage(Repository):
    """AuthStorage in SQL tables. Everything except names and keys is encrypted."""

    def __init__(
        self,
        executor: DatabaseExecutor,
        cipher: Cipher,
        locks: RefreshLocks,
        *,
        max_pending_per_key: int = _MAX_PENDING_PER_KEY,
    ) -> None:
        super().__init__(executor)
        self._max_pending_per_key = max_pending_per_key
        self._cipher = cipher
        self._locks = locks

    # Pending sign-ins.

    @transaction
    def put_pending(self, connection: Connection, pending: PendingSignIn) -> None:
        """Store a pending sign-in, and delete those started more than a day before or beyond a limit."""
        row_digest = compute_digest(pending.state)
        values = {
            "digest": row_digest,
            "key": pending.key,
            "key_digest": compute_digest(pending.key),
            # The browser proves with the state that it started the sign-in. Readers of the database must not
            # learn it, so only its digest is stored.
            "body": self._encrypt_record(auth_pending, row_digest, replace(pending, state="")),
            "began_at": pending.began_at,
        }
        is_old = auth_pending.c.began_at < pending.began_at - _PENDING_MAX_AGE_SECONDS
        connection.execute(delete(auth_pending).where(is_old))
        upsert(connection, auth_pending, values)
        same_key = auth_pending.c.key_digest == values["key_digest"]
        delete_all_but_newest(
            connection, auth_pending, same_key, auth_pending.c.began_at, self._max_pending_per_key
        )

    async def take_pending(self, state: str) -> PendingSignIn | None:
        row_digest = compute_digest(state)
        statement = (
            delete(auth_pending).where(auth_pending.c.digest == row_digest).returning(auth_pending.c.body)
        )
        body = await self._executor.write(lambda connection: connection.execute(statement).scalar())
        if body is None:
            return None
        return replace(self._decrypt_record(PendingSignIn, auth_pending, row_digest, body), state=state)

    # Grants.

    async def get_grant(self, key: str) -> OAuthGrant | None:
        row_digest = compute_digest(key)
        body = await self._read_body(auth_grants, row_digest)
        return None if body is None else self._decrypt_record(OAuthGrant, auth_grants, row_digest, body)

    async def get_grants(self, keys: Sequence[str]) -> Mapping[str, OAuthGrant]:
        keys_by_digest = {compute_digest(key): key for key in keys}
        grants: dict[str, OAuthGrant] = {}
        for batch in batches(list(keys_by_digest)):
            query = select(auth_grants.c.digest, auth_grants.c.body).where(auth_grants.c.digest.in_(batch))
            for digest, body in await self._executor.fetch_rows(query):
                # One damaged grant must not hide the others.
                with suppress(Unreadable):
                    grant = self._decrypt_record(OAuthGrant, auth_grants, digest, body)
                    grants[keys_by_digest[digest]] = grant
        return grants

    async def put_grant(self, key: str, grant: OAuthGrant) -> None:
        values = {"digest": compute_digest(key), "key": key, **self._grant_values(key, grant)}
        await self._put_row(auth_grants, values)

    async def swap_grant(self, key: str, serial: str, grant: OAuthGrant) -> bool:
        is_same_serial = (auth_grants.c.digest == compute_digest(key)) & (auth_grants.c.serial == serial)
        statement = update(auth_grants).where(is_same_serial).values(**self._grant_values(key, grant))
        return await self._executor.execute(statement) > 0

    async def drop_grant(self, key: str) -> None:
        await self._delete_rows(auth_grants, auth_grants.c.digest == compute_digest(key))

    def refresh_lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Return a lock for refreshing a grant. Raises DatabaseUnavailable if it is held for minutes."""
        return self._locks.hold(key)

    # Client registrations.

    async def get_client(self, issuer: str, redirect_uri: str) -> OAuthClient | None:
        """Return a client; None if it is missing or cannot be decrypted, so that it is registered again."""
        row_digest = compute_digest(issuer, redirect_uri)
        body = await self._read_body(auth_clients, row_digest)
        if body is None:
            return None
        try:
            return self._decrypt_record(OAuthClient, auth_clients, row_digest, body)
        except Unreadable:
            _log.warning(
                "the client registration at the authorization server %s (for %s) cannot be decrypted with"
                " this secret key; registering again",
                issuer,
                redirect_uri,
            )
            return None

    async def put_client(self, client: OAuthClient) -> None:
        row_digest = compute_digest(client.issuer, client.redirect_uri)
        values = {
            "digest": row_digest,
            "issuer": client.issuer,
            "redirect_uri": client.redirect_uri,
            "client_id": client.client_id,
            "body": self._encrypt_record(auth_clients, row_digest, client),
        }
        await self._put_row(auth_clients, values)

    async def drop_client(self, client: OAuthClient) -> None:
        row_digest = compute_digest(client.issuer, client.redirect_uri)
        is_same_client = (auth_clients.c.digest == row_digest) & (
            auth_clients.c.client_id == client.client_id
        )
        await self._delete_rows(auth_clients, is_same_client)

    async def publish_document(self, issuer: str) -> None:
        """Store the issuer under its digest."""
        await self._put_row(auth_documents, {"digest": issuer_digest(issuer), "issuer": issuer})

    async def get_document_issuer(self, digest: str) -> str | None:
        """Return the issuer stored under a digest."""
        query = select(auth_documents.c.issuer).where(auth_documents.c.digest == digest)
        return await self._executor.fetch_value(query)

    async def get_bound_issuer(self, server_url: str, client_id: str, *, for_secret: bool) -> str | None:
        for binds_secret in (True,) if for_secret else (True, False):
            row_digest = _binding_digest(server_url, client_id, for_secret=binds_secret)
            query = select(auth_bound.c.issuer).where(auth_bound.c.digest == row_digest)
            issuer: str | None = await self._executor.fetch_value(query)
            if issuer is not None:
                return issuer
        return None

    async def bind_issuer(self, server_url: str, client_id: str, issuer: str, *, for_secret: bool) -> None:
        row_digest = _binding_digest(server_url, client_id, for_secret=for_secret)
        values = {"server_url": server_url, "client_id": client_id, "issuer": issuer}
        await self._put_row(auth_bound, {"digest": row_digest, **values})

    # Rows.

    async def _read_body(self, table: Table, row_digest: str) -> bytes | None:
        query = select(table.c.body).where(table.c.digest == row_digest)
        return await self._executor.fetch_value(query)

    async def _put_row(self, table: Table, values: dict[str, Any]) -> None:
        await self._executor.write(lambda connection: upsert(connection, table, values))

    async def _delete_rows(self, table: Table, condition: Any) -> None:
        await self._executor.execute_by_key(delete(table).where(condition))

    def _grant_values(self, key: str, grant: OAuthGrant) -> dict[str, Any]:
        return {"serial": grant.serial, "body": self._encrypt_record(auth_grants, compute_digest(key), grant)}

    def _encrypt_record(
        self, table: Table, row_digest: str, record: PendingSignIn | OAuthGrant | OAuthClient
    ) -> bytes:
        try:
            body = orjson.dumps(asdict(record), default=sorted)
        except TypeError as error:
            raise Unstorable(f"a sign-in cannot be stored: {error}") from None
        return self._cipher.encrypt(body, secret_location(table.c.body, row_digest))

    def _decrypt_record(self, record_type: type[_R], table: Table, row_digest: str, body: bytes) -> _R:
        decrypted = self._cipher.decrypt(bytes(body), secret_location(table.c.body, row_digest))
        return _record_from_json(record_type, orjson.loads(decrypted))


def _binding_digest(server_url: str, client_id: str, *, for_secret: bool) -> str:
    # A binding of an earlier version counts for the secret.
    return compute_digest(server_url, client_id, *(() if for_secret else ("without secret",)))


def _record_from_json(record_type: type[_R], stored: dict[str, Any]) -> _R:
    """Build a record from JSON, which has neither tuples nor sets.

    Records of an older version may lack fields that have defaults. A newer version running beside this one
    may have written more fields, which are ignored.
    """
    values: dict[str, Any] = {}
    for field in fields(record_type):
        if field.name not in stored:
            continue
        value = stored[field.name]
        if field.name == "client":
            value = _record_from_json(OAuthClient, value)
        elif isinstance(value, list):
            items = cast("list[str]", value)
            value = frozenset(items) if record_type is OAuthClient else tuple(items)
        values[field.name] = value
    return record_type(**values)
