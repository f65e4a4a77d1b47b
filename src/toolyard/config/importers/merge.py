"""Merge servers of other clients into a configuration file, without changing its existing entries.

New entries are inserted into the text, so that comments and layout are preserved.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from toolyard.config.entries.identifiers import MAX_ID_CHARACTERS, sanitize_id
from toolyard.config.file_edits.text_edits import EMPTY_CONFIG, detect_newline
from toolyard.config.file_io import decode_utf8, encode_like, read_if_exists, replace_unchanged_file
from toolyard.config.importers.formats import ForeignFile, ForeignServer, read_foreign_file
from toolyard.config.self_reference import starts_toolyard
from toolyard.config.sources.json_document import JsonValue, read_json
from toolyard.config.sources.layers import layer_from_mapping, layer_from_text, merge_layers
from toolyard.errors import ConfigError, Problem
from toolyard.types.server import Provenance, Server

__all__ = ["ImportPlan", "ImportedServer", "insert_servers", "plan_import", "write_import"]


def insert_servers(text: str, entries: Mapping[str, JsonValue]) -> str:
    """Return the text with the entries at the beginning of ``mcpServers``, which is created if missing.

    ``text`` must be a valid configuration.
    """
    document = read_json(text)
    root = document.root if isinstance(document.root, dict) else {}
    offset = document.find_offset(("mcpServers",))
    if offset is None:
        return _insert_after_brace(
            text, document.root_offset, {"mcpServers": dict(entries)}, bool(root), "  "
        )
    return _insert_after_brace(text, offset, entries, bool(root["mcpServers"]), "    ")


# Entries are inserted right after the opening brace. That needs only one position, and never a decision about
# a trailing comma or about comments after the last member.
def _insert_after_brace(
    text: str, brace: int, entries: Mapping[str, JsonValue], has_members: bool, indent: str
) -> str:
    lines = ",".join(f"\n{_format_member(key, value, indent)}" for key, value in entries.items())
    ending = "," if has_members else f"\n{indent[:-2]}"
    inserted = f"{lines}{ending}".replace("\n", detect_newline(text))
    return f"{text[: brace + 1]}{inserted}{text[brace + 1 :]}"


def _format_member(key: str, value: JsonValue, indent: str) -> str:
    import json  # needed for writing only

    body = json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{indent}")
    return f"{indent}{json.dumps(key, ensure_ascii=False)}: {body}"


@dataclass(frozen=True, slots=True)
class ImportedServer:
    """A server of another client: its new id, and its original client, file and name."""

    id: str
    client: str
    file: str
    name: str


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """Planned import. Nothing is written until ``write_import`` is called.

    ``same`` are servers that the target already contains; ``hints`` list what was renamed, skipped or
    dropped.
    """

    target: str
    added: tuple[ImportedServer, ...]
    same: tuple[ImportedServer, ...]
    hints: tuple[Problem, ...]
    before: bytes | None = field(repr=False)
    after: bytes = field(repr=False)


def plan_import(
    files: Iterable[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    *,
    skipped_name: str | None = None,
) -> ImportPlan:
    """Read the files of other clients and plan the merged target file, without servers named
    ``skipped_name``.

    A file or entry that is invalid becomes a hint. Raises ConfigError only if the target itself is invalid,
    because it must not be overwritten then.
    """
    target_path = Path(os.path.abspath(target))
    before = read_if_exists(target_path)
    text = decode_utf8(before, str(target_path)) if before is not None else EMPTY_CONFIG
    merge = _ServerMerge(_parse_servers(text, str(target_path)))
    for file in files:
        path = Path(os.path.abspath(file))
        try:
            merge.add_file(read_foreign_file(path), skipped_name)
        except ConfigError as error:
            merge.hints += error.problems
    if merge.entries:
        text = insert_servers(text, merge.entries)
    # Parse the result as a check: an import must never produce a file that Toolyard cannot load.
    _parse_servers(text, str(target_path))
    return ImportPlan(
        str(target_path),
        tuple(merge.added),
        tuple(merge.same),
        tuple(merge.hints),
        before,
        encode_like(text, before),
    )


def write_import(plan: ImportPlan, *, now: datetime | None = None) -> Path | None:
    """Write the merged file and return the path of a backup of the old content, or None for a new file.

    Raises ConfigError if the target changed since the plan, OSError if it cannot be written.
    """
    target = Path(plan.target)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    message = "the file changed while the import was prepared; nothing was written"
    changed = Problem(message, file=plan.target, hint="run the import again")
    return replace_unchanged_file(target, plan.before, plan.after, changed, private=True, now=now)


def _parse_servers(text: str, name: str) -> dict[str, Server]:
    layer = layer_from_text(text, "file", name=name, approved=False)
    return dict(merge_layers([layer], {}, unapproved_reason="unread", complete=False).servers)


class _ServerMerge:
    """Servers of the target and of the files merged so far, and the new entries."""

    def __init__(self, existing: dict[str, Server]) -> None:
        self._servers_by_id = existing
        self.entries: dict[str, dict[str, JsonValue]] = {}
        self.added: list[ImportedServer] = []
        self.same: list[ImportedServer] = []
        self.hints: list[Problem] = []

    def add_file(self, file: ForeignFile, skipped_name: str | None) -> None:
        self.hints += [Problem(note, file=file.path) for note in file.notes]
        for server in file.servers:
            if server.name != skipped_name:
                self._add_server(file, server)

    def _add_server(self, file: ForeignFile, foreign: ForeignServer) -> None:
        base = sanitize_id(foreign.name)
        server, problems = _parse_entry(base, foreign.entry)
        if problems:
            reasons = "; ".join(problem.headline for problem in problems)
            self._add_hint(file, foreign, f"skipped, because it is invalid: {reasons}")
            return
        if starts_toolyard(server):
            self._add_hint(file, foreign, "skipped, because it starts Toolyard itself")
            return
        server_id = self._choose_id(base, server)
        origin = ImportedServer(server_id, file.client, file.path, foreign.name)
        if server_id in self._servers_by_id:
            self.same.append(origin)
            return
        if server_id != foreign.name:
            reason = (
                "another server has this name"
                if base == foreign.name
                else "an id cannot contain these characters"
            )
            self._add_hint(file, foreign, f"imported as '{server_id}': {reason}")
        for note in foreign.notes:
            self._add_hint(file, foreign, note)
        self._servers_by_id[server_id] = server
        self.entries[server_id] = foreign.entry
        self.added.append(origin)

    def _choose_id(self, base: str, server: Server) -> str:
        """Return the id of an identical server, or else the first free id."""
        candidate, number = base, 1
        while candidate in self._servers_by_id and not _is_same_server(
            self._servers_by_id[candidate], server
        ):
            number += 1
            suffix = f"-{number}"
            candidate = base[: MAX_ID_CHARACTERS - len(suffix)] + suffix
        return candidate

    def _add_hint(self, file: ForeignFile, foreign: ForeignServer, message: str) -> None:
        self.hints.append(Problem(message, file=file.path, path=foreign.name))


def _parse_entry(server_id: str, entry: dict[str, JsonValue]) -> tuple[Server, list[Problem]]:
    layer = replace(layer_from_mapping({"mcpServers": {server_id: entry}}, "code"), approved=False)
    server = merge_layers([layer], {}, unapproved_reason="unread").servers[server_id]
    return server, layer.servers[server_id].report.problems


def _is_same_server(one: Server, other: Server) -> bool:
    """Return whether two entries define the same server. One of them may be turned off."""
    provenance = Provenance("code")
    # Unapproved servers have a reason; those that are turned off in their entry have none.
    reason = other.disabled_reason or one.disabled_reason
    compared = replace(other, id="", provenance=provenance, disabled_reason=reason)
    return replace(one, id="", provenance=provenance) == compared
