"""``toolyard import``: import the servers of other clients."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from toolyard.cli.input.prompts import ask_yes_no
from toolyard.cli.invocation import Command, Options, Usage, explain_write_error
from toolyard.cli.output import console
from toolyard.config import parse_config, plan_import, project_client_files, user_client_files, write_import
from toolyard.config.importers.locations import ClientFile
from toolyard.config.importers.merge import ImportPlan
from toolyard.config.value_checks import mask_url_secrets
from toolyard.errors import ConfigError
from toolyard.types.server import HttpSpec, Server

__all__ = ["command", "show_import_plan"]

_COLUMNS = (
    console.Column("server", style="cyan", never_truncate=True),
    console.Column(""),
    console.Column("client"),
    console.Column("command or URL", wraps=True),
    console.Column("file", wraps=True, style="dim"),
)


@click.command("import", cls=Command)
@click.argument("sources", metavar="[SOURCE]...", nargs=-1, type=click.Path(path_type=str))
@click.option(
    "--write/--dry-run", "write", default=None, help="Write the file, or only show what would be written."
)
@click.option("--to", metavar="PATH", help="The file to write. Default: mcp.json in the data directory.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.pass_obj
def command(options: Options, sources: tuple[str, ...], write: bool | None, to: str | None, yes: bool) -> int:
    """Merge the servers of other clients into one file. Existing entries stay, and a backup is made.

    SOURCE is a file, or a client: claude-desktop, claude-code, cursor, vs-code, opencode, codex, windsurf,
    zed, gemini-cli, qwen-code, copilot-cli or cline. Without one, the usual files of these clients in your
    home folder are read. Files of a project must be named, because its author may have put them there.
    """
    target = Path(to or options.config or options.resolved_data_dir / "mcp.json")
    files = _resolve_sources(sources) if sources else _find_client_files(target)
    plan = plan_import(files, target)
    if sources and not plan.added and not plan.same and plan.hints:
        raise ConfigError(plan.hints)
    if not options.json:
        _show_plan(plan, files, has_sources=bool(sources))
    backup = None
    written = bool(plan.added) and _confirm_write(plan, write, yes, options)
    if written:
        with explain_write_error(plan.target):
            backup = write_import(plan)
    if options.json:
        console.print_json(_plan_json(plan, files, backup, written))
    elif written:
        console.print_written_file(plan.target, backup)
        print("`toolyard servers` shows whether they work")
    return 0


def _find_client_files(target: Path) -> list[Path]:
    there = dict.fromkeys(
        place.path for place in user_client_files(Path.home(), env=os.environ) if place.path.is_file()
    )
    return [path for path in there if path.absolute() != target.absolute()]


def _resolve_sources(sources: tuple[str, ...]) -> list[Path]:
    places = (*user_client_files(Path.home(), env=os.environ), *project_client_files(Path.cwd()))
    files: list[Path] = []
    for source in sources:
        files += [Path(source)] if Path(source).exists() else _find_files_of_client(source, places)
    return list(dict.fromkeys(files))


def _find_files_of_client(source: str, places: tuple[ClientFile, ...]) -> list[Path]:
    mine = [place.path for place in places if _make_slug(place.client) == _make_slug(source)]
    if not mine:
        clients = ", ".join(dict.fromkeys(_make_slug(place.client) for place in places))
        raise Usage(
            f"{source}: not found, neither as a file nor as a client", hint=f"known clients: {clients}"
        )
    there = [path for path in mine if path.is_file()]
    if not there:
        looked = ", ".join(str(path) for path in mine)
        raise Usage(f"{source} has no configuration file on this machine", hint=f"searched: {looked}")
    return there


def _make_slug(client: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", client.casefold()).strip("-")


def _confirm_write(plan: ImportPlan, write: bool | None, yes: bool, options: Options) -> bool:
    if write is False:
        return False
    if yes:
        return True
    if console.is_interactive() and not options.json:
        return ask_yes_no(f"Write {console.format_count(len(plan.added), 'server')} to {plan.target}?")
    if not write and not options.json:
        console.show_note("nothing was written", "use --write to write the file")
    return bool(write)


def _show_plan(plan: ImportPlan, files: list[Path], *, has_sources: bool) -> None:
    show_import_plan(plan)
    if not has_sources:
        for place in project_client_files(Path.cwd()):
            if place.path.is_file() and place.path not in files:
                command = f"toolyard import {shlex.quote(str(place.path))}"
                console.show_note(
                    f"this folder has a configuration of {place.client}", f"import it with `{command}`"
                )
    if not files:
        console.show_note(
            "no configuration file of another client was found", "pass its path: `toolyard import PATH`"
        )
    elif not plan.added:
        console.show_note(f"nothing new for {plan.target}")


def show_import_plan(plan: ImportPlan) -> None:
    """Print the servers of the plan, and what was renamed, skipped or dropped."""
    does = _list_commands_and_addresses(plan)
    rows = [
        (one.id, console.StyledCell(word, style), one.client, does.get(one.id, ""), one.file)
        for found, word, style in ((plan.added, "new", "green"), (plan.same, "there", "dim"))
        for one in found
    ]
    if rows:
        console.show_table(_COLUMNS, rows)
    if console.is_terminal(sys.stdout) and rows:
        print()
    for hint in plan.hints:
        console.show_note(console.format_problem(hint), hint.hint)


def _list_commands_and_addresses(plan: ImportPlan) -> dict[str, str]:
    """Return the command or address of each server, with variables unexpanded."""
    try:
        servers = parse_config(plan.after).servers.values()
    except ConfigError:  # The target refers to entries of another source.
        return {}
    return {server.id: _describe_server(server) for server in servers}


def _describe_server(server: Server) -> str:
    spec = server.transport
    if isinstance(spec, HttpSpec):
        return mask_url_secrets(spec.url)
    return shlex.join((spec.command, *spec.args))


def _plan_json(plan: ImportPlan, files: list[Path], backup: Path | None, written: bool) -> dict[str, Any]:
    def shown(one: Any) -> dict[str, str]:
        return {"id": one.id, "client": one.client, "file": one.file, "name": one.name}

    return {
        "target": plan.target,
        "files": [str(file) for file in files],
        "added": [shown(one) for one in plan.added],
        "same": [shown(one) for one in plan.same],
        "notes": [asdict(hint) for hint in plan.hints],
        "written": written,
        "backup": None if backup is None else str(backup),
    }
