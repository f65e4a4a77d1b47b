"""Sign-ins to servers: those that were begun, what they gave, and who we are to authorization servers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar, cast

import orjson
from sqlalchemy import Connection, Table, delete, select, update

from toolyard.auth.records import OAuthClient, OAuthGrant, PendingSignIn, issuer_digest
from toolyard.store.errors import Unreadable, Unstorable
from toolyard.store.locks.refresh_locks import RefreshLocks
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.dialects import build_insert
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.store.sql.row_digests import compute_digest
from toolyard.store.sql.tables import auth_bound, auth_clients, auth_documents, auth_grants, auth_pending

__all__ = ["SqlAuthStorage"]

_log = logging.getLogger("toolyard.store.auth")
_R = TypeVar("_R", PendingSignIn, OAuthGrant, OAuthClient)

_PENDING_MAX_AGE_SECONDS = 86_400.0
"""Seconds after which nobody comes back from an authorization server."""
_MAX_KEYS_PER_QUERY = 500


class SqlAuthStorage:
    """An AuthStorage. Everything but names and keys is encrypted."""

    def __init__(self, executor: DatabaseExecutor, cipher: Cipher, locks: RefreshLocks) -> None:
        self._executor = executor
        self._cipher = cipher
        self._locks = locks

    # Sign-ins that were begun.

    async def put_pending(self, pending: PendingSignIn) -> None:
        """See AuthStorage. Forgets those that were begun more than a day before."""
        at = compute_digest(pending.state)
        values = {
            "key": pending.key,
            "key_digest": compute_digest(pending.key),
            # The state is what the browser brings back; whoever reads the database must not learn it.
            "body": self._encrypt_record(auth_pending, at, replace(pending, state="")),
            "began_at": pending.began_at,
        }

        def work(connection: Connection) -> None:
            old = auth_pending.c.began_at < pending.began_at - _PENDING_MAX_AGE_SECONDS
            connection.execute(delete(auth_pending).where(old))
            _upsert_row(connection, auth_pending, at, values)

        await self._executor.write(work)

    async def take_pending(self, state: str) -> PendingSignIn | None:
        """See AuthStorage."""
        at = compute_digest(state)
        taking = delete(auth_pending).where(auth_pending.c.digest == at).returning(auth_pending.c.body)
        body = await self._executor.write(lambda connection: connection.execute(taking).scalar())
        if body is None:
            return None
        return _record_from_json(
            PendingSignIn, {**self._decrypt_record(auth_pending, at, body), "state": state}
        )

    # Grants.

    async def grant(self, key: str) -> OAuthGrant | None:
        """See AuthStorage."""
        at = compute_digest(key)
        body = await self._read_body(auth_grants, at)
        return (
            None
            if body is None
            else _record_from_json(OAuthGrant, self._decrypt_record(auth_grants, at, body))
        )

    async def get_grants(self, keys: Sequence[str]) -> Mapping[str, OAuthGrant]:
        """See AuthStorage."""
        bodies: dict[str, bytes] = {}
        for start in range(0, len(keys), _MAX_KEYS_PER_QUERY):
            some = [compute_digest(key) for key in keys[start : start + _MAX_KEYS_PER_QUERY]]
            query = select(auth_grants.c.digest, auth_grants.c.body).where(auth_grants.c.digest.in_(some))
            rows = await self._executor.read(lambda connection, query=query: connection.execute(query).all())
            bodies |= {row.digest: row.body for row in rows}
        found: dict[str, OAuthGrant] = {}
        for key in keys:
            if (body := bodies.get(compute_digest(key))) is not None:
                with suppress(Unreadable):
                    found[key] = _record_from_json(
                        OAuthGrant, self._decrypt_record(auth_grants, compute_digest(key), body)
                    )
        return found

    async def put_grant(self, key: str, grant: OAuthGrant) -> None:
        """See AuthStorage."""
        values = {"key": key, **self._grant_values(key, grant)}
        await self._executor.write(
            lambda connection: _upsert_row(connection, auth_grants, compute_digest(key), values)
        )

    async def swap_grant(self, key: str, serial: str, grant: OAuthGrant) -> bool:
        """See AuthStorage."""
        same = (auth_grants.c.digest == compute_digest(key)) & (auth_grants.c.serial == serial)
        swapping = update(auth_grants).where(same).values(**self._grant_values(key, grant))
        return await self._executor.write(lambda connection: connection.execute(swapping).rowcount) > 0

    async def drop_grant(self, key: str) -> None:
        """See AuthStorage."""
        await self._delete_rows(auth_grants, auth_grants.c.digest == compute_digest(key))

    def refresh_lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """See AuthStorage. Raises DatabaseUnavailable where another process holds it for minutes."""
        return self._locks.hold(key)

    # Clients.

    async def client(self, issuer: str, redirect_uri: str) -> OAuthClient | None:
        """See AuthStorage. One that cannot be read is not there: another is registered in its place."""
        at = compute_digest(issuer, redirect_uri)
        body = await self._read_body(auth_clients, at)
        if body is None:
            return None
        try:
            return _record_from_json(OAuthClient, self._decrypt_record(auth_clients, at, body))
        except Unreadable:
            _log.warning(
                "who we are to the authorization server %s (for %s) cannot be read with this secret key: we"
                " register there anew",
                issuer,
                redirect_uri,
            )
            return None

    async def put_client(self, client: OAuthClient) -> None:
        """See AuthStorage."""
        at = compute_digest(client.issuer, client.redirect_uri)
        values = {
            "issuer": client.issuer,
            "redirect_uri": client.redirect_uri,
            "client_id": client.client_id,
            "body": self._encrypt_record(auth_clients, at, client),
        }
        await self._executor.write(lambda connection: _upsert_row(connection, auth_clients, at, values))

    async def drop_client(self, client: OAuthClient) -> None:
        """See AuthStorage."""
        at = compute_digest(client.issuer, client.redirect_uri)
        same = (auth_clients.c.digest == at) & (auth_clients.c.client_id == client.client_id)
        await self._delete_rows(auth_clients, same)

    async def publish_document(self, issuer: str) -> None:
        """Store the issuer under its digest."""
        values = {"issuer": issuer}
        at = issuer_digest(issuer)
        await self._executor.write(lambda connection: _upsert_row(connection, auth_documents, at, values))

    async def get_document_issuer(self, digest: str) -> str | None:
        """Return the issuer stored under a digest."""
        query = select(auth_documents.c.issuer).where(auth_documents.c.digest == digest)
        return await self._executor.read(lambda connection: connection.execute(query).scalar())

    async def get_bound_issuer(self, server_url: str, client_id: str) -> str | None:
        """See AuthStorage."""
        query = select(auth_bound.c.issuer).where(
            auth_bound.c.digest == compute_digest(server_url, client_id)
        )
        return await self._executor.read(lambda connection: connection.execute(query).scalar())

    async def bind_issuer(self, server_url: str, client_id: str, issuer: str | None) -> None:
        """See AuthStorage."""
        at = compute_digest(server_url, client_id)
        if issuer is None:
            await self._delete_rows(auth_bound, auth_bound.c.digest == at)
            return
        values = {"server_url": server_url, "client_id": client_id, "issuer": issuer}
        await self._executor.write(lambda connection: _upsert_row(connection, auth_bound, at, values))

    # Rows.

    async def _read_body(self, table: Table, row_digest: str) -> bytes | None:
        query = select(table.c.body).where(table.c.digest == row_digest)
        return await self._executor.read(lambda connection: connection.execute(query).scalar())

    async def _delete_rows(self, table: Table, condition: Any) -> None:
        await self._executor.change(
            lambda connection: connection.execute(delete(table).where(condition)), None
        )

    def _grant_values(self, key: str, grant: OAuthGrant) -> dict[str, Any]:
        return {"serial": grant.serial, "body": self._encrypt_record(auth_grants, compute_digest(key), grant)}

    def _encrypt_record(
        self, table: Table, row_digest: str, record: PendingSignIn | OAuthGrant | OAuthClient
    ) -> bytes:
        try:
            body = orjson.dumps(asdict(record), default=sorted)
        except TypeError as error:
            raise Unstorable(f"a sign-in cannot be stored: {error}") from None
        return self._cipher.encrypt(body, _associated_data(table, row_digest))

    def _decrypt_record(self, table: Table, row_digest: str, body: bytes) -> dict[str, Any]:
        return orjson.loads(self._cipher.decrypt(bytes(body), _associated_data(table, row_digest)))


def _upsert_row(connection: Connection, table: Table, row_digest: str, values: dict[str, Any]) -> None:
    putting = build_insert(connection, table).values(digest=row_digest, **values)
    connection.execute(putting.on_conflict_do_update(index_elements=["digest"], set_=values))


def _associated_data(table: Table, row_digest: str) -> str:
    return f"{table.name}.body:{row_digest}"


def _record_from_json(record_type: type[_R], stored: dict[str, Any]) -> _R:
    """From JSON, which has neither tuples nor sets. What an older version wrote may lack fields that have
    defaults; a newer one, running beside us, may have written more."""
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
