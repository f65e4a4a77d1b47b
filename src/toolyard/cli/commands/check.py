"""``toolyard check``: is everything that was written fine?"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolyard.cli.app import COMMANDS
from toolyard.cli.check_report import (
    Findings,
    examine_catalogues,
    examine_files,
    examine_issuers,
    unnamed_issuers,
)
from toolyard.cli.input.options import Command, Options
from toolyard.cli.output.messages import place_of, problem_json, show_finding
from toolyard.cli.output.safe_text import count, print_json
from toolyard.cli.output.terminal import paint
from toolyard.cli.runner import only_look, run_async
from toolyard.config.settings.table import Settings
from toolyard.errors import Problem, ToolyardError
from toolyard.types.config import Configuration
from toolyard.types.server import HttpSpec

if TYPE_CHECKING:
    from toolyard.catalog.tool_listing import Roster

__all__ = ["command"]


@click.command("check", cls=Command, short_help=COMMANDS["check"])
@click.pass_obj
def command(options: Options) -> int:
    """Check the configuration, the settings and AGENTS.md, and tell everything that is wrong at once.

    Starts nothing: what it says about tools, it knows from the stored catalogue. Notes stop nothing; exit
    code 1 means that there are problems.
    """
    found = examine_files(options)
    if found.configuration is not None and found.settings is not None:
        examine_catalogues(found, run_async(_stored(found.configuration, found.settings, found.folder)))
        examine_issuers(found, run_async(_bound(found.configuration, found.settings, found.folder)))
    found.problems.sort(key=_place)
    found.notes.sort(key=_place)
    if options.json:
        print_json(_as_json(found))
    else:
        _show(found)
    return 1 if found.problems else 0


async def _stored(configuration: Configuration, settings: Settings, folder: Path) -> Roster:
    async with only_look(configuration, settings, folder) as yard:
        return yard.known()


async def _bound(configuration: Configuration, settings: Settings, folder: Path) -> dict[str, str]:
    """Return the issuers that earlier sign-ins bound to entered clients, by server id."""
    from toolyard.store.lazy_database import LazyDatabase

    database, bound = LazyDatabase(settings, folder), dict[str, str]()
    try:
        # Trouble with the database is told by those who need it.
        with suppress(ToolyardError):
            if (storage := await database.auth()) is not None:
                for server in unnamed_issuers(configuration):
                    spec, oauth = server.transport, server.oauth
                    if isinstance(spec, HttpSpec) and oauth is not None and oauth.client_id is not None:
                        issuer = await storage.bound_issuer(spec.url, oauth.client_id)
                        bound |= {server.id: issuer} if issuer is not None else {}
    finally:
        await database.close()
    return bound


def _place(problem: Problem) -> tuple[str, int]:
    return problem.file or "", problem.line or 0


def _show(found: Findings) -> None:
    for name, text in _sources(found):
        print(f"{name:<14} {text}")
    _show_all("error", found.problems)
    _show_all("note", found.notes)
    problems = count(len(found.problems), "problem") if found.problems else "no problems"
    verdict = paint(problems, "red" if found.problems else "green", sys.stdout)
    print(f"{verdict}, {count(len(found.notes), 'note')}")


def _show_all(kind: str, problems: Iterable[Problem]) -> None:
    for problem in problems:
        show_finding(kind, place_of(problem), problem.hint, sys.stdout)


def _sources(found: Findings) -> list[tuple[str, str]]:
    """What was looked at."""
    configuration, agents = found.configuration, found.agents
    if configuration is None:
        servers = "cannot be used"
    else:
        file = configuration.file or f"no file, not even {found.folder / 'mcp.json'}"
        numbers = (
            f"{count(len(configuration.servers), 'server')}, {count(len(configuration.bundles), 'bundle')}"
        )
        servers = f"{file}: {numbers}"
    toml = found.folder / "toolyard.toml"
    there = str(toml) if toml.exists() else f"no file {toml}"
    if agents is None:
        told = f"no file {found.folder / 'AGENTS.md'}" if found.agents_file is None else "cannot be used"
    else:
        told = f"{found.agents_file}: {count(len(agents.agents), 'agent')}"
    return [
        ("configuration", servers),
        ("settings", there if found.settings is not None else "cannot be used"),
        ("agents", told),
    ]


def _as_json(found: Findings) -> dict[str, Any]:
    configuration = found.configuration
    return {
        "ok": not found.problems,
        "problems": [problem_json(problem) for problem in found.problems],
        "notes": [problem_json(problem) for problem in found.notes],
        "configuration": None
        if configuration is None
        else {
            "file": configuration.file,
            "waiting": configuration.waiting,
            "servers": {
                server.id: {"enabled": server.enabled, "disabled_reason": server.disabled_reason}
                for server in configuration.servers.values()
            },
            "bundles": list(configuration.bundles),
        },
        "agents": None if found.agents is None else [agent.id for agent in found.agents.agents],
    }
