"""Attachments of messages: upload, the type of their content, and the way to a model.

The type of a file is determined by its content alone. Pictures are not decoded: nobody but the model's
provider and the browser learns whether the rest of a file fits its beginning.
"""

from __future__ import annotations

import codecs
import json
import re
import unicodedata
from collections.abc import AsyncIterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from toolyard.agents.chat.errors import ChatRefused
from toolyard.agents.chat.turn_snapshot import TurnSnapshot
from toolyard.agents.models.model_ref import ModelChoice
from toolyard.errors import AttachmentRefused, AttachmentTooLarge, ToolyardError
from toolyard.results.result_store import ResultStore, StoredResult
from toolyard.types.chat import ATTACHMENT_ID_PREFIX, Attachment
from toolyard.types.server import Trust

if TYPE_CHECKING:
    from toolyard.store.repositories.attachments import AttachmentLimits, SqlAttachmentStore

__all__ = [
    "ATTACHABLE",
    "PROMPT_ORIGIN",
    "AttachmentService",
    "ResultsWithAttachments",
    "clean_file_name",
    "describe_attachment",
]

ATTACHABLE = "PNG, JPEG, GIF and WebP pictures, and text files in UTF-8"
"""Accepted files, for messages."""
PROMPT_ORIGIN = "prompt"
"""Origin of the text of a server's prompt, which is sent to the model with the message."""
_TEXT_TYPE = "text/plain"
_PICTURE_PATTERNS = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
_PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_MAX_SIGNATURE_BYTES = 16
_CONTROL_CHARACTER_PATTERN = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_CHUNK_BYTES = 256_000
_MAX_NAME_CHARACTERS = 120
_MAX_PICTURE_BYTES = 5_000_000
"""Maximum size of one picture; providers reject the whole request for a larger one."""
_MAX_REQUEST_PICTURE_BYTES = 20_000_000
"""Maximum size of all pictures in one request to a model."""


def clean_file_name(name: str) -> str:
    """Return a file name without folders, and without characters that are invisible or reorder others."""
    name = re.split(r"[/\\]", name)[-1]
    visible = (" " if unicodedata.category(each)[0] in "CZ" else each for each in name)
    name = " ".join("".join(visible).split())
    if len(name) > _MAX_NAME_CHARACTERS:
        stem, dot, suffix = name.rpartition(".")
        suffix = f"{dot}{suffix}" if dot and len(suffix) < 10 else ""
        name = f"{(stem or name)[: _MAX_NAME_CHARACTERS - len(suffix) - 1]}…{suffix}"
    return name if name.strip(". ") else "file"


