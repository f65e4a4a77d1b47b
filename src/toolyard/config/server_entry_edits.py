"""Add, change and remove servers in our own configuration file, preserving its comments and layout."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from toolyard.config.entries.identifiers import assign_valid_ids
from toolyard.config.file_approvals import hash_content, read_approvals, record_approval
from toolyard.config.file_edits.entry_edits import EntryEdit, FileEditPlan, plan_edits, write_entry
from toolyard.config.file_io import decode_utf8, read_text_file
from toolyard.config.sources.json_document import JsonValue, read_json
from toolyard.config.sources.layers import all_problems, layer_from_text, merge_layers
from toolyard.config.sources.load import choose_config_file, discover_config_path
from toolyard.errors import ConfigError, Problem

__all__ = [
    "ConfigTarget",
    "StoredEntry",
    "build_denial",
    "find_new_problems",
    "plan_server_edits",
    "read_entries",
    "toggle_edit",
    "write_server_edits",
]

_SECTIONS = ("mcpServers", "servers")
PROJECT_FILE_NAME = "toolyard.mcp.json"


@dataclass(frozen=True, slots=True)
class ConfigTarget:
    """The file to change. ``shadowed_by`` is a project file that Toolyard uses instead in this folder."""

    path: Path
    shadowed_by: Path | None = None

    @classmethod
    def choose(
        cls, config: str | None, data_dir: Path, *, to: str | None = None, project: bool = False
    ) -> ConfigTarget:
        """Return the named file, the project's file, or the user's own file.

        The file of a project is changed only on request: other people may share it.
        """
        cwd = Path.cwd()
        if to is not None:
            return cls(Path(os.path.abspath(os.path.expanduser(to))))
        if project:
            return cls(discover_config_path(cwd) or cwd / PROJECT_FILE_NAME)
        file = choose_config_file(config, os.environ, cwd, data_dir)
        return cls(data_dir / "mcp.json", file.path) if file.needs_approval else cls(file.path)


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of a file and its path."""

    path: tuple[str, ...]
    value: Mapping[str, JsonValue]


def read_entries(file: Path) -> dict[str, StoredEntry]:
    """Return the entries of servers in a file by id; none if it does not exist. Raises ConfigError.

    An entry whose name is not a valid id is also found by its name.
    """
    if not os.path.lexists(file):
        return {}
    root = read_json(read_text_file(file), file=str(file)).root
    found: dict[str, StoredEntry] = {}
    for section in _SECTIONS:
        table = root.get(section) if isinstance(root, dict) else None
        entries = table if isinstance(table, dict) else {}
        ids = assign_valid_ids(entries, found)
        for name, entry in entries.items():
            stored = StoredEntry((section, name), entry if isinstance(entry, dict) else {})
            found[name] = found[ids[name]] = stored
    return found


def toggle_edit(entry: StoredEntry, enabled: bool) -> EntryEdit:
    """Return the edit that turns a server on or off, with the key that its entry already uses."""
    if "disabled" in entry.value:
        return EntryEdit((*entry.path, "disabled"), not enabled)
    if enabled and "enabled" not in entry.value:
        return EntryEdit((*entry.path, "enabled"), None)
    return EntryEdit((*entry.path, "enabled"), enabled)


def plan_server_edits(file: Path, edits: Sequence[EntryEdit]) -> FileEditPlan:
    """Plan changes of our own file. Comments inside of a removed entry go with it.

    Raises ConfigError if the file cannot be read, or would have a problem that it does not have now, and
    EditRefused if it cannot be changed without loss.
    """
    plan = plan_edits(file, edits, drop_comments=True)
    problems = find_new_problems(plan.before, plan.after, file)
    if problems:
        raise ConfigError(problems)
    return plan


def find_new_problems(before: bytes | None, after: bytes, file: Path) -> list[Problem]:
    """Return the problems that a change adds. Others may remain: it may be the first of several repairs."""
    known = {(problem.path, problem.message) for problem in _find_problems(before or b"{}", file)}
    return [each for each in _find_problems(after, file) if (each.path, each.message) not in known]


def _find_problems(content: bytes, file: Path) -> Sequence[Problem]:
    try:
        layer = layer_from_text(decode_utf8(content, str(file)), "file", name=str(file), approved=False)
    except ConfigError as error:
        return error.problems
    with suppress(ConfigError):
        merge_layers([layer], {}, unapproved_reason="unread", complete=False)
    return list(all_problems(layer))


def build_denial(stored: StoredEntry, tools: Iterable[str]) -> EntryEdit:
    """Return the edit that adds tools to those that an entry denies."""
    denied = stored.value.get("denyTools")
    return EntryEdit((*stored.path, "denyTools"), [*(denied if isinstance(denied, list) else []), *tools])


def write_server_edits(
    plan: FileEditPlan, data_dir: Path, *, private: bool = False
) -> tuple[Path | None, bool]:
    """Write the planned file. Return the path of its backup, and whether the file needs an approval.

    With ``private``, because an entry contains a secret, only the owner can read the file.

    If the old content of a project's file was approved, the new one is, too: the same person changed it.
    Raises ConfigError if the file changed since the plan, OSError if it cannot be written.
    """
    is_own = plan.file.parent == data_dir
    if is_own:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    backup = write_entry(plan, private=private or is_own)
    if discover_config_path(plan.file.parent) != plan.file:
        return backup, False
    approval = read_approvals(data_dir).find(plan.file)
    known = plan.before is None or (approval is not None and approval.sha256 == hash_content(plan.before))
    if known:
        record_approval(plan.file, plan.after, data_dir)
    return backup, not known
