"""Work out what a client's file becomes with our entry, or without it, and write that in one step."""

from __future__ import annotations

import os
import stat
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import cast

from toolyard.config.backups import keep_backup
from toolyard.config.exporters.errors import EditRefused, refuse
from toolyard.config.exporters.json_members import comments, drop_member, put_member
from toolyard.config.exporters.toml_tables import drop_table, put_table
from toolyard.config.file_reader import OTHERS_MAX_BYTES, decode, read_bytes
from toolyard.config.file_writer import editing, write_private
from toolyard.config.sources.json_document import JsonValue
from toolyard.config.sources.json_reader import read_json
from toolyard.errors import ConfigError, Problem

__all__ = ["Change", "EntryPlan", "plan_entry", "write_entry"]

_MARK = b"\xef\xbb\xbf"


class Change(StrEnum):
    """What happens to the entry."""

    ADDED = "added"
    REPLACED = "replaced"
    REMOVED = "removed"
    SAME = "same"
    """It stands there already, exactly so."""
    ABSENT = "absent"
    """It was to be removed, and is not there."""


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """What would be written. Nothing is, until ``write_entry`` is called."""

    file: Path
    change: Change
    before: bytes | None = field(repr=False)
    after: bytes = field(repr=False)


def plan_entry(
    file: str | os.PathLike[str], path: Sequence[str], entry: Mapping[str, JsonValue] | None
) -> EntryPlan:
    """What the file becomes with the entry at ``path``; None takes it out. ``.toml`` is TOML, all else JSON.

    Raises ConfigError where the file cannot be read, EditRefused where it cannot be changed without loss.
    """
    target = Path(os.path.abspath(file))
    before = read_bytes(target, most=OTHERS_MAX_BYTES) if os.path.lexists(target) else None
    text = "" if before is None else decode(before, str(target))
    toml = target.suffix == ".toml"
    try:
        root = _read(text or ("" if toml else "{}"), toml)
        was = _at(root, path)
        change = _change(was, entry)
        if change in (Change.SAME, Change.ABSENT):
            return EntryPlan(target, change, before, before or b"")
        after = _edited(text, toml, path, entry)
        _check(text, after, toml, _expected(root, path, entry))
    except EditRefused as refused:
        raise EditRefused([replace(one, file=str(target)) for one in refused.problems]) from None
    except ConfigError as error:
        raise ConfigError([replace(one, file=str(target)) for one in error.problems]) from None
    mark = _MARK if before is not None and before.startswith(_MARK) else b""
    return EntryPlan(target, change, before, mark + after.encode())


def write_entry(plan: EntryPlan, *, private: bool, now: datetime | None = None) -> Path | None:
    """Write the file, and return the backup of what stood there, if anything did.

    ``private``: there is a secret in it, so its owner alone may read it; else it keeps the permissions that
    it has. Raises ConfigError where the file changed after it was planned, OSError where it cannot be
    written.
    """
    target = plan.file
    target.parent.mkdir(parents=True, exist_ok=True)
    with editing(target):
        found = read_bytes(target, most=OTHERS_MAX_BYTES) if os.path.lexists(target) else None
        if found != plan.before:
            message = "the file changed while its new content was prepared; nothing was written"
            raise ConfigError([Problem(message, file=str(target), hint="run the command again")])
        mode = stat.S_IMODE(target.stat().st_mode) if found is not None else None
        backup = None if found is None else keep_backup(target, found, now)
        write_private(target, plan.after)
        if mode is not None and not private:
            os.chmod(target, mode)
    return backup


def _change(was: object, entry: Mapping[str, JsonValue] | None) -> Change:
    if entry is None:
        return Change.ABSENT if was is None else Change.REMOVED
    if was is None:
        return Change.ADDED
    return Change.SAME if was == entry else Change.REPLACED


def _edited(text: str, toml: bool, path: Sequence[str], entry: Mapping[str, JsonValue] | None) -> str:
    if toml:
        return drop_table(text, path) if entry is None else put_table(text, path, entry)
    if entry is None:
        return drop_member(text, path)
    return put_member(text if text.strip() else "{}\n", path, dict(entry))


def _read(text: str, toml: bool) -> dict[str, JsonValue]:
    if not toml:
        root = read_json(text if text.strip() else "{}").root
        return root if isinstance(root, dict) else refuse("the file holds no object")
    try:
        # It may hold dates too; nobody looks at them.
        return cast("dict[str, JsonValue]", tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError([Problem(f"not valid TOML: {error}")]) from error


def _at(root: JsonValue, path: Sequence[str]) -> JsonValue:
    for step in path:
        root = root.get(step) if isinstance(root, dict) else None
    return root


def _expected(
    root: dict[str, JsonValue], path: Sequence[str], entry: Mapping[str, JsonValue] | None
) -> dict[str, JsonValue]:
    """What the file must say afterwards: the same, but for the entry."""
    first, *rest = path
    if not rest:
        others: dict[str, JsonValue] = {key: value for key, value in root.items() if key != first}
        return others if entry is None else {**others, first: dict(entry)}
    inner = root.get(first, {})
    if not isinstance(inner, dict):
        refuse("this is no object", path=first)
    return {**root, first: _expected(inner, rest, entry)}


def _check(before: str, after: str, toml: bool, expected: dict[str, JsonValue]) -> None:
    """An edit of a text is believed only when the text says what it should."""
    try:
        found = _read(after, toml)
    except ConfigError:
        refuse("its layout cannot be kept")
    # An empty table that nobody wrote down is no difference.
    if found != expected and not (toml and _filled(found) == _filled(expected)):
        refuse("its layout cannot be kept")
    if not toml and Counter(comments(before)) - Counter(comments(after)):
        refuse("a comment would be lost")


def _filled(root: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {key: value for key, value in root.items() if value != {}}
