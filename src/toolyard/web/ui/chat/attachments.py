"""Files in the message form of a chat. With the script, they are uploaded before the form is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from starlette.datastructures import UploadFile

from toolyard.agents.chat.attachments import AttachmentService
from toolyard.errors import AttachmentRefused, ToolyardError
from toolyard.web.ui.components.forms import SubmittedForm

__all__ = ["FormFiles", "read_attachment_ids"]

_FIELD = "attachment"
_PIECE_BYTES = 64 * 1024


class FormFiles:
    """Stores the files of a form. Files after one that is refused are not stored."""

    def __init__(self, attachments: AttachmentService, owner: str) -> None:
        self._attachments = attachments
        self._owner = owner
        self._count = 0
        self.error: ToolyardError | None = None
        """Reason why a file was refused."""

    async def save(self, file: UploadFile) -> str:
        """Store a file. Return its id, or an empty text if it was refused."""
        # A browser sends an empty file without a name if none is chosen.
        if self.error is not None or not file.filename:
            return ""
        try:
            self._count += 1
            if self._count > (most := self._attachments.limits.per_message):
                raise AttachmentRefused(
                    f"a message may have at most {most} attachments", hint="send several messages"
                )
            return (await self._attachments.upload(self._owner, file.filename, _read_pieces(file))).id
        except ToolyardError as error:
            self.error = error
            return ""


async def _read_pieces(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(_PIECE_BYTES):
        yield piece


def read_attachment_ids(form: SubmittedForm) -> Sequence[str]:
    """Return the ids of the attachments in a message form."""
    return [id for id in form.all_values(_FIELD) if id]
