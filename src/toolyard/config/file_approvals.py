"""Files that were found, not named, are used only after someone looked at them.

``approvals.json`` in the data directory remembers, for each such file, a hash of its content and the content
itself, so that after a change the last approved state can stay in use.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from toolyard.config.file_reader import decode_utf8, read_regular_file
from toolyard.config.file_writer import lock_for_editing, write_private_file
from toolyard.config.sources.json_document import JsonValue
from toolyard.config.sources.json_reader import read_json
from toolyard.errors import ConfigError, Problem

__all__ = [
    "FileApproval",
    "FileApprovals",
    "approval_key",
    "approvals_path",
    "hash_content",
    "read_approvals",
    "record_approval",
]


_MAX_APPROVALS_FILE_BYTES = 256 * 1024 * 1024
"""The record holds the text of every approved file."""


@dataclass(frozen=True, slots=True)
class FileApproval:
    """The content of a file that someone has said yes to, and when."""

    sha256: str
    content: str
    approved_at: str = ""


@dataclass(frozen=True, slots=True)
class FileApprovals:
    """What was approved, by file. ``fault`` says why the record could not be read, where it could not."""

    by_file: Mapping[str, FileApproval] = field(default_factory=dict[str, FileApproval])
    read_problem: Problem | None = None

    def find(self, path: Path) -> FileApproval | None:
        """The last approval of a file."""
        return self.by_file.get(approval_key(path))


def approval_key(path: Path) -> str:
    """The absolute path, with links in its folders followed, so that one file has one name.

    A link at the end is kept: where it stands decides what its relative paths mean.
    """
    absolute = os.path.join(os.path.realpath(path.parent), path.name)
    # A name that is not UTF-8 must still fit into a file that is.
    return os.fsencode(absolute).decode("utf-8", "backslashreplace")


def hash_content(content: bytes) -> str:
    """The hash by which a content is known."""
    return sha256(content).hexdigest()


def read_approvals(data_dir: Path) -> FileApprovals:
    """The record. One that is damaged approves nothing."""
    path = approvals_path(data_dir)
    if not path.exists():
        return FileApprovals()
    try:
        root = read_json(
            decode_utf8(read_regular_file(path, max_bytes=_MAX_APPROVALS_FILE_BYTES), str(path)),
            file=str(path),
        ).root
        return FileApprovals(MappingProxyType(_parse_approvals(root)))
    except (ConfigError, OSError) as error:
        reason = error.problems[0].message if isinstance(error, ConfigError) else str(error)
        return FileApprovals(
            read_problem=Problem(
                f"the record of approvals cannot be read, so nothing counts as approved: {reason}",
                file=str(path),
                hint="approve the files again; the record is then written anew",
            )
        )


def record_approval(path: Path, content: bytes, data_dir: Path) -> None:
    """Add the approval of ``content`` as that of ``path``. Raises OSError where it cannot be written."""
    import json  # only needed to write

    now = datetime.now(UTC).isoformat(timespec="seconds")
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_for_editing(approvals_path(data_dir)):
        approvals = dict(read_approvals(data_dir).by_file)
        approvals[approval_key(path)] = FileApproval(
            hash_content(content), decode_utf8(content, str(path)), now
        )
        files = {
            key: {"sha256": approval.sha256, "approvedAt": approval.approved_at, "content": approval.content}
            for key, approval in approvals.items()
        }
        text = json.dumps({"version": 1, "files": files}, indent=2, ensure_ascii=False)
        write_private_file(approvals_path(data_dir), f"{text}\n".encode())


def approvals_path(data_dir: Path) -> Path:
    """Where the record stands."""
    return data_dir / "approvals.json"


def _parse_approvals(root: JsonValue) -> dict[str, FileApproval]:
    files = root.get("files") if isinstance(root, dict) else None
    approvals: dict[str, FileApproval] = {}
    for path, entry in files.items() if isinstance(files, dict) else ():
        if not isinstance(entry, dict):
            continue
        known, content, when = entry.get("sha256"), entry.get("content"), entry.get("approvedAt")
        if isinstance(known, str) and isinstance(content, str):
            approvals[path] = FileApproval(known, content, when if isinstance(when, str) else "")
    return approvals
