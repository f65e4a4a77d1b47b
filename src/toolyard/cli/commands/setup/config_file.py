"""Commands that change our configuration file: ``toolyard remove``, ``enable``, ``disable`` and ``edit``. The
options and messages of these and of others.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from toolyard.cli.input.completion import complete_servers
from toolyard.cli.input.prompts import ask_yes_no
from toolyard.cli.invocation import Command, Options, Usage, explain_write_error, run_async
from toolyard.cli.output import console
from toolyard.config.file_approvals import hash_content
from toolyard.config.file_edits.entry_edits import EditEffect, EntryEdit, FileEditPlan
from toolyard.config.file_edits.text_edits import EMPTY_CONFIG, detect_newline
from toolyard.config.file_io import decode_utf8, encode_like, read_regular_file
from toolyard.config.server_entry_edits import (
    ConfigTarget,
    StoredEntry,
    find_new_problems,
    plan_server_edits,
    read_entries,
    toggle_edit,
    write_server_edits,
)
from toolyard.config.sources.json_document import JsonValue
from toolyard.config.suggestions import did_you_mean
from toolyard.errors import ConfigError

__all__ = ["choose_target", "commands", "find_stored_entry", "save_plan", "target_options"]

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def target_options(function: _Decorated) -> _Decorated:
    """Add the options that choose the file."""
    project = "Use the project's file in this folder, not your own."
    return click.option("--to", metavar="PATH", help="Use this configuration file.")(
        click.option("--project", is_flag=True, help=project)(function)
    )


def choose_target(options: Options, to: str | None, project: bool) -> ConfigTarget:
    """Return the file to change. Raises Usage if the options contradict each other."""
    if project and to is not None:
        raise Usage("--project and --to cannot be combined", hint="use only one of them")
    return ConfigTarget.choose(options.config, options.resolved_data_dir, to=to, project=project)


def find_stored_entry(target: ConfigTarget, server_id: str) -> StoredEntry:
    """Return the entry of a server. Raises Usage if the file lacks it, ConfigError if it is not JSON."""
    entries = read_entries(target.path)
    if server_id in entries:
        return entries[server_id]
    if target.shadowed_by is not None and server_id in read_entries(target.shadowed_by):
        hint = f"the server is in {target.shadowed_by}: add --project to change that file"
    else:
        hint = did_you_mean(server_id, entries) or "the file has no servers"
    raise Usage(f"{target.path} has no server '{console.one_line(server_id)}'", hint=hint)


def save_plan(
    options: Options, target: ConfigTarget, plan: FileEditPlan, done: str, *, private: bool = False
) -> dict[str, Any]:
    """Write the planned file, if it changes, and report it. ``done`` is a sentence about the change.

    With ``private``, only the owner can read the file. Returns the facts for JSON output, which the caller
    prints.
    """
    backup, needs_approval = None, False
    if plan.has_changes:
        with explain_write_error(plan.file):
            backup, needs_approval = write_server_edits(plan, options.resolved_data_dir, private=private)
        if not needs_approval:
            _record_approval(options, plan)
    if not options.json:
        _show_outcome(target, plan, done, backup, needs_approval)
    return {
        "file": str(plan.file),
        "changed": plan.has_changes,
        "backup": None if backup is None else str(backup),
        "needs_approval": needs_approval,
    }


def _show_outcome(
    target: ConfigTarget, plan: FileEditPlan, done: str, backup: Path | None, needs_approval: bool
) -> None:
    if not plan.has_changes:
        print(f"nothing to do: {plan.file} is up to date")
        return
    console.print_written_file(plan.file, backup, f": {console.one_line(done)}")
    if needs_approval:
        hint = f"review it with `toolyard approve {shlex.quote(str(plan.file))}`"
        console.show_note("the file needs your approval before it is used", hint)
    if target.shadowed_by is not None:
        console.show_note(
            f"in this folder {target.shadowed_by} is used instead",
            "add --project to change that file, or use another folder",
        )


def _record_approval(options: Options, plan: FileEditPlan) -> None:
    """Record in the audit log that a changed project file stays approved."""
    from toolyard.cli.database import record_if_database_exists  # only for files of projects
    from toolyard.config.sources.load import discover_config_path

    if discover_config_path(plan.file.parent) == plan.file:
        details = {"sha256": hash_content(plan.after)}
        run_async(record_if_database_exists(options, "config.approve", {str(plan.file): details}))


@click.command("remove", cls=Command)
@click.argument("servers", metavar="SERVER...", nargs=-1, required=True, shell_complete=complete_servers)
@target_options
@click.pass_obj
def _remove(options: Options, servers: tuple[str, ...], to: str | None, project: bool) -> int:
    """Remove servers from the configuration file. The rest of the file stays as it is, a backup is made, and
    stored sign-ins stay: `toolyard logout SERVER` deletes them, before the entry is removed."""
    target = choose_target(options, to, project)
    return _edit_each(options, target, servers, "removed", lambda entry: EntryEdit(entry.path, None))


def _make_toggle(name: str, enabled: bool, text: str) -> click.Command:
    def toggle(options: Options, servers: tuple[str, ...], to: str | None, project: bool) -> int:
        target = choose_target(options, to, project)
        return _edit_each(options, target, servers, f"{name}d", lambda entry: toggle_edit(entry, enabled))

    argument = click.argument(
        "servers", metavar="SERVER...", nargs=-1, required=True, shell_complete=complete_servers
    )
    made = click.command(name, cls=Command, help=text)
    return made(argument(target_options(click.pass_obj(toggle))))


@click.command("edit", cls=Command)
@click.argument("server", required=False, shell_complete=complete_servers)
@click.argument("changes", metavar="[KEY=VALUE]...", nargs=-1)
@target_options
@click.pass_obj
def _edit(
    options: Options, server: str | None, changes: tuple[str, ...], to: str | None, project: bool
) -> int:
    """Change keys of a server's entry: `toolyard edit files label=Files timeouts.call=60`.

    VALUE is JSON, or else a string; nothing after `=` removes the key. Without changes, the file is opened in
    your editor (VISUAL or EDITOR), and is only replaced if the result is valid. A backup is made.
    """
    target = choose_target(options, to, project)
    if changes and server is not None:
        entry = find_stored_entry(target, server)
        edits = [_parse_change(entry.path, change) for change in changes]
        plan = plan_server_edits(target.path, edits)
        done = f"changed {console.format_count(len(edits), 'key')} of '{server}'"
        return _report(options, save_plan(options, target, plan, done))
    if server is not None:
        find_stored_entry(target, server)
    return _report(options, save_plan(options, target, _edit_in_editor(target.path), "edited"))


def _edit_each(
    options: Options,
    target: ConfigTarget,
    servers: tuple[str, ...],
    done: str,
    make_edit: Callable[[StoredEntry], EntryEdit],
) -> int:
    """Make one edit for each server, all or none."""
    ids = list(dict.fromkeys(servers))
    plan = plan_server_edits(target.path, [make_edit(find_stored_entry(target, each)) for each in ids])
    names = ", ".join(f"'{each}'" for each in ids)
    return _report(options, save_plan(options, target, plan, f"{done} {names}"))


def _report(options: Options, facts: dict[str, Any]) -> int:
    if options.json:
        console.print_json(facts)
    return 0


def _parse_change(path: tuple[str, ...], change: str) -> EntryEdit:
    key, separator, text = change.partition("=")
    if not separator or not key:
        raise Usage(f"'{change}' is not of the form KEY=VALUE", hint="for example label=Files")
    try:
        value = cast("JsonValue", json.loads(text))
    except ValueError:
        value = text or None
    return EntryEdit((*path, *key.split(".")), value)


def _edit_in_editor(file: Path) -> FileEditPlan:
    before = read_regular_file(file) if file.exists() else None
    text = EMPTY_CONFIG if before is None else decode_utf8(before, str(file))
    unchanged = FileEditPlan(file, (EditEffect.SAME,), before, before or b"")
    if not console.is_interactive():
        raise Usage("an editor needs a terminal", hint="use `toolyard edit SERVER KEY=VALUE`")
    while True:
        edited = click.edit(text, extension=".json")
        if edited is None:
            return unchanged
        text = edited.replace("\n", detect_newline(text))
        plan = replace(unchanged, changes=(EditEffect.REPLACED,), after=encode_like(text, before))
        problems = find_new_problems(before, plan.after, file)
        if not problems:
            return plan if plan.after != before else unchanged
        console.show_problems(problems)
        if not ask_yes_no("Edit again?"):
            raise ConfigError(problems)


commands = {
    "remove": _remove,
    "enable": _make_toggle(
        "enable", True, "Turn servers of the configuration file on. A backup of the file is made."
    ),
    "disable": _make_toggle(
        "disable",
        False,
        "Turn servers of the configuration file off, and keep their entries. A backup of the file is made.",
    ),
    "edit": _edit,
}
