"""Plan and write changes of entries in a configuration file: that of a client, or our own."""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import cast

from toolyard.config.file_edits import text_edits
from toolyard.config.file_io import (
    MAX_CLIENT_FILE_BYTES,
    decode_utf8,
    encode_like,
    read_if_exists,
    read_regular_file,
    read_text_file,
    replace_unchanged_file,
)
from toolyard.config.sources.json_document import JsonValue, read_json
from toolyard.errors import ConfigError, Problem

__all__ = [
    "EditEffect",
    "EntryEdit",
    "FileEditPlan",
    "plan_edits",
    "read_value",
    "read_values",
    "resolve_entry_path",
    "write_entry",
]


class EditEffect(StrEnum):
    """Effect on the entry."""

    ADDED = "added"
    REPLACED = "replaced"
    REMOVED = "removed"
    SAME = "same"
    """The file already contains exactly this entry."""
    ABSENT = "absent"
    """The entry to remove does not exist."""

    @property
    def changes_file(self) -> bool:
        """Return whether there is something to write."""
        return self not in (EditEffect.SAME, EditEffect.ABSENT)


@dataclass(frozen=True, slots=True)
class EntryEdit:
    """One change of a file: the value to set at ``path``, or None to remove it."""

    path: tuple[str, ...]
    value: JsonValue


@dataclass(frozen=True, slots=True)
class FileEditPlan:
    """Planned changes of a file. Nothing is written until ``write_entry`` is called."""

    file: Path
    changes: tuple[EditEffect, ...]
    """The effect of each edit."""
    before: bytes | None = field(repr=False)
    after: bytes = field(repr=False)

    @property
    def change(self) -> EditEffect:
        """Return the effect of the first edit."""
        return self.changes[0]

    @property
    def has_changes(self) -> bool:
        """Return whether there is something to write."""
        return any(change.changes_file for change in self.changes)


def plan_edits(
    file: str | os.PathLike[str], edits: Sequence[EntryEdit], *, drop_comments: bool = False
) -> FileEditPlan:
    """Plan changes, each made to the result of the one before.

    A file with the suffix ``.toml`` is TOML, any other is JSON. ``drop_comments``: comments inside of a
    replaced or removed value of a JSON file are removed with it. Raises ConfigError if the file cannot be
    read, and EditRefused if it cannot be changed without loss.
    """
    target = Path(os.path.abspath(file))
    before = read_if_exists(target, max_bytes=MAX_CLIENT_FILE_BYTES)
    text = "" if before is None else decode_utf8(before, str(target))
    toml = target.suffix == ".toml"
    changes: list[EditEffect] = []
    try:
        for edit in edits:
            root = _parse_text(text or ("" if toml else "{}"), toml)
            change = _classify_change(_value_at(root, edit.path), edit.value)
            changes.append(change)
            if not change.changes_file:
                continue
            after = _edit_text(text, toml, edit, drop_comments, _value_at(root, edit.path))
            dropped = (
                text_edits.value_text(text, edit.path) if drop_comments and not toml and text.strip() else ""
            )
            _check_edit(text, after, toml, _apply_to_root(root, edit.path, edit.value), dropped)
            text = after
    except text_edits.EditRefused as error:
        raise text_edits.EditRefused(
            [replace(problem, file=str(target)) for problem in error.problems]
        ) from None
    except ConfigError as error:
        raise ConfigError([replace(problem, file=str(target)) for problem in error.problems]) from None
    plan = FileEditPlan(target, tuple(changes), before, encode_like(text, before))
    return plan if plan.has_changes else replace(plan, after=before or b"")


def read_values(file: Path, content: bytes | None, paths: Iterable[Sequence[str]]) -> list[JsonValue]:
    """Return the values at these paths of a file's content, None for those that do not exist.

    Raises ConfigError if the content is invalid.
    """
    if content is None:
        return [None for _ in paths]
    root = _parse_text(decode_utf8(content, str(file)), file.suffix == ".toml")
    return [_value_at(root, path) for path in paths]


def read_value(file: Path, path: Sequence[str]) -> JsonValue:
    """Return the value at a path of a file, None if it does not exist. Raises ConfigError."""
    content = read_regular_file(file, max_bytes=MAX_CLIENT_FILE_BYTES)
    return read_values(file, content, [path])[0]


