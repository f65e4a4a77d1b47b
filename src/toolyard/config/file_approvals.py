"""Approvals of discovered configuration files.

A file that was found by discovery, not named by the user, is used only after its approval. ``approvals.json``
in the data directory stores the hash and the content of each approved file, so that the last approved content
stays in use after a change.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from toolyard.config.file_io import decode_utf8, lock_for_editing, read_text_file, write_private_file
from toolyard.config.sources.json_document import JsonValue, read_json
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
"""Larger than the limit of a configuration file, because the record contains all approved files."""


@dataclass(frozen=True, slots=True)
class FileApproval:
    """Approved content of a file, and the time of its approval (ISO 8601)."""

    sha256: str
    content: str
    approved_at: str = ""


@dataclass(frozen=True, slots=True)
class FileApprovals:
    """Approvals by file. ``read_problem`` is set if the record could not be read."""

    by_file: Mapping[str, FileApproval] = field(default_factory=dict[str, FileApproval])
    read_problem: Problem | None = None

    def find(self, path: Path) -> FileApproval | None:
        """Return the last approval of a file, or None."""
        return self.by_file.get(approval_key(path))


def approval_key(path: Path) -> str:
    """Return the absolute path with links in its folders resolved, so that each file has one key.

    A link in the last component is not resolved, because the relative paths in a file depend on its folder.
    """
    absolute = os.path.join(os.path.realpath(path.parent), path.name)
    # A file name need not be valid UTF-8, but the record must be.
    return os.fsencode(absolute).decode("utf-8", "backslashreplace")


def hash_content(content: bytes) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    return sha256(content).hexdigest()


def read_approvals(data_dir: Path) -> FileApprovals:
    """Read the record of approvals. A damaged record approves nothing."""
    path = approvals_path(data_dir)
    if not path.exists():
        return FileApprovals()
    try:
        root = read_json(read_text_file(path, max_bytes=_MAX_APPROVALS_FILE_BYTES), file=str(path)).root
        return FileApprovals(MappingProxyType(_parse_approvals(root)))
    except (ConfigError, OSError) as error:
        reason = error.problems[0].message if isinstance(error, ConfigError) else str(error)
        return FileApprovals(
            read_problem=Problem(
                f"the record of approvals cannot be read, so no file is approved: {reason}",
                file=str(path),
                hint="approve the files again, which replaces the record",
            )
        )


def record_approval(path: Path, content: bytes, data_dir: Path) -> None:
    """Store ``content`` as the approved content of ``path``. Raises OSError if it cannot be written."""
    import json  # needed for writing only

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
    """Return the path of the record."""
    return data_dir / "approvals.json"


def _parse_approvals(root: JsonValue) -> dict[str, FileApproval]:
    files = root.get("files") if isinstance(root, dict) else None
    approvals: dict[str, FileApproval] = {}
    for path, entry in files.items() if isinstance(files, dict) else ():
        if not isinstance(entry, dict):
            continue
        digest, content, time = entry.get("sha256"), entry.get("content"), entry.get("approvedAt")
        if isinstance(digest, str) and isinstance(content, str):
            approvals[path] = FileApproval(digest, content, time if isinstance(time, str) else "")
    return approvals
