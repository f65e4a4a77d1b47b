"""Sign-ins to servers: those that were begun, what they gave, and who we are to authorization servers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar, cast

import orjson
from sqlalchemy import Connection, Table, delete, select, update

from toolyard.auth.records import Client, Grant, Pending, issuer_digest
from toolyard.store.errors import Unreadable, Unstorable
from toolyard.store.locks.refresh_locks import Locks
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.dialects import insert
from toolyard.store.sql.executor import Workshop
from toolyard.store.sql.row_digests import digest
from toolyard.store.sql.tables import auth_bound, auth_clients, auth_documents, auth_grants, auth_pending

__all__ = ["SqlAuthStorage"]

_log = logging.getLogger("toolyard.store.auth")
_R = TypeVar("_R", Pending, Grant, Client)

_FORGOTTEN_AFTER = 86_400.0
"""Seconds after which nobody comes back from an authorization server."""
_AT_ONCE = 500


class SqlAuthStorage:
    """An AuthStorage. Everything but names and keys is encrypted."""

    def __init__(self, workshop: Workshop, cipher: Cipher, locks: Locks) -> None:
        self._workshop = workshop
        self._cipher = cipher
        self._locks = locks

    # Sign-ins that were begun.

    async def put_pending(self, pending: Pending) -> None:
        """See AuthStorage. Forgets those that were begun more than a day before."""
        at = digest(pending.state)
        values = {
            "key": pending.key,
            "key_digest": digest(pending.key),
            # The state is what the browser brings back; whoever reads the database must not learn it.
            "body": self._sealed(auth_pending, at, replace(pending, state="")),
            "began_at": pending.began_at,
        }

        def work(connection: Connection) -> None:
            old = auth_pending.c.began_at < pending.began_at - _FORGOTTEN_AFTER
            connection.execute(delete(auth_pending).where(old))
            _put(connection, auth_pending, at, values)

        await self._workshop.write(work)

    async def take_pending(self, state: str) -> Pending | None:
        """See AuthStorage."""
        at = digest(state)
        taking = delete(auth_pending).where(auth_pending.c.digest == at).returning(auth_pending.c.body)
        body = await self._workshop.write(lambda connection: connection.execute(taking).scalar())
        if body is None:
            return None
        return _record(Pending, {**self._opened(auth_pending, at, body), "state": state})

    # Grants.

    async def grant(self, key: str) -> Grant | None:
        """See AuthStorage."""
        at = digest(key)
        body = await self._body(auth_grants, at)
        return None if body is None else _record(Grant, self._opened(auth_grants, at, body))

    async def grants(self, keys: Sequence[str]) -> Mapping[str, Grant]:
        """See AuthStorage."""
        bodies: dict[str, bytes] = {}
        for start in range(0, len(keys), _AT_ONCE):
            some = [digest(key) for key in keys[start : start + _AT_ONCE]]
            query = select(auth_grants.c.digest, auth_grants.c.body).where(auth_grants.c.digest.in_(some))
            rows = await self._workshop.read(lambda connection, query=query: connection.execute(query).all())
            bodies |= {row.digest: row.body for row in rows}
        found: dict[str, Grant] = {}
        for key in keys:
            if (body := bodies.get(digest(key))) is not None:
                with suppress(Unreadable):
                    found[key] = _record(Grant, self._opened(auth_grants, digest(key), body))
        return found

    async def put_grant(self, key: str, grant: Grant) -> None:
        """See AuthStorage."""
        values = {"key": key, **self._grant_values(key, grant)}
        await self._workshop.write(lambda connection: _put(connection, auth_grants, digest(key), values))

    async def swap_grant(self, key: str, serial: str, grant: Grant) -> bool:
        """See AuthStorage."""
        same = (auth_grants.c.digest == digest(key)) & (auth_grants.c.serial == serial)
        swapping = update(auth_grants).where(same).values(**self._grant_values(key, grant))
        return await self._workshop.write(lambda connection: connection.execute(swapping).rowcount) > 0

    async def drop_grant(self, key: str) -> None:
        """See AuthStorage."""
        await self._drop(auth_grants, auth_grants.c.digest == digest(key))

    def refreshing(self, key: str) -> AbstractAsyncContextManager[None]:
        """See AuthStorage. Raises DatabaseUnavailable where another process holds it for minutes."""
        return self._locks.holding(key)

    # Clients.

    async def client(self, issuer: str, redirect_uri: str) -> Client | None:
        """See AuthStorage. One that cannot be read is not there: another is registered in its place."""
        at = digest(issuer, redirect_uri)
        body = await self._body(auth_clients, at)
        if body is None:
            return None
        try:
            return _record(Client, self._opened(auth_clients, at, body))
        except Unreadable:
            _log.warning(
                "who we are to the authorization server %s (for %s) cannot be read with this secret key: we"
                " register there anew",
                issuer,
                redirect_uri,
            )
            return None

    async def put_client(self, client: Client) -> None:
        """See AuthStorage."""
        at = digest(client.issuer, client.redirect_uri)
        values = {
            "issuer": client.issuer,
            "redirect_uri": client.redirect_uri,
            "client_id": client.client_id,
            "body": self._sealed(auth_clients, at, client),
        }
        await self._workshop.write(lambda connection: _put(connection, auth_clients, at, values))

    async def drop_client(self, client: Client) -> None:
        """See AuthStorage."""
        at = digest(client.issuer, client.redirect_uri)
        same = (auth_clients.c.digest == at) & (auth_clients.c.client_id == client.client_id)
        await self._drop(auth_clients, same)

    async def publish_document(self, issuer: str) -> None:
        """Store the issuer under its digest."""
        values = {"issuer": issuer}
        at = issuer_digest(issuer)
        await self._workshop.write(lambda connection: _put(connection, auth_documents, at, values))

    async def document_issuer(self, digest: str) -> str | None:
        """Return the issuer stored under a digest."""
        query = select(auth_documents.c.issuer).where(auth_documents.c.digest == digest)
        return await self._workshop.read(lambda connection: connection.execute(query).scalar())

    async def bound_issuer(self, server_url: str, client_id: str) -> str | None:
        """See AuthStorage."""
        query = select(auth_bound.c.issuer).where(auth_bound.c.digest == digest(server_url, client_id))
        return await self._workshop.read(lambda connection: connection.execute(query).scalar())

    async def bind(self, server_url: str, client_id: str, issuer: str | None) -> None:
        """See AuthStorage."""
        at = digest(server_url, client_id)
        if issuer is None:
            await self._drop(auth_bound, auth_bound.c.digest == at)
            return
        values = {"server_url": server_url, "client_id": client_id, "issuer": issuer}
        await self._workshop.write(lambda connection: _put(connection, auth_bound, at, values))

    # Rows.

    async def _body(self, table: Table, at: str) -> bytes | None:
        query = select(table.c.body).where(table.c.digest == at)
        return await self._workshop.read(lambda connection: connection.execute(query).scalar())

    async def _drop(self, table: Table, condition: Any) -> None:
        await self._workshop.change(
            lambda connection: connection.execute(delete(table).where(condition)), None
        )

    def _grant_values(self, key: str, grant: Grant) -> dict[str, Any]:
        return {"serial": grant.serial, "body": self._sealed(auth_grants, digest(key), grant)}

    def _sealed(self, table: Table, at: str, record: Pending | Grant | Client) -> bytes:
        try:
            body = orjson.dumps(asdict(record), default=sorted)
        except TypeError as error:
            raise Unstorable(f"a sign-in cannot be stored: {error}") from None
        return self._cipher.seal(body, _place(table, at))

    def _opened(self, table: Table, at: str, body: bytes) -> dict[str, Any]:
        return orjson.loads(self._cipher.open(bytes(body), _place(table, at)))


def _put(connection: Connection, table: Table, at: str, values: dict[str, Any]) -> None:
    putting = insert(connection, table).values(digest=at, **values)
    connection.execute(putting.on_conflict_do_update(index_elements=["digest"], set_=values))


def _place(table: Table, at: str) -> str:
    return f"{table.name}.body:{at}"


def _record(kind: type[_R], found: dict[str, Any]) -> _R:
    """From JSON, which has neither tuples nor sets. What an older version wrote may lack fields that have
    defaults; a newer one, running beside us, may have written more."""
    values: dict[str, Any] = {}
    for field in fields(kind):
        if field.name not in found:
            continue
        value = found[field.name]
        if field.name == "client":
            value = _record(Client, value)
        elif isinstance(value, list):
            items = cast("list[str]", value)
            value = frozenset(items) if kind is Client else tuple(items)
        values[field.name] = value
    return kind(**values)
