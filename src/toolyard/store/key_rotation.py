"""Change of the secret key: re-encrypt all values in batches, while servers keep running."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, Table, and_, select, update

from toolyard.store.change_feed.signals import KEY_CHANNEL, Signals
from toolyard.store.errors import Unreadable
from toolyard.store.repositories.rows import secret_location
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.dialects import upsert
from toolyard.store.sql.executor import DatabaseExecutor, Repository, transaction
from toolyard.store.sql.open import CANARY_ID, RETIRED_CANARY_ID
from toolyard.store.sql.tables import (
    auth_choices,
    auth_clients,
    auth_grants,
    auth_pending,
    instances,
    keys,
    models,
    sign_ins,
)
from toolyard.types.registry import AuthChoice, Instance, record_fields
from toolyard.types.stored_model import StoredModel

__all__ = ["ENCRYPTED_COLUMNS", "KeyRotation", "KeyRotationResult"]

_BATCH_ROWS = 500


def _list_secret_columns(
    record: type[Any], table: Table
) -> list[tuple[Column[Any], tuple[Column[Any], ...]]]:
    keys = tuple(table.primary_key)
    return [(table.c[each.name], keys) for each in record_fields(record) if each.spec.secret]


ENCRYPTED_COLUMNS: tuple[tuple[Column[Any], tuple[Column[Any], ...]], ...] = (
    (sign_ins.c.body, (sign_ins.c.digest,)),
    (auth_pending.c.body, (auth_pending.c.digest,)),
    (auth_clients.c.body, (auth_clients.c.digest,)),
    (auth_grants.c.body, (auth_grants.c.digest,)),
    *_list_secret_columns(AuthChoice, auth_choices),
    *_list_secret_columns(Instance, instances),
    *_list_secret_columns(StoredModel, models),
)
"""Encrypted columns, each with the key columns of its table. Their names and values form the associated data.
Messages between replicas are not included, since they last for seconds."""


@dataclass(frozen=True, slots=True)
class KeyRotationResult:
    """Outcome of a key rotation."""

    reencrypted: int = 0
    """Number of values encrypted with the new key."""
    unreadable: int = 0
    """Number of values that neither key can decrypt; they stay unchanged."""


class KeyRotation(Repository):
    """Re-encrypts stored values with the current key."""

    def __init__(self, executor: DatabaseExecutor, cipher: Cipher, signals: Signals) -> None:
        super().__init__(executor)
        self._cipher = cipher
        self._signals = signals

    async def reencrypt_all(self) -> KeyRotationResult:
        """Encrypt all values of the former key with the current one. Raises StoreError.

        It may be interrupted and repeated: processes that have both keys can read old and new values.
        """
        first = await self._reencrypt_columns()
        # The canary comes after the values. After an interrupted rotation it still needs the former key, so a
        # server that starts without that key reports WrongKey instead of failing on single values.
        await self._reencrypt_canary()
        # Processes without the new key stop encrypting now. Values that they stored meanwhile follow.
        second = await self._reencrypt_columns()
        # Both passes have counted the unreadable values.
        return KeyRotationResult(first.reencrypted + second.reencrypted, second.unreadable)

    async def _reencrypt_columns(self) -> KeyRotationResult:
        reencrypted = unreadable = 0
        for column, key_columns in ENCRYPTED_COLUMNS:
            query = select(*key_columns).where(column.is_not(None)).order_by(*key_columns)
            rows = await self._executor.fetch_rows(query)
            for start in range(0, len(rows), _BATCH_ROWS):
                row_keys = [tuple(row) for row in rows[start : start + _BATCH_ROWS]]
                batch_reencrypted, batch_unreadable = await self._reencrypt_rows(
                    column, key_columns, row_keys
                )
                reencrypted, unreadable = reencrypted + batch_reencrypted, unreadable + batch_unreadable
        return KeyRotationResult(reencrypted, unreadable)

    @transaction
    def _reencrypt_rows(
        self,
        connection: Connection,
        column: Column[Any],
        key_columns: Sequence[Column[Any]],
        rows: Sequence[tuple[str, ...]],
    ) -> tuple[int, int]:
        reencrypted = unreadable = 0
        for key_values in rows:
            same_row = and_(
                *(
                    key_column == key_value
                    for key_column, key_value in zip(key_columns, key_values, strict=True)
                )
            )
            old = connection.execute(select(column).where(same_row)).scalar()
            try:
                new = (
                    None
                    if old is None
                    else self._cipher.reencrypt(bytes(old), secret_location(column, *key_values))
                )
            except Unreadable:
                unreadable += 1
                continue
            if new is not None:
                # Compare with the old value, so that a concurrent change is not overwritten.
                statement = update(column.table).where(same_row, column == old).values({column.name: new})
                reencrypted += connection.execute(statement).rowcount
        return reencrypted, unreadable

    @transaction
    def _reencrypt_canary(self, connection: Connection) -> None:
        is_canary = keys.c.id == CANARY_ID
        old = connection.execute(select(keys.c.body).where(is_canary)).scalar_one()
        if (new := self._cipher.reencrypt(bytes(old), CANARY_ID)) is not None:
            connection.execute(update(keys).where(is_canary).values(body=new))
            upsert(connection, keys, {"id": RETIRED_CANARY_ID, "body": old}, key=("id",))
        self._signals.notify(connection, KEY_CHANNEL, "")
