"""``toolyard check``: validate all files."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolyard.cli.app import COMMAND_SUMMARIES
from toolyard.cli.check_report import (
    CheckReport,
    check_catalogues,
    check_files,
    examine_issuers,
    unnamed_issuers,
)
from toolyard.cli.input.options import Command, Options
from toolyard.cli.output.messages import format_problem, problem_json, show_message
from toolyard.cli.output.safe_text import format_count, print_json
from toolyard.cli.output.terminal import style_text
from toolyard.cli.runner import open_offline_yard, run_async
from toolyard.config.settings.table import Settings
from toolyard.errors import Problem, ToolyardError
from toolyard.types.config import Configuration
from toolyard.types.server import HttpSpec

if TYPE_CHECKING:
    from toolyard.catalog.tool_listing import ToolListing

__all__ = ["command"]


@click.command("check", cls=Command, short_help=COMMAND_SUMMARIES["check"])
@click.pass_obj
def command(options: Options) -> int:
    """Check the configuration, the settings and AGENTS.md, and report all problems at once.

    No server is started: findings about tools come from the stored catalogue. Notes do not affect the exit
    code; exit code 1 means that there are problems.
    """
    found = check_files(options)
    if found.configuration is not None and found.settings is not None:
        check_catalogues(
            found, run_async(_load_stored_listing(found.configuration, found.settings, found.data_dir))
        )
        examine_issuers(found, run_async(_bound(found.configuration, found.settings, found.data_dir)))
    found.problems.sort(key=_sort_key)
    found.notes.sort(key=_sort_key)
    if options.json:
        print_json(_report_json(found))
    else:
        _show_report(found)
    return 1 if found.problems else 0


async def _load_stored_listing(
    configuration: Configuration, settings: Settings, data_dir: Path
) -> ToolListing:
    async with open_offline_yard(configuration, settings, data_dir) as yard:
        return yard.known()


async def _bound(configuration: Configuration, settings: Settings, folder: Path) -> dict[str, str]:
    """Return the issuers that earlier sign-ins bound to entered clients, by server id."""
    from toolyard.store.lazy_database import LazyDatabase

    database, bound = LazyDatabase(settings, folder), dict[str, str]()
    try:
        # Problems of the database are reported by the commands that need it.
        with suppress(ToolyardError):
            if (storage := await database.open_auth_storage()) is not None:
                for server in unnamed_issuers(configuration):
                    spec, oauth = server.transport, server.oauth
                    if isinstance(spec, HttpSpec) and oauth is not None and oauth.client_id is not None:
                        issuer = await storage.get_bound_issuer(spec.url, oauth.client_id)
                        bound |= {server.id: issuer} if issuer is not None else {}
    finally:
        await database.close()
    return bound


def _sort_key(problem: Problem) -> tuple[str, int]:
    return problem.file or "", problem.line or 0


def _show_report(report: CheckReport) -> None:
    for name, text in _describe_sources(report):
        print(f"{name:<14} {text}")
    _show_problems("error", report.problems)
    _show_problems("note", report.notes)
    problems = format_count(len(report.problems), "problem") if report.problems else "no problems"
    verdict = style_text(problems, "red" if report.problems else "green", sys.stdout)
    print(f"{verdict}, {format_count(len(report.notes), 'note')}")


def _show_problems(kind: str, problems: Iterable[Problem]) -> None:
    for problem in problems:
        show_message(kind, format_problem(problem), problem.hint, sys.stdout)


def _describe_sources(report: CheckReport) -> list[tuple[str, str]]:
    """Return the files that were checked."""
    configuration, agents = report.configuration, report.agents
    if configuration is None:
        servers = "cannot be used"
    else:
        file = configuration.file or f"no file, not even {report.data_dir / 'mcp.json'}"
        numbers = (
            f"{format_count(len(configuration.servers), 'server')}, "
            f"{format_count(len(configuration.bundles), 'bundle')}"
        )
        servers = f"{file}: {numbers}"
    toml = report.data_dir / "toolyard.toml"
    there = str(toml) if toml.exists() else f"no file {toml}"
    if agents is None:
        told = f"no file {report.data_dir / 'AGENTS.md'}" if report.agents_file is None else "cannot be used"
    else:
        told = f"{report.agents_file}: {format_count(len(agents.agents), 'agent')}"
    return [
        ("configuration", servers),
        ("settings", there if report.settings is not None else "cannot be used"),
        ("agents", told),
    ]


def _report_json(report: CheckReport) -> dict[str, Any]:
    configuration = report.configuration
    return {
        "ok": not report.problems,
        "problems": [problem_json(problem) for problem in report.problems],
        "notes": [problem_json(problem) for problem in report.notes],
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
        "agents": None if report.agents is None else [agent.id for agent in report.agents.agents],
    }
