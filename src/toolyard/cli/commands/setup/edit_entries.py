"""``toolyard remove``, ``enable``, ``disable`` and ``edit``: change entries of the configuration file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click

from toolyard.cli.commands.setup.config_file import (
    choose_target,
    find_stored_entry,
    save_plan,
    target_options,
)
from toolyard.cli.input.completion import complete_servers
from toolyard.cli.input.prompts import ask_yes_no
from toolyard.cli.invocation import Command, Options, Usage
from toolyard.cli.output.console import format_count, is_interactive, print_json, show_problems
from toolyard.config.exporters.client_files import EditEffect, EntryEdit, FileEditPlan
from toolyard.config.exporters.text_edits import detect_newline
from toolyard.config.files import decode_utf8, encode_like, read_regular_file
from toolyard.config.server_entry_edits import (
    ConfigTarget,
    StoredEntry,
    find_new_problems,
    plan_server_edits,
    toggle_edit,
)
from toolyard.config.sources.json_document import JsonValue
from toolyard.errors import ConfigError

__all__ = ["commands"]

_EMPTY_CONFIG = '{\n  "mcpServers": {}\n}\n'


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
        done = f"changed {format_count(len(edits), 'key')} of '{server}'"
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
        print_json(facts)
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
    text = _EMPTY_CONFIG if before is None else decode_utf8(before, str(file))
    unchanged = FileEditPlan(file, (EditEffect.SAME,), before, before or b"")
    if not is_interactive():
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
        show_problems(problems)
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
