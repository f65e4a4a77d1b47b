"""``toolyard connect --all`` and ``toolyard disconnect``: all clients of this machine at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolyard.cli.input.prompts import ask_yes_no
from toolyard.cli.invocation import Command, Options, Usage
from toolyard.cli.output import console
from toolyard.config.file_edits.client_records import (
    UndoPlan,
    plan_undo,
    read_client_records,
    write_client_edits,
    write_undo,
)
from toolyard.config.file_edits.entry_edits import (
    EditEffect,
    EntryEdit,
    FileEditPlan,
    plan_edits,
    read_value,
    resolve_entry_path,
)
from toolyard.config.importers.locations import find_user_files, user_client_files
from toolyard.config.importers.merge import ImportPlan, plan_import, write_import
from toolyard.errors import ConfigError, Problem

if TYPE_CHECKING:
    from toolyard.gateway.client_snippets import ConnectionMethod

__all__ = ["commands", "connect_all"]

_COLUMNS = (
    console.Column("client", style="cyan", never_truncate=True),
    console.Column("change"),
    console.Column("turned off there", wraps=True),
    console.Column("file", wraps=True, style="dim"),
)
_CHANGE_WORDS = {
    EditEffect.ADDED: "gets Toolyard",
    EditEffect.REPLACED: "gets the new entry",
    EditEffect.REMOVED: "loses Toolyard",
    EditEffect.SAME: "has it already",
    EditEffect.ABSENT: "has no entry",
}


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """Planned change of a client's file; ``disabled`` are its own servers that are turned off."""

    client: str
    title: str
    plan: FileEditPlan
    edits: tuple[EntryEdit, ...]
    disabled: tuple[str, ...] = ()


def connect_all(options: Options, method: ConnectionMethod, *, replaces: bool, yes: bool) -> int:
    """Write the entry into the file of every client that is found, after one preview and confirmation.

    With ``replaces``, the servers of these clients are imported, and their own entries are turned off.
    """
    found = {place.client: place.path for place in find_user_files(Path.home(), env=os.environ)}
    if not found:
        raise Usage("no supported MCP client was found on this machine", hint="see `toolyard connect --help`")
    files = [path for path in found.values() if path.is_file()]
    imported = _plan_import(options, files) if replaces else None
    plans, failures = _plan_clients(found, method, imported)
    if not options.json:
        _show_plans(plans, failures, imported)
    changed = [plan for plan in plans if plan.plan.has_changes]
    is_import = imported is not None and bool(imported.added)
    written = bool(changed or is_import) and _confirm(options, yes, len(changed) + is_import)
    backups: dict[str, str | None] = {}
    if written:
        # Ours first: no server is turned off there before it is here.
        if imported is not None and is_import:
            backups[imported.target] = _report_file(options, Path(imported.target), write_import(imported))
        is_private, folder = method.token is not None, options.resolved_data_dir
        backups |= _write_files(
            options,
            {
                each.plan.file: partial(
                    write_client_edits, each.client, each.plan, each.edits, folder, private=is_private
                )
                for each in changed
            },
            failures,
        )
        if not options.json:
            print("restart the clients to use Toolyard; `toolyard disconnect --all` undoes the changes")
    if options.json:
        _print_plans(plans, failures, written, backups, imported)
    return 2 if failures else 0


def _plan_import(options: Options, files: Sequence[Path]) -> ImportPlan:
    from toolyard.gateway.client_snippets import ENTRY_NAME  # not for the help

    target = Path(options.config or options.resolved_data_dir / "mcp.json")
    return plan_import(files, target, skipped_name=ENTRY_NAME)


def _plan_clients(
    found: dict[str, Path], method: ConnectionMethod, imported: ImportPlan | None
) -> tuple[list[ClientPlan], list[ConfigError]]:
    from toolyard.gateway.client_snippets import CLIENT_FORMATS, build_snippet

    plans: list[ClientPlan] = []
    failures: list[ConfigError] = []
    for client, known in CLIENT_FORMATS.items():
        file = found.get(known.title)
        if file is None:
            continue
        try:
            snippet = build_snippet(client, method)
            path = resolve_entry_path(file, snippet.path)
            names = [] if imported is None else _list_own_servers(file, path, imported)
            edits = [EntryEdit(path, dict(snippet.entry))]
            edits += [_make_disabling_edit((*path[:-1], name), known.disabling) for name in names]
            plan = plan_edits(file, edits, drop_comments=bool(names))
        except ValueError as error:
            console.show_note(f"{known.title}: {error}")
        except ConfigError as error:
            failures.append(error)
        else:
            turned_off = [
                name for name, change in zip(names, plan.changes[1:], strict=True) if change.changes_file
            ]
            plans.append(ClientPlan(client, known.title, plan, tuple(edits), tuple(turned_off)))
    return plans, failures


def _list_own_servers(file: Path, path: Sequence[str], imported: ImportPlan) -> list[str]:
    """Return the names of the client's servers that came over, as far as they are beside our entry."""
    if not file.is_file():
        return []
    table = read_value(file, path[:-1])
    moved = {each.name for each in (*imported.added, *imported.same) if Path(each.file) == file}
    return [name for name in table if name in moved] if isinstance(table, dict) else []


