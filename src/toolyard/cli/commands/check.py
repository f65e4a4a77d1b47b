"""``toolyard check``: validate all files, without starting a server."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolyard.agents.definitions.agent_tools import make_no_tools_problem
from toolyard.agents.definitions.agents_md import AgentsFile, find_agents_file, read_agents_leniently
from toolyard.agents.definitions.tools_list import check_tool_patterns, may_allow_unlisted
from toolyard.catalog.exposed_names import RESERVED_NAMES, NameAssigner, NameTemplates
from toolyard.catalog.lock import lock_path, read_lock
from toolyard.catalog.lock.lock_file import detect_unpinned_package
from toolyard.cli.database import open_existing_database
from toolyard.cli.invocation import Command, Options, open_offline_yard, run_async
from toolyard.cli.output import console
from toolyard.cli.output.notices import (
    LISTING_HINT,
    UNTRUSTED_WRITE_HINT,
    find_servers_without_tools,
    find_unaccepted_tools,
)
from toolyard.config.settings.table import Settings
from toolyard.errors import AgentsError, ConfigError, Problem, ToolyardError
from toolyard.policy.agent_patterns import compile_patterns
from toolyard.policy.glob import unused_globs
from toolyard.policy.policy import select_bundles
from toolyard.registry.redirect_conflicts import find_servers_sharing_redirect
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.agent import Agent
from toolyard.types.call import HiddenTool, WriteTools
from toolyard.types.server import Bundle, Configuration, HttpSpec, Server, StdioSpec, Trust

if TYPE_CHECKING:
    from toolyard.catalog.tool_listing import ToolListing

__all__ = ["CheckReport", "check_catalogues", "check_files", "command", "examine_issuers", "unnamed_issuers"]


@dataclass(slots=True)
class CheckReport:
    """``problems`` prevent something from being used, ``notes`` do not; and the parts that could be read."""

    data_dir: Path
    problems: list[Problem] = field(default_factory=list[Problem])
    notes: list[Problem] = field(default_factory=list[Problem])
    settings: Settings | None = None
    configuration: Configuration | None = None
    agents: AgentsFile | None = None
    agents_file: Path | None = None
    stored_agents: Sequence[Agent] = ()
    """Agents that were created in the pages, and that AGENTS.md does not override."""

    @property
    def all_agents(self) -> tuple[Agent, ...]:
        """Agents of AGENTS.md and of the pages."""
        return (*(self.agents.agents if self.agents is not None else ()), *self.stored_agents)


def check_files(options: Options) -> CheckReport:
    """Read settings, configuration and AGENTS.md, each regardless of errors in the others."""
    found = CheckReport(options.resolved_data_dir)
    try:
        settings = options.load_settings()
        found.notes += settings.hints
        NameTemplates(settings.naming_template, settings.instance_naming_template)
        found.settings = settings
    except ConfigError as error:
        found.problems += error.problems
    try:
        found.configuration = options.load_config()
        found.notes += found.configuration.hints
        for server in found.configuration.servers.values():
            found.problems += server.problems
        found.notes += _find_server_notes(found.configuration)
        found.notes += _find_shared_redirects(found.configuration)
        read_lock(lock_path(found.configuration.file, found.data_dir))
    except ConfigError as error:
        found.problems += error.problems
    try:
        found.agents_file = find_agents_file((found.settings or Settings()).agents_path, found.data_dir)
        if found.agents_file is not None:
            # With problems the file is not used, but the tools of its agents are checked all the same.
            found.agents = read_agents_leniently(found.agents_file)
            found.notes += found.agents.hints
            found.problems += found.agents.problems
    except AgentsError as error:
        found.problems += error.problems
    if found.configuration is not None:
        for agent in found.all_agents:
            found.problems += _find_unknown_bundles(agent, found.configuration)
    return found


def _find_server_notes(configuration: Configuration) -> Iterator[Problem]:
    for server in configuration.servers.values():
        if server.problems:
            continue
        if not server.enabled:
            yield _make_problem(server, f"is disabled: {server.disabled_reason or 'turned off in its entry'}")
        elif isinstance(server.transport, StdioSpec):
            package = detect_unpinned_package(server.transport)
            if package is not None:
                message = f"runs the latest version of '{package}', which can change at any time"
                yield _make_problem(server, message, "pin a version in its entry")


def _find_shared_redirects(configuration: Configuration) -> Iterator[Problem]:
    sharing = find_servers_sharing_redirect(configuration.servers.values())
    for name in sharing:
        others = ", ".join(f"'{other}'" for other in sharing if other != name)
        yield _make_problem(
            configuration.servers[name],
            f"its client id has the same redirect URI as {others} at another issuer",
            'register a redirect URI for its issuer only, then set "issuerRedirect": true',
        )


def _find_unknown_bundles(agent: Agent, configuration: Configuration) -> list[Problem]:
    try:
        select_bundles(agent.bundles, configuration.bundles)
    except ConfigError as error:
        return [
            replace(problem, file=agent.file, line=agent.line, path=f"{agent.name}.bundles")
            for problem in error.problems
        ]
    return []


def check_catalogues(
    report: CheckReport, tool_listing: ToolListing, hidden: Sequence[HiddenTool] = ()
) -> None:
    """Add findings from the stored listings: renamed and quarantined tools, servers whose tools are all
    ``hidden``, rules and patterns that match no tool."""
    configuration, settings = report.configuration, report.settings
    if configuration is None or settings is None:
        return
    servers = configuration.servers
    for server, message, hint in find_servers_without_tools(tool_listing, hidden, configuration):
        report.notes.append(_make_problem(server, message, hint))
    for renamed in tool_listing.names.renamed_tools:
        report.notes.append(_make_problem(servers[renamed.target.server_id], str(renamed)))
    for catalogue in tool_listing.catalogues.values():
        server = servers[catalogue.server_id]
        # Their texts name the server.
        texts = map(str, (*catalogue.quarantined, *catalogue.contents.remarks))
        report.notes += [replace(_make_problem(server, text), path=None) for text in texts]
        names = [definition.name for definition in catalogue.definitions]
        report.notes += _find_unused_patterns(server, names)
        for bundle in configuration.bundles.values():
            if bundle.server_id == server.id:
                report.notes += _find_unused_patterns(bundle, names)
    naming = NameAssigner(NameTemplates(settings.naming_template, settings.instance_naming_template))
    unlisted = [server for server in servers.values() if server.id not in tool_listing.catalogues]
    for server in unlisted:
        if server.enabled and server.trust is Trust.UNTRUSTED and settings.write_tools is WriteTools.REJECT:
            message = "will offer nothing: it is untrusted, and write_tools is 'reject'"
            report.notes.append(_make_problem(server, message, UNTRUSTED_WRITE_HINT))
    waiting = [server for server in unlisted if server.enabled]
    if len(waiting) == 1:
        message = "has not been listed yet, so its tools are unknown"
        report.notes.append(_make_problem(waiting[0], message, LISTING_HINT))
    elif waiting:
        names = ", ".join(server.id for server in waiting)
        message = f"not listed yet, so their tools are unknown: {names}"
        report.notes.append(Problem(message, hint=LISTING_HINT))
    prefixes = {naming.prefix(server.id): server.id for server in unlisted}
    enabled_prefixes = {naming.prefix(server.id): server.id for server in waiting}
    known = [*tool_listing.tools, *RESERVED_NAMES]
    for agent in report.all_agents:
        told = check_tool_patterns(agent, known, prefixes)
        report.problems += told.errors
        report.notes += told.warnings
        if agent.tools is None or may_allow_unlisted(agent, enabled_prefixes):
            continue
        matching = set(filter(compile_patterns(agent.tools).allows, known))
        if matching <= {tool.name for tool in hidden}:
            report.notes.append(make_no_tools_problem(agent, hidden))


def unnamed_issuers(configuration: Configuration) -> list[Server]:
    """Return the servers with a client secret or key whose entry does not name its issuer."""
    return [
        server
        for server in configuration.servers.values()
        if server.enabled
        and server.oauth is not None
        and server.oauth.issuer is None
        and (server.oauth.client_secret or server.oauth.private_key_file)
    ]


def examine_issuers(found: CheckReport, bound: Mapping[str, str]) -> None:
    """Propose the issuer of each client secret. ``bound`` holds the issuers of earlier sign-ins by server."""
    for server in unnamed_issuers(found.configuration) if found.configuration is not None else ():
        issuer = bound.get(server.id)
        message = "its client secret or key is not sent anywhere until an issuer is confirmed"
        if issuer is not None:
            message = f"its client secret or key is sent to {issuer}, as at an earlier sign-in"
        hint = f'add "issuer": "{issuer or "https://…"}" under its \'oauth\''
        if issuer is None:
            hint += f", or run `toolyard login {server.id}`, which shows the issuer that the server names"
        found.notes.append(_make_problem(server, message, hint))


def _find_unused_patterns(entry: Server | Bundle, tool_names: list[str]) -> Iterator[Problem]:
    for key, globs in (("allowTools", entry.allow_tools), ("denyTools", entry.deny_tools)):
        for glob in unused_globs(globs or (), tool_names):
            yield _make_problem(entry, f"'{glob}' in {key} matches no tool of the server")


def _make_problem(entry: Server | Bundle, message: str, hint: str | None = None) -> Problem:
    place = entry.provenance
    file = place.file or (None if place.source == "file" else place.source)
    what = "server" if isinstance(entry, Server) else "bundle"
    return Problem(message, file=file, line=place.line, path=f"{what} '{entry.id}'", hint=hint)


@click.command("check", cls=Command)
@click.pass_obj
def command(options: Options) -> int:
    """Check the configuration, the settings and AGENTS.md, and report all problems at once.

    No server is started: findings about tools come from the stored catalogue. Notes do not affect the exit
    code; exit code 1 means that there are problems.
    """
    found = check_files(options)
    if found.configuration is not None and found.settings is not None:
        tool_listing, hidden, unaccepted = run_async(
            _load_stored_listing(found.configuration, found.settings, found.data_dir)
        )
        bound = run_async(_read_database(options, found, found.configuration))
        check_catalogues(found, tool_listing, hidden)
        if unaccepted is not None:
            found.notes.append(Problem(unaccepted.text, hint=unaccepted.hint))
        examine_issuers(found, bound)
    found.problems.sort(key=_sort_key)
    found.notes.sort(key=_sort_key)
    if options.json:
        console.print_json(_report_json(found))
    else:
        _show_report(found)
    return 1 if found.problems else 0


async def _load_stored_listing(
    configuration: Configuration, settings: Settings, data_dir: Path
) -> tuple[ToolListing, list[HiddenTool], console.Notice | None]:
    async with open_offline_yard(configuration, settings, data_dir) as yard:
        listing = yard.known()
        return listing, yard.hidden(), find_unaccepted_tools(listing, yard.locks)


async def _read_database(
    options: Options, found: CheckReport, configuration: Configuration
) -> dict[str, str]:
    """Add the agents of the pages. Return the issuers that earlier sign-ins bound to entered clients, by
    server id."""
    from toolyard.core.agents import merge_agents  # not for the help

    bound: dict[str, str] = {}
    # Problems of the database are reported by the commands that need it.
    with suppress(ToolyardError):
        async with open_existing_database(options) as database:
            if database is None:
                return bound
            file_agents = {each.id: each for each in found.all_agents}
            merged = merge_agents(file_agents, await database.agents.list_agents(LOCAL_PRINCIPAL.id))
            found.stored_agents = [each for id_, each in merged.items() if id_ not in file_agents]
            for agent in found.stored_agents:
                found.problems += _find_unknown_bundles(agent, configuration)
            for server in unnamed_issuers(configuration):
                spec, oauth = server.transport, server.oauth
                if isinstance(spec, HttpSpec) and oauth is not None and oauth.client_id is not None:
                    issuer = await database.auth.get_bound_issuer(spec.url, oauth.client_id, for_secret=True)
                    bound |= {server.id: issuer} if issuer is not None else {}
    return bound


def _sort_key(problem: Problem) -> tuple[str, int]:
    return problem.file or "", problem.line or 0


def _show_report(report: CheckReport) -> None:
    for name, text in _describe_sources(report):
        print(f"{name:<14} {text}")
    _show_problems("error", report.problems)
    _show_problems("note", report.notes)
    problems = console.format_count(len(report.problems), "problem") if report.problems else "no problems"
    verdict = console.style_text(problems, "red" if report.problems else "green", sys.stdout)
    print(f"{verdict}, {console.format_count(len(report.notes), 'note')}")


def _show_problems(kind: str, problems: Iterable[Problem]) -> None:
    for problem in problems:
        console.show_message(kind, console.format_problem(problem), problem.hint, sys.stdout)


def _describe_sources(report: CheckReport) -> list[tuple[str, str]]:
    """Return the files that were checked."""
    configuration, agents = report.configuration, report.agents
    if configuration is None:
        servers = "cannot be used"
    else:
        file = configuration.file or f"no file, not even {report.data_dir / 'mcp.json'}"
        numbers = (
            f"{console.format_count(len(configuration.servers), 'server')}, "
            f"{console.format_count(len(configuration.bundles), 'bundle')}"
        )
        servers = f"{file}: {numbers}"
    toml = report.data_dir / "toolyard.toml"
    there = str(toml) if toml.exists() else f"no file {toml}"
    if agents is None or agents.problems:
        told = f"no file {report.data_dir / 'AGENTS.md'}" if report.agents_file is None else "cannot be used"
    else:
        told = f"{report.agents_file}: {console.format_count(len(agents.agents), 'agent')}"
    if report.stored_agents:
        told += f"; {console.format_count(len(report.stored_agents), 'agent')} created in the pages"
    return [
        ("configuration", servers),
        ("settings", there if report.settings is not None else "cannot be used"),
        ("agents", told),
    ]


def _has_usable_agents(report: CheckReport) -> bool:
    return bool(report.stored_agents) if report.agents is None else not report.agents.problems


def _report_json(report: CheckReport) -> dict[str, Any]:
    configuration = report.configuration
    return {
        "ok": not report.problems,
        "problems": [asdict(problem) for problem in report.problems],
        "notes": [asdict(problem) for problem in report.notes],
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
        "agents": [agent.id for agent in report.all_agents] if _has_usable_agents(report) else None,
    }
