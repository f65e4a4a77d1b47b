"""Storage of attachments of chat messages, in chunks, so that every replica can read them.

An attachment belongs to its owner until it is sent, and to the chat afterwards, with which it is deleted. One
that is not sent expires, whether its upload was completed or not.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, select, update

from toolyard.errors import AttachmentRefused, ChatQuotaExceeded
from toolyard.store.sql.executor import DatabaseExecutor, Repository, transaction
from toolyard.store.sql.stored_values import MAX_INDEXED_CHARACTERS, clean_text
from toolyard.store.sql.tables import attachment_chunks, attachments
from toolyard.types.chat import ATTACHMENT_ID_PREFIX, Attachment

__all__ = ["AttachmentLimits", "SqlAttachmentStore", "StoredAttachment"]

_UNSENT_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class AttachmentLimits:
    """Limits on attachments. Of bytes, 0 means no limit."""

    file_bytes: int = 10_000_000
    per_message: int = 20
    bytes: int = 0
    """Bytes of one user."""
    bytes_in_all: int = 0
    """Bytes of all users."""
    unsent: int = 200
    """Unsent attachments of a user; a further one replaces the oldest. Messages limit the sent ones."""


@dataclass(frozen=True, slots=True)
class StoredAttachment:
    """An attachment and the chat that it was sent in; None if it was not sent yet."""

    attachment: Attachment
    chat_id: str | None


class SqlAttachmentStore(Repository):
    """Attachments of all users. Methods that take an owner ignore the attachments of other users."""

    def __init__(self, executor: DatabaseExecutor, clock: Callable[[], float]) -> None:
        super().__init__(executor)
        self.limits = AttachmentLimits()
        self._clock = clock

    # Uploads.

    @transaction
    def begin(
        self,
        connection: Connection,
        owner: str,
        name: str,
        origin: str = "",
        server: str = "",
        *,
        size: int = 0,
    ) -> str:
        """Begin an upload and return the id of the attachment. Raises ChatQuotaExceeded.

        ``size`` counts for the quota at once, so that uploads at the same time do not refuse each other.
        """
        id, now = f"{ATTACHMENT_ID_PREFIX}{secrets.token_hex(12)}", self._clock()
        values = {"id": id, "owner": owner, "name": name, "size": size, "expires_at": now + _UNSENT_SECONDS}
        values |= {"origin": origin, "server": clean_text(server, MAX_INDEXED_CHARACTERS)}
        connection.execute(delete(attachments).where(attachments.c.expires_at <= now))
        excess = _select_excess_ids(owner, self.limits.unsent)
        connection.execute(delete(attachments).where(attachments.c.id.in_(excess)))
        self._check_quota(connection, owner, size or 1)
        connection.execute(attachments.insert().values(**values))
        return id

    @transaction
    def add_chunk(
        self,
        connection: Connection,
        owner: str,
        id: str,
        number: int,
        body: bytes,
        *,
        growth: int | None = None,
    ) -> None:
        """Store the next chunk of an upload. Raises ChatQuotaExceeded, or AttachmentRefused if the upload was
        removed meanwhile.

        ``growth`` is the part of it that the size given at the beginning does not contain; None: all of it.
        """
        is_open = _owner_condition(owner, [id]) & attachments.c.mime.is_(None)
        growth = len(body) if growth is None else growth
        grow = update(attachments).where(is_open).values(size=attachments.c.size + growth)
        chunk = attachment_chunks.insert().values(attachment_id=id, number=number, body=body)
        if not connection.execute(grow).rowcount:
            raise AttachmentRefused("the upload is no longer available", hint="attach the file again")
        self._check_quota(connection, owner, 0)
        connection.execute(chunk)

    async def complete(self, owner: str, id: str, mime: str, size: int) -> None:
        """Mark an upload as complete."""
        statement = update(attachments).where(_owner_condition(owner, [id])).values(mime=mime, size=size)
        await self._executor.execute(statement)

    def _check_quota(self, connection: Connection, owner: str, more_bytes: int) -> None:
        limits, total = self.limits, select(func.coalesce(func.sum(attachments.c.size), 0))
        if limits.bytes:
            used = connection.execute(total.where(attachments.c.owner == owner)).scalar_one()
            if used + more_bytes > limits.bytes:
                raise ChatQuotaExceeded(
                    f"your attachments would exceed the limit of {limits.bytes:,} bytes",
                    hint="delete chats with attachments, or ask an admin to raise attachment_bytes_limit",
                )
        if limits.bytes_in_all:
            used = connection.execute(total).scalar_one()
            if used + more_bytes > limits.bytes_in_all:
                raise ChatQuotaExceeded(
                    "the storage for the attachments of all users is used up",
                    hint="ask an admin to delete chats, or to raise attachment_bytes_limit_all",
                )

    # Reading.

    async def find(self, owner: str, ids: Sequence[str]) -> Mapping[str, StoredAttachment]:
        """Return the complete attachments with these ids. Unknown ids, and those of others, are left out."""
        found = await self._select_complete(_owner_condition(owner, ids))
        return {each.attachment.id: each for each in found}

    async def list_sent(self, owner: str, chat_id: str) -> Sequence[Attachment]:
        """Return the attachments of a chat, by name."""
        condition = (attachments.c.owner == owner) & (attachments.c.chat_id == chat_id)
        return [each.attachment for each in await self._select_complete(condition)]

    async def _select_complete(self, condition: ColumnElement[bool]) -> Sequence[StoredAttachment]:
        query = select(attachments).where(condition, attachments.c.mime.is_not(None))
        query = query.order_by(attachments.c.name, attachments.c.id)
        return await self._executor.fetch_all(query, _attachment_from_row)

    async def read_chunks(self, id: str) -> AsyncGenerator[bytes]:
        """Yield the content of an attachment that ``find`` returned, until its end or its deletion."""
        number = 0
        while (chunk := await self._read_chunk(id, number)) is not None:
            yield chunk
            number += 1

    async def _read_chunk(self, id: str, number: int) -> bytes | None:
        is_chunk = (attachment_chunks.c.attachment_id == id) & (attachment_chunks.c.number == number)
        query = select(attachment_chunks.c.body).where(is_chunk)
        body = await self._executor.fetch_value(query)
        return None if body is None else bytes(body)

    async def load(self, id: str) -> bytes:
        """Return the whole content of an attachment that ``find`` returned."""
        return b"".join([chunk async for chunk in self.read_chunks(id)])

    # Sending and deletion.

    @transaction
    def bind(self, connection: Connection, owner: str, ids: Sequence[str], chat_id: str) -> None:
        """Make unsent attachments part of a chat. Raises AttachmentRefused if one was removed or sent in the
        meantime."""
        is_unsent = _owner_condition(owner, ids) & attachments.c.chat_id.is_(None)
        statement = update(attachments).where(is_unsent).values(chat_id=chat_id, expires_at=None)
        if connection.execute(statement).rowcount != len(ids):
            raise AttachmentRefused("an attachment is no longer available", hint="attach the file again")

    async def unbind(self, owner: str, ids: Sequence[str]) -> None:
        """Undo ``bind``, because the message was not sent."""
        values = {"chat_id": None, "expires_at": self._clock() + _UNSENT_SECONDS}
        statement = update(attachments).where(_owner_condition(owner, ids)).values(**values)
        await self._executor.execute(statement)

    async def delete_unsent(self, owner: str, id: str) -> bool:
        """Delete an attachment that was not sent. Return False if there is none."""
        is_unsent = _owner_condition(owner, [id]) & attachments.c.chat_id.is_(None)
        statement = delete(attachments).where(is_unsent)
        return await self._executor.execute_by_key(statement) > 0


def _owner_condition(owner: str, ids: Sequence[str]) -> ColumnElement[bool]:
    return (attachments.c.owner == owner) & attachments.c.id.in_(ids)


def _attachment_from_row(row: Any) -> StoredAttachment:
    attachment = Attachment(row.id, row.name, row.mime, row.size, row.origin, row.server)
    return StoredAttachment(attachment, row.chat_id)


def _select_excess_ids(owner: str, limit: int) -> Any:
    """Select the unsent attachments of a user that are too many, except the newest."""
    is_unsent = (attachments.c.owner == owner) & attachments.c.expires_at.is_not(None)
    newest_first = attachments.c.expires_at.desc(), attachments.c.id
    query = select(attachments.c.id).where(is_unsent).order_by(*newest_first)
    # SQLite accepts an offset only with a limit.
    return query.limit(1_000_000).offset(limit - 1)