def write_entry(plan: FileEditPlan, *, private: bool, now: datetime | None = None) -> Path | None:
    """Write the planned file and return the path of a backup of the old content, or None for a new file.

    With ``private``, because the entry contains a secret, only the owner can read the file; otherwise it
    keeps its permissions. Raises ConfigError if the file changed since the plan, OSError if it cannot be
    written.
    """
    target = plan.file
    target.parent.mkdir(parents=True, exist_ok=True)
    message = "the file changed while its new content was prepared; nothing was written"
    changed = Problem(message, file=str(target), hint="run the command again")
    is_private = private or plan.before is None
    return replace_unchanged_file(target, plan.before, plan.after, changed, private=is_private, now=now)


def _classify_change(current: object, value: JsonValue) -> EditEffect:
    if value is None:
        return EditEffect.ABSENT if current is None else EditEffect.REMOVED
    if current is None:
        return EditEffect.ADDED
    # Booleans equal numbers in Python, but not in a file.
    is_same = current == value and isinstance(current, bool) is isinstance(value, bool)
    return EditEffect.SAME if is_same else EditEffect.REPLACED


def _edit_text(text: str, toml: bool, edit: EntryEdit, drop_comments: bool, current: JsonValue) -> str:
    path, value = edit.path, edit.value
    if toml:
        if isinstance(value, bool) or (value is None and isinstance(current, bool)):
            return text_edits.set_flag(text, path, value)
        if value is not None and not isinstance(value, dict):
            text_edits.refuse_edit("only whole tables and booleans can be set in TOML")
        return (
            text_edits.remove_table(text, path) if value is None else text_edits.set_table(text, path, value)
        )
    if value is None:
        return text_edits.remove_member(text, path, drop_comments=drop_comments)
    return text_edits.set_member(text if text.strip() else "{}\n", path, value, drop_comments=drop_comments)


def _parse_text(text: str, toml: bool) -> dict[str, JsonValue]:
    if not toml:
        root = read_json(text if text.strip() else "{}").root
        return root if isinstance(root, dict) else text_edits.refuse_edit("the top level is not an object")
    try:
        # TOML may also contain dates, which no code here reads.
        return cast("dict[str, JsonValue]", tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError([Problem(f"not valid TOML: {error}")]) from error


def _value_at(root: JsonValue, path: Sequence[str]) -> JsonValue:
    for step in path:
        root = root.get(step) if isinstance(root, dict) else None
    return root


def _apply_to_root(root: dict[str, JsonValue], path: Sequence[str], value: JsonValue) -> dict[str, JsonValue]:
    """Return the expected content after the edit: the same as before, apart from the entry."""
    first, *rest = path
    if not rest:
        others: dict[str, JsonValue] = {key: value for key, value in root.items() if key != first}
        return others if value is None else {**others, first: value}
    inner = root.get(first, {})
    if not isinstance(inner, dict):
        text_edits.refuse_edit("this is not an object", path=first)
    return {**root, first: _apply_to_root(inner, rest, value)}


def _check_edit(before: str, after: str, toml: bool, expected: dict[str, JsonValue], dropped: str) -> None:
    """Parse the edited text and refuse the edit unless it has the expected content and all comments, apart
    from those in ``dropped``.

    Text edits cannot cover every way to write a file, so each result is verified before it is written.
    """
    try:
        actual = _parse_text(after, toml)
    except ConfigError:
        text_edits.refuse_edit("the layout of the file cannot be preserved")
    # Removing the last sub-table also removes its implicit parent table, which is not a loss.
    if actual != expected and not (toml and _drop_empty_tables(actual) == _drop_empty_tables(expected)):
        text_edits.refuse_edit("the layout of the file cannot be preserved")
    lost = (
        Counter(text_edits.find_comments(before))
        - Counter(text_edits.find_comments(after))
        - Counter(text_edits.find_comments(dropped))
    )
    if not toml and lost:
        text_edits.refuse_edit("a comment would be lost")


def _drop_empty_tables(root: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {key: value for key, value in root.items() if value != {}}


def resolve_entry_path(file: Path, path: Sequence[str]) -> tuple[str, ...]:
    """Return the path of the entry in this file: newer files of opencode have servers under ``mcp.servers``.

    Raises ConfigError if the file cannot be read.
    """
    if path[0] != "mcp" or not file.is_file():
        return tuple(path)
    root = read_json(read_text_file(file, max_bytes=MAX_CLIENT_FILE_BYTES), file=str(file)).root
    table = root.get("mcp") if isinstance(root, dict) else None
    inner = table.get("servers") if isinstance(table, dict) else None
    # In the older format, "servers" could be the name of a server, whose entry has a "type".
    is_nested = isinstance(inner, dict) and "type" not in inner
    return ("mcp", "servers", *path[1:]) if is_nested else tuple(path)