class _ContentInspector:
    """Determines the type of a file while it is read. Raises AttachmentRefused as soon as it is clear that
    the file is neither a picture nor a text."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._mime: str | None = None
        self._decode = codecs.getincrementaldecoder("utf-8")().decode

    def add(self, chunk: bytes) -> None:
        """Inspect the next chunk."""
        if self._mime is None:
            head = chunk[:_MAX_SIGNATURE_BYTES]
            found = (mime for mime, pattern in _PICTURE_PATTERNS.items() if pattern.match(head))
            self._mime = next(found, _TEXT_TYPE)
            if self._mime is _TEXT_TYPE and self._name.lower().endswith(_PICTURE_SUFFIXES):
                raise self._build_error("is not a PNG, JPEG, GIF or WebP image, despite its name")
        if self._mime is _TEXT_TYPE:
            self._check_text(chunk)

    def finish(self) -> str:
        """Return the type of the whole file."""
        if self._mime is None:
            raise self._build_error("is empty")
        if self._mime is _TEXT_TYPE:
            self._check_text(b"", final=True)
        return self._mime

    def _check_text(self, chunk: bytes, *, final: bool = False) -> None:
        try:
            is_text = not _CONTROL_CHARACTER_PATTERN.search(self._decode(chunk, final))
        except UnicodeDecodeError:
            is_text = False
        if not is_text:
            raise self._build_error("is neither a picture nor a text file")

    def _build_error(self, fault: str) -> AttachmentRefused:
        return AttachmentRefused(f"“{self._name}” {fault}", hint=f"attach {ATTACHABLE}")


class AttachmentService:
    """Uploads of users, and the attachments of their messages."""

    def __init__(self, store: SqlAttachmentStore) -> None:
        self._store = store

    @property
    def limits(self) -> AttachmentLimits:
        """Limits on the size and number of attachments."""
        return self._store.limits

    async def upload(
        self,
        owner: str,
        name: str,
        pieces: AsyncIterable[bytes],
        *,
        declared_size: int = 0,
        origin: str = "",
        server: str = "",
    ) -> Attachment:
        """Store a file that arrives in pieces. It is removed again after a day, unless it is sent.

        ``declared_size`` is what the sender says; 0 if unknown. The quota is reserved at the beginning.
        ``origin`` and ``server`` are those of content that a server sent; see ``Attachment``.
        Raises AttachmentRefused, AttachmentTooLarge and ChatQuotaExceeded, and errors of ``pieces``.
        """
        name = clean_file_name(name)
        inspector, size = _ContentInspector(name), 0
        reserved = min(declared_size, self.limits.file_bytes)
        id = await self._store.begin(owner, name, origin, server, size=reserved)
        try:
            number = 0
            async for chunk in _rechunk(pieces):
                size += len(chunk)
                if size > self.limits.file_bytes:
                    raise self.build_size_error(name)
                inspector.add(chunk)
                growth = max(0, size - max(reserved, size - len(chunk)))
                await self._store.add_chunk(owner, id, number, chunk, growth=growth)
                number += 1
            attachment = Attachment(id, name, inspector.finish(), size, origin, server)
            if attachment.is_picture and size > _MAX_PICTURE_BYTES:
                raise AttachmentTooLarge(
                    f"“{name}” is {size:,} bytes; models accept images of up to {_MAX_PICTURE_BYTES:,} bytes",
                    hint="reduce the size of the image",
                )
            await self._store.complete(owner, id, attachment.mime, size)
        except BaseException:
            # If the database fails, the upload stays until it expires.
            with suppress(ToolyardError):
                await self._store.delete_unsent(owner, id)
            raise
        return attachment

    def build_size_error(self, name: str) -> AttachmentTooLarge:
        """Return the error for a file that is too large."""
        return AttachmentTooLarge(
            f"“{name}” is too large; an attachment may have at most {self.limits.file_bytes:,} bytes",
            hint="attach a part of it, or put it in a workspace that the built-in tools can read",
        )

    async def get(self, owner: str, id: str) -> Attachment:
        """Return an attachment of a user. Raises AttachmentRefused."""
        found = (await self._store.find(owner, [id])).get(id)
        if found is None:
            raise _build_unknown_error()
        return found.attachment

    def read(self, attachment: Attachment) -> AsyncIterable[bytes]:
        """Return the content of an attachment of ``get``, in chunks."""
        return self._store.read_chunks(attachment.id)

    async def list_unsent(self, owner: str, ids: Sequence[str]) -> Sequence[Attachment]:
        """Return those of these attachments that exist and were not sent."""
        found = await self._store.find(owner, ids)
        return [each.attachment for each in found.values() if each.chat_id is None]

    async def list_sent(self, owner: str, chat_id: str) -> Sequence[Attachment]:
        """Return the attachments of a chat."""
        return await self._store.list_sent(owner, chat_id)

    async def delete_unsent(self, owner: str, id: str) -> bool:
        """Delete an attachment that was not sent. Return False if there is none."""
        return await self._store.delete_unsent(owner, id)

    async def bind(
        self, owner: str, ids: Sequence[str], chat_id: str, model: ModelChoice
    ) -> tuple[tuple[Attachment, ...], Sequence[str]]:
        """Make attachments part of a chat, for a message to a model.

        Return them in order, and the ids of those that ``unbind`` releases if the message is not sent.
        """
        ids = list(dict.fromkeys(ids))
        if len(ids) > (most := self.limits.per_message):
            raise AttachmentRefused(
                f"the message has {len(ids)} attachments; the maximum is {most}",
                hint="send several messages",
            )
        found = await self._store.find(owner, ids)
        if any(id not in found or found[id].chat_id not in (None, chat_id) for id in ids):
            raise _build_unknown_error()
        attachments = tuple(found[id].attachment for id in ids)
        _check_pictures([each for each in attachments if each.is_picture], model)
        unsent = [id for id in ids if found[id].chat_id is None]
        await self._store.bind(owner, unsent, chat_id)
        return attachments, unsent

    async def unbind(self, owner: str, ids: Sequence[str]) -> None:
        """Release attachments of a message that was not sent."""
        await self._store.unbind(owner, ids)

    async def load_contents(
        self, owner: str, turns: Sequence[TurnSnapshot], *, pictures: bool
    ) -> Mapping[str, bytes]:
        """Return the attachments that are sent to a model as a whole, by id: prompts, and if wanted pictures.

        If they are too large for one request, those of the newest turns.
        """
        ids, total = list[str](), 0
        for each in (each for turn in reversed(turns) for each in turn.attachments):
            if pictures if each.is_picture else each.origin == PROMPT_ORIGIN:
                total += 0 if each.id in ids else each.size
                if total > _MAX_REQUEST_PICTURE_BYTES:
                    break
                ids.append(each.id)
        return {id: await self._store.load(id) for id in await self._store.find(owner, ids)}

    async def read_text(self, owner: str, id: str) -> StoredResult | None:
        """Return an attached text, as ``result_read`` reads it; None if the user has none with this id."""
        found = (await self._store.find(owner, [id])).get(id)
        if found is None or found.attachment.is_picture:
            return None
        trust = Trust.UNTRUSTED if found.attachment.origin else Trust.TRUSTED
        return StoredResult(await self._store.load(id), trust, found.attachment.server, _TEXT_TYPE)


async def _rechunk(pieces: AsyncIterable[bytes]) -> AsyncIterable[bytes]:
    """Yield pieces of any length as chunks of one length."""
    buffer = bytearray()
    async for piece in pieces:
        buffer += piece
        while len(buffer) >= _CHUNK_BYTES:
            yield bytes(buffer[:_CHUNK_BYTES])
            del buffer[:_CHUNK_BYTES]
    if buffer:
        yield bytes(buffer)


def _check_pictures(pictures: Sequence[Attachment], model: ModelChoice) -> None:
    if pictures and not model.sees:
        raise ChatRefused(
            f"{model.label} does not accept images",
            hint="choose a model that does, or remove the images; if this model does, set sees = true for it",
        )
    if (total := sum(each.size for each in pictures)) > _MAX_REQUEST_PICTURE_BYTES:
        raise AttachmentTooLarge(
            f"the images total {total:,} bytes; the maximum is {_MAX_REQUEST_PICTURE_BYTES:,}",
            hint="send the images in several messages, or reduce their size",
        )


def _build_unknown_error() -> AttachmentRefused:
    return AttachmentRefused(
        "an attachment does not exist, or was sent in another chat", hint="attach the file again"
    )


def describe_attachment(attachment: Attachment, content: bytes | None) -> str:
    """Return the description of an attachment for a model; of a prompt with its text.

    ``content`` is that of ``load_contents``; that of a picture is sent after the description.
    """
    name = json.dumps(attachment.name, ensure_ascii=False)
    if attachment.origin:
        name += f" of the server {json.dumps(attachment.server, ensure_ascii=False)}"
    facts = f"{name} ({attachment.mime}, {attachment.size:,} bytes)"
    if attachment.is_picture:
        return f"[Attached picture {facts}{', which is not included here' if content is None else ''}.]"
    if attachment.origin == PROMPT_ORIGIN and content is not None:
        return f"[Prompt {name}:]\n{content.decode(errors='replace')}"
    kind = "resource" if attachment.origin else "file"
    return f'[Attached {kind} {facts}. Read it with result_read, handle "{attachment.id}".]'


class ResultsWithAttachments:
    """Result store of a user, through which ``result_read`` also reads attached text files."""

    def __init__(self, results: ResultStore, attachments: AttachmentService, owner: str) -> None:
        self._results = results
        self._attachments = attachments
        self._owner = owner

    async def save(self, handle: str, result: StoredResult) -> None:
        await self._results.save(handle, result)

    async def read(self, handle: str) -> StoredResult | None:
        if handle.startswith(ATTACHMENT_ID_PREFIX):
            return await self._attachments.read_text(self._owner, handle)
        return await self._results.read(handle)

    async def has_any(self) -> bool:
        return await self._results.has_any()
