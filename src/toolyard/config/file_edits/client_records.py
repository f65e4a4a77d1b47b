"""Record of our changes in the files of clients, so that ``toolyard disconnect`` can undo them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from toolyard.config.file_approvals import hash_content
from toolyard.config.file_edits.entry_edits import (
    EditEffect,
    EntryEdit,
    FileEditPlan,
    plan_edits,
    read_values,
    write_entry,
)
from toolyard.config.file_io import (
    MAX_CLIENT_FILE_BYTES,
    lock_for_editing,
    read_regular_file,
    read_text_file,
    write_private_file,
)
from toolyard.config.sources.json_document import JsonValue
from toolyard.errors import ConfigError, Problem

__all__ = ["ClientRecord", "plan_undo", "read_client_records", "write_client_edits", "write_undo"]

RECORD_FILE_NAME = "connected_clients.json"
_MAX_RECORD_BYTES = 50_000_000


@dataclass(frozen=True, slots=True)
class RecordedEdit:
    """A value that we set (None: removed) at ``path``, and the value that was there before (None: none)."""

    path: tuple[str, ...]
    value: JsonValue
    previous: JsonValue


@dataclass(frozen=True, slots=True)
class ClientRecord:
    """Our changes of one file since it was last without them.

    ``backup`` has the content before, and is used if the file still has the content that we wrote
    (``sha256``). It is None if there was no file, or if somebody edited the file between two of our changes.
    """

    client: str
    sha256: str
    edits: tuple[RecordedEdit, ...]
    backup: str | None = None
    backup_sha256: str | None = None
    is_new_file: bool = False


def read_client_records(data_dir: Path) -> dict[str, ClientRecord]:
    """Return the records by path of the file. Raises ConfigError if they cannot be read."""
    path = data_dir / RECORD_FILE_NAME
    if not path.exists():
        return {}
    content = read_text_file(path, max_bytes=_MAX_RECORD_BYTES)
    try:
        files = cast("dict[str, dict[str, Any]]", json.loads(content)["files"])
        return {
            file: replace(ClientRecord(**raw), edits=tuple(_read_edit(edit) for edit in raw["edits"]))
            for file, raw in files.items()
        }
    except (ValueError, TypeError, KeyError):
        hint = "remove the file; `toolyard disconnect` then only removes the entries named toolyard"
        problem = Problem("the record of connected clients is damaged", str(path), hint=hint)
        raise ConfigError([problem]) from None


def _read_edit(raw: dict[str, Any]) -> RecordedEdit:
    return RecordedEdit(tuple(raw["path"]), raw["value"], raw["previous"])


def write_client_edits(
    client: str, plan: FileEditPlan, edits: Sequence[EntryEdit], data_dir: Path, *, private: bool
) -> Path | None:
    """Write the planned file of a client and record the change. Return the path of the backup, or None.

    Raises ConfigError if the file changed since the plan, OSError if it cannot be written.
    """
    backup = write_entry(plan, private=private)
    before = None if plan.before is None else hash_content(plan.before)
    previous = read_values(plan.file, plan.before, [each.path for each in edits])
    made = [RecordedEdit(each.path, each.value, value) for each, value in zip(edits, previous, strict=True)]

    def add(records: dict[str, ClientRecord]) -> None:
        earlier = records.get(str(plan.file))
        record = ClientRecord(
            client,
            hash_content(plan.after),
            tuple(made),
            None if backup is None else str(backup),
            before,
            before is None,
        )
        if earlier is not None:
            # The first values are those to restore.
            known = {each.path: each.previous for each in earlier.edits}
            changed = [replace(each, previous=known.get(each.path, each.previous)) for each in made]
            paths = {each.path for each in made}
            others = [each for each in earlier.edits if each.path not in paths]
            record = replace(record, edits=(*others, *changed), backup=None, is_new_file=False)
            if earlier.sha256 == before:
                record = replace(earlier, sha256=record.sha256, edits=record.edits)
        records[str(plan.file)] = record

    _change_records(data_dir, add)
    return backup


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """Planned removal of our changes. ``deletes``: the file did not exist before."""

    plan: FileEditPlan
    deletes: bool = False


def plan_undo(file: Path, entry_path: Sequence[str], record: ClientRecord | None) -> UndoPlan:
    """Plan to take out our changes.

    If nobody edited the file since, it gets exactly its old content. Otherwise our entry is removed, and the
    other values that we changed are restored where they are still ours. Raises ConfigError or EditRefused.
    """
    ours = EntryEdit(tuple(entry_path), None)
    if not os.path.lexists(file):
        return UndoPlan(plan_edits(file, [ours]))
    content = read_regular_file(file, max_bytes=MAX_CLIENT_FILE_BYTES)
    if record is None:
        return UndoPlan(plan_edits(file, [ours]))
    if hash_content(content) == record.sha256:
        if record.is_new_file:
            return UndoPlan(FileEditPlan(file, (EditEffect.REMOVED,), content, b""), deletes=True)
        backup = _read_backup(record)
        if backup is not None:
            return UndoPlan(FileEditPlan(file, (EditEffect.REMOVED,), content, backup))
    others = [each for each in record.edits if each.path != ours.path]
    current = read_values(file, content, [each.path for each in others])
    restored = [
        EntryEdit(each.path, each.previous)
        for each, value in zip(others, current, strict=True)
        if value == each.value
    ]
    return UndoPlan(plan_edits(file, [ours, *restored], drop_comments=True))


def write_undo(undo: UndoPlan, data_dir: Path) -> Path | None:
    """Write the planned content and forget the record. Return the path of the backup, or None.

    Raises ConfigError if the file changed since the plan, OSError if it cannot be written.
    """
    backup = write_entry(undo.plan, private=False) if undo.plan.has_changes else None
    if undo.deletes:
        undo.plan.file.unlink(missing_ok=True)
    _change_records(data_dir, lambda records: records.pop(str(undo.plan.file), None))
    return backup


def _read_backup(record: ClientRecord) -> bytes | None:
    """Return the content of the backup, unless it is gone or was changed."""
    if record.backup is None:
        return None
    try:
        content = read_regular_file(Path(record.backup), max_bytes=MAX_CLIENT_FILE_BYTES)
    except ConfigError:
        return None
    return content if hash_content(content) == record.backup_sha256 else None


def _change_records(data_dir: Path, change: Callable[[dict[str, ClientRecord]], object]) -> None:
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = data_dir / RECORD_FILE_NAME
    with lock_for_editing(path):
        records = read_client_records(data_dir)
        change(records)
        files = {file: _record_json(record) for file, record in records.items()}
        text = json.dumps({"version": 1, "files": files}, indent=2, ensure_ascii=False)
        write_private_file(path, f"{text}\n".encode())


def _record_json(record: ClientRecord) -> dict[str, Any]:
    # Not ``asdict``: it copies the values, which can be objects with positions that cannot be copied so.
    return {
        **{each.name: getattr(record, each.name) for each in fields(record)},
        "edits": [
            {"path": each.path, "value": each.value, "previous": each.previous} for each in record.edits
        ],
    }