def _make_disabling_edit(path: tuple[str, ...], disabling: tuple[str, bool] | None) -> EntryEdit:
    """Turn a server off by the client's own key; a client without one loses the entry until `disconnect`."""
    return EntryEdit(path, None) if disabling is None else EntryEdit((*path, disabling[0]), disabling[1])


def _confirm(options: Options, yes: bool, files: int) -> bool:
    if yes:
        return True
    if console.is_interactive() and not options.json:
        return ask_yes_no(f"Write {console.format_count(files, 'file')}? A backup of each is kept.")
    if not options.json:
        console.show_note("nothing was written", "use --yes to write the files")
    return False


def _show_plans(
    plans: Sequence[ClientPlan], failures: Sequence[ConfigError], imported: ImportPlan | None
) -> None:
    if imported is not None and (imported.added or imported.hints):
        from toolyard.cli.commands.import_ import show_import_plan  # only with --replace

        show_import_plan(imported)
    console.show_table(
        _COLUMNS,
        (
            (
                each.title,
                console.StyledCell(
                    _CHANGE_WORDS[each.plan.change], "green" if each.plan.has_changes else "dim"
                ),
                ", ".join(each.disabled),
                str(each.plan.file),
            )
            for each in plans
        ),
    )
    _show_failures(failures)


def _write_files(
    options: Options, writes: Mapping[Path, Callable[[], Path | None]], failures: list[ConfigError]
) -> dict[str, str | None]:
    """Write each file and return the paths of the backups. A file that cannot be written does not stop the
    others."""
    backups: dict[str, str | None] = {}
    for file, write in writes.items():
        try:
            backups[str(file)] = _report_file(options, file, write())
        except ConfigError as error:
            failures.append(error)
        except OSError as error:
            failures.append(
                ConfigError([Problem(f"cannot be written: {error.strerror or error}", str(file))])
            )
        else:
            continue
        _show_failures(failures[-1:])
    return backups


def _show_failures(failures: Sequence[ConfigError]) -> None:
    for failure in failures:
        for problem in failure.problems:
            console.show_note(console.format_problem(problem), problem.hint)


def _report_file(options: Options, file: Path, backup: Path | None) -> str | None:
    if not options.json:
        kept = "" if backup is None else f"; the previous version is in {backup}"
        done = "wrote" if file.exists() else "removed"
        print(f"{console.style_text(done, 'green', sys.stdout)} {file}{kept}")
    return None if backup is None else str(backup)


def _print_plans(
    plans: Sequence[ClientPlan],
    failures: Sequence[ConfigError],
    written: bool,
    backups: dict[str, str | None],
    imported: ImportPlan | None = None,
) -> None:
    facts: dict[str, Any] = {
        "clients": [
            {
                "client": each.client,
                "file": str(each.plan.file),
                "change": each.plan.change,
                "disabled": list(each.disabled),
                "backup": backups.get(str(each.plan.file)),
            }
            for each in plans
        ],
        "problems": [problem.headline for failure in failures for problem in failure.problems],
        "imported": [] if imported is None else [each.id for each in imported.added],
        "written": written,
    }
    console.print_json(facts)


@click.command("disconnect", cls=Command)
@click.argument("client", required=False)
@click.option("--all", "is_all", is_flag=True, help="All clients.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.pass_obj
def _disconnect(options: Options, client: str | None, is_all: bool, yes: bool) -> int:
    """Remove Toolyard from the file of a client, or of all, and turn on again what `connect --replace`
    turned off.

    A file that nobody edited since gets exactly its old content. Later edits are kept. Imported servers stay
    in Toolyard.
    """
    from toolyard.gateway.client_snippets import CLIENT_FORMATS, ENTRY_NAME  # not for the help

    if is_all is (client is not None):
        raise Usage("name a client, or use --all", hint=f"known clients: {', '.join(CLIENT_FORMATS)}")
    if client is not None and client not in CLIENT_FORMATS:
        raise Usage(f"unknown client '{client}'", hint=f"known clients: {', '.join(CLIENT_FORMATS)}")
    records = read_client_records(options.resolved_data_dir)
    undos: list[tuple[ClientPlan, UndoPlan]] = []
    failures: list[ConfigError] = []
    for name, known in CLIENT_FORMATS.items():
        if client not in (None, name):
            continue
        own = [
            place.path
            for place in user_client_files(Path.home(), env=os.environ)
            if place.client == known.title
        ]
        recorded = [Path(file) for file, record in records.items() if record.client == name]
        for file in dict.fromkeys(path for path in (*own, *recorded) if path.is_file()):
            try:
                path = resolve_entry_path(file, (known.key, ENTRY_NAME))
                undo = plan_undo(file, path, records.get(str(file)))
            except ConfigError as error:
                failures.append(error)
            else:
                if undo.plan.has_changes or str(file) in records:
                    undos.append((ClientPlan(name, known.title, undo.plan, ()), undo))
    plans = [plan for plan, _ in undos]
    if not options.json:
        _show_plans(plans, failures, None)
    if not undos and not options.json:
        console.show_note("no client has an entry for Toolyard")
    written = bool(undos) and _confirm(options, yes or client is not None, len(undos))
    folder = options.resolved_data_dir
    writes = {undo.plan.file: partial(write_undo, undo, folder) for _, undo in undos} if written else {}
    backups = _write_files(options, writes, failures)
    if options.json:
        _print_plans(plans, failures, written, backups)
    return 2 if failures else 0


commands = {"disconnect": _disconnect}
