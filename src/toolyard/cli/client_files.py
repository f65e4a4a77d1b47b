"""The configuration files of other clients, with our entry in them or without it."""

from __future__ import annotations

import sys
from pathlib import Path

from toolyard.cli.error_exit import Usage
from toolyard.cli.input.options import Options
from toolyard.cli.output.messages import note
from toolyard.cli.output.safe_text import print_json
from toolyard.cli.output.terminal import paint
from toolyard.config.exporters.client_files import Change, plan_entry, write_entry
from toolyard.config.exporters.targets import path_in, target_file
from toolyard.config.importers.locations import known_places, project_places
from toolyard.gateway.client_snippets import Snippet

__all__ = ["change_file"]


def change_file(
    options: Options, made: Snippet, *, project: bool, to: str | None, remove: bool, private: bool
) -> None:
    """Put the snippet's entry into the client's file, or take it out, and tell what came of it.

    ``private``: there is a token in it. Raises EditRefused where that cannot be done without loss,
    ConfigError where the file cannot be read, Usage where it cannot be written.
    """
    file = _file(made, project=project, to=to)
    plan = plan_entry(file, path_in(file, made.path), None if remove else made.entry)
    backup = None
    if plan.change not in (Change.SAME, Change.ABSENT):
        try:
            backup = write_entry(plan, private=private)
        except OSError as error:
            raise Usage(f"{plan.file} cannot be written: {error.strerror or error}") from None
    if options.json:
        kept = None if backup is None else str(backup)
        print_json({"client": made.client, "file": str(plan.file), "change": plan.change, "backup": kept})
        return
    _tell(made, plan.change.value, plan.file, backup)
    if private and project:
        note(f"there is a token in {plan.file}", "do not hand it on with the project")


def _file(made: Snippet, *, project: bool, to: str | None) -> Path:
    if to is not None:
        return Path(to)
    places = project_places(Path.cwd()) if project else known_places(Path.home())
    file = target_file(made.title, places)
    if file is None:
        raise Usage(f"{made.title} has no file of a project", hint="leave out --project")
    return file


def _tell(made: Snippet, change: str, file: Path, backup: Path | None) -> None:
    words = {
        "added": f"{made.title} uses Toolyard",
        "replaced": f"{made.title} uses Toolyard, in another way than before,",
        "removed": f"{made.title} uses Toolyard no more",
        "same": f"nothing to do: it stands in {file}",
        "absent": f"nothing to do: it does not stand in {file}",
    }
    if change in ("same", "absent"):
        print(words[change])
        return
    print(f"{paint('wrote', 'green', sys.stdout)} {file}")
    if backup is not None:
        print(f"what stood there is in {backup}")
    print(f"{words[change]} once it is started again")
