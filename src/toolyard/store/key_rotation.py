"""Another key: all that the former one sealed is sealed anew, some at a time, while everybody works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, and_, select, update

from toolyard.store.errors import Unreadable
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.store.sql.open import CANARY_ID
from toolyard.store.sql.tables import (
    auth_choices,
    auth_clients,
    auth_grants,
    auth_pending,
    instances,
    keys,
    sign_ins,
)

__all__ = ["ENCRYPTED_COLUMNS", "KeyRotation", "KeyRotationResult"]

_BATCH_ROWS = 500

ENCRYPTED_COLUMNS: tuple[tuple[Column[Any], tuple[Column[Any], ...]], ...] = (
    (sign_ins.c.body, (sign_ins.c.digest,)),
    (auth_pending.c.body, (auth_pending.c.digest,)),
    (auth_clients.c.body, (auth_clients.c.digest,)),
    (auth_grants.c.body, (auth_grants.c.digest,)),
    (auth_choices.c.client_secret, (auth_choices.c.server_id, auth_choices.c.id)),
    (instances.c.value, (instances.c.id,)),
)
"""Columns that hold what the cipher sealed, with those that name a row. The place of a value is made of both.
Letters are not among them: they are on their way for seconds."""


@dataclass(frozen=True, slots=True)
class KeyRotationResult:
    """What came of it."""

    reencrypted: int = 0
    """Values that were sealed anew."""
    unreadable: int = 0
    """Values that no key opens; they stay as they are."""


class KeyRotation:
    """Seals everything with the key that is in force."""

    def __init__(self, executor: DatabaseExecutor, cipher: Cipher) -> None:
        self._executor = executor
        self._cipher = cipher

    async def reencrypt_all(self) -> KeyRotationResult:
        """Seal anew all that a former key sealed. It may be broken off and begun again. Raises StoreError."""
        sealed = lost = 0
        for column, named in ENCRYPTED_COLUMNS:
            query = select(*named).where(column.is_not(None)).order_by(*named)
            rows = await self._executor.read(lambda connection, query=query: connection.execute(query).all())
            for start in range(0, len(rows), _BATCH_ROWS):
                some = [tuple(row) for row in rows[start : start + _BATCH_ROWS]]
                anew, unread = await self._executor.write(
                    lambda connection, column=column, named=named, some=some: self._reencrypt_rows(
                        connection, column, named, some
                    )
                )
                sealed, lost = sealed + anew, lost + unread
        # The word by which a wrong key is known comes last: who forgets the former key too early is told.
        await self._executor.write(self._reencrypt_canary)
        return KeyRotationResult(sealed, lost)

    def _reencrypt_rows(
        self,
        connection: Connection,
        column: Column[Any],
        key_columns: Sequence[Column[Any]],
        rows: Sequence[tuple[str, ...]],
    ) -> tuple[int, int]:
        sealed = lost = 0
        for names in rows:
            this = and_(*(each == name for each, name in zip(key_columns, names, strict=True)))
            old = connection.execute(select(column).where(this)).scalar()
            try:
                new = (
                    None
                    if old is None
                    else self._cipher.reencrypt(bytes(old), _associated_data(column, names))
                )
            except Unreadable:
                lost += 1
                continue
            if new is not None:
                # Not what somebody else has put there meanwhile.
                changing = update(column.table).where(this, column == old).values({column.name: new})
                sealed += connection.execute(changing).rowcount
        return sealed, lost

    def _reencrypt_canary(self, connection: Connection) -> None:
        this = keys.c.id == CANARY_ID
        old = connection.execute(select(keys.c.body).where(this)).scalar_one()
        if (new := self._cipher.reencrypt(bytes(old), CANARY_ID)) is not None:
            connection.execute(update(keys).where(this).values(body=new))


def _associated_data(column: Column[Any], key_values: Sequence[str]) -> str:
    return f"{column.table.name}.{column.name}:{':'.join(key_values)}"
