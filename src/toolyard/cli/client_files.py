"""Adding our entry to the configuration files of other clients, and removing it."""

from __future__ import annotations

import sys
from pathlib import Path

from toolyard.cli.error_exit import Usage
from toolyard.cli.input.options import Options
from toolyard.cli.output.messages import show_note
from toolyard.cli.output.safe_text import print_json
from toolyard.cli.output.terminal import style_text
from toolyard.config.exporters.client_files import (
    EntryChange,
    find_target_file,
    plan_entry,
    resolve_entry_path,
    write_entry,
)
from toolyard.config.importers.locations import project_client_files, user_client_files
from toolyard.gateway.client_snippets import Snippet

__all__ = ["update_client_file"]


def update_client_file(
    options: Options, snippet: Snippet, *, project: bool, to: str | None, remove: bool, private: bool
) -> None:
    """Add the snippet's entry to the client's file, or remove it, and report the change.

    ``private``: the entry contains a token. Raises EditRefused if the file cannot be changed without loss,
    ConfigError if it cannot be read, and Usage if it cannot be written.
    """
    file = _find_client_file(snippet, project=project, to=to)
    plan = plan_entry(file, resolve_entry_path(file, snippet.path), None if remove else snippet.entry)
    backup = None
    if plan.change not in (EntryChange.SAME, EntryChange.ABSENT):
        try:
            backup = write_entry(plan, private=private)
        except OSError as error:
            raise Usage(f"{plan.file} cannot be written: {error.strerror or error}") from None
    if options.json:
        kept = None if backup is None else str(backup)
        print_json({"client": snippet.client, "file": str(plan.file), "change": plan.change, "backup": kept})
        return
    _print_outcome(snippet, plan.change.value, plan.file, backup)
    if private and project:
        show_note(f"there is a token in {plan.file}", "do not hand it on with the project")


def _find_client_file(snippet: Snippet, *, project: bool, to: str | None) -> Path:
    if to is not None:
        return Path(to)
    places = project_client_files(Path.cwd()) if project else user_client_files(Path.home())
    file = find_target_file(snippet.title, places)
    if file is None:
        raise Usage(f"{snippet.title} has no file of a project", hint="leave out --project")
    return file


def _print_outcome(snippet: Snippet, change: str, file: Path, backup: Path | None) -> None:
    words = {
        "added": f"{snippet.title} uses Toolyard",
        "replaced": f"{snippet.title} uses Toolyard, in another way than before,",
        "removed": f"{snippet.title} uses Toolyard no more",
        "same": f"nothing to do: it stands in {file}",
        "absent": f"nothing to do: it does not stand in {file}",
    }
    if change in ("same", "absent"):
        print(words[change])
        return
    print(f"{style_text('wrote', 'green', sys.stdout)} {file}")
    if backup is not None:
        print(f"what stood there is in {backup}")
    print(f"{words[change]} once it is started again")
