"""Options and messages of the commands that change our configuration file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from toolyard.cli.invocation import Options, Usage, explain_write_error, run_async
from toolyard.cli.output.console import one_line, show_note, style_text
from toolyard.config.exporters.client_files import FileEditPlan
from toolyard.config.file_approvals import hash_content
from toolyard.config.server_entry_edits import ConfigTarget, StoredEntry, read_entries, write_server_edits
from toolyard.config.suggestions import did_you_mean

__all__ = ["choose_target", "find_stored_entry", "save_plan", "target_options"]

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
        hint = f"it is in {target.shadowed_by}: add --project to change that file"
    else:
        hint = did_you_mean(server_id, entries) or "the file has no servers"
    raise Usage(f"{target.path} has no server '{one_line(server_id)}'", hint=hint)


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
    print(f"{style_text('wrote', 'green', sys.stdout)} {plan.file}: {one_line(done)}")
    if backup is not None:
        print(f"the previous version is in {backup}")
    if needs_approval:
        hint = f"review it with `toolyard approve {shlex.quote(str(plan.file))}`"
        show_note("the file needs your approval before it is used", hint)
    if target.shadowed_by is not None:
        show_note(
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
