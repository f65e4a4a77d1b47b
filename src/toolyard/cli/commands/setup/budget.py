"""``toolyard budget``: what tool definitions cost in tokens, and how to spend fewer."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import click

from toolyard.catalog.token_costs import SavingKind, SavingProposal, ToolCost, propose_savings
from toolyard.cli.commands.setup.config_file import choose_target, find_stored_entry, save_plan
from toolyard.cli.database import open_existing_database
from toolyard.cli.invocation import Command, Options, Usage, open_yard, run_async
from toolyard.cli.output import console
from toolyard.cli.output.notices import failure_notices
from toolyard.cli.output.progress import ProgressIndicator
from toolyard.config.file_edits.client_records import write_client_edits
from toolyard.config.file_edits.entry_edits import EntryEdit, plan_edits, read_value, resolve_entry_path
from toolyard.config.importers.locations import find_user_files
from toolyard.config.server_entry_edits import build_denial, plan_server_edits
from toolyard.config.sources.json_document import JsonValue
from toolyard.errors import ConfigError
from toolyard.types.audit import ToolUsage

if TYPE_CHECKING:
    from toolyard.library import Toolyard
    from toolyard.types.tool import Tool

__all__ = ["command"]

_SECONDS_PER_WEEK = 7 * 86_400
_EVERYTHING = "everything"
_SCOPE_PATHS = {"agents": "agent", "bundles": "bundle", "servers": "server"}


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A client whose file has our entry, and the scope that the entry selects."""

    name: str
    title: str
    file: Path
    path: tuple[str, ...]
    entry: Mapping[str, JsonValue]
    scope: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClientTools:
    """The tools that clients or an agent see: tokens by server."""

    title: str
    tokens: Mapping[str, int]
    clients: Sequence[str] = ()

    @property
    def total(self) -> int:
        """Return the tokens of all definitions."""
        return sum(self.tokens.values())


@click.command("budget", cls=Command)
@click.option("--limit", type=click.IntRange(0), help="The budget in tokens. Default: meta_threshold.")
@click.option(
    "--weeks", type=click.IntRange(1, 520), default=4, show_default=True, help="How far to look back."
)
@click.option(
    "--apply", "chosen", type=click.Choice([kind.value for kind in SavingKind]), help="Apply this proposal."
)
@click.pass_obj
def command(options: Options, limit: int | None, weeks: int, chosen: str | None) -> int:
    """Show what the definitions of each server cost in tokens, for each client and agent, and which tools
    were not used.

    Above the budget, proposals follow: deny unused tools, bundles of the used ones, or meta mode. --apply and
    one word does it, with backups. Calls of the web app and of chats are counted; without one it is unknown
    which tools were used.
    """
    allowed = options.load_settings().meta_threshold if limit is None else limit
    clients = list(_find_connected_clients())
    views, costs, meta_tokens, usage = run_async(_measure_tool_costs(options, clients, weeks))
    proposals = propose_savings(costs, meta_tokens, allowed)
    if chosen is not None:
        proposal = next((each for each in proposals if each.kind == chosen), None)
        if proposal is None:
            raise Usage(
                f"'{chosen}' is not a current proposal", hint="run `toolyard budget` to list the proposals"
            )
        return _apply(options, proposal, clients)
    if options.json:
        console.print_json(_report_json(views, costs, usage, allowed, proposals))
        return 0
    _show_costs(views, costs, usage, weeks)
    _show_proposals(views[0].total, allowed, proposals)
    return 0


async def _measure_tool_costs(
    options: Options, clients: Sequence[ConnectedClient], weeks: int
) -> tuple[list[ClientTools], list[ToolCost], int, ToolUsage]:
    from toolyard.catalog.token_costs import estimate_tool_tokens  # not for the help
    from toolyard.core.agents import add_all_stored_agents

    def count(tools: Iterable[Tool]) -> dict[str, int]:
        tokens: dict[str, int] = {}
        for tool in tools:
            cost = estimate_tool_tokens(tool.name, tool.description, tool.input_schema)
            tokens[tool.server] = tokens.get(tool.server, 0) + cost
        return tokens

    async with open_yard(options) as yard, ProgressIndicator("listing tools", quiet=options.json):
        usage = await _read_usage(options, weeks)
        yard.agents = await add_all_stored_agents(yard.agents, yard.settings, options.resolved_data_dir)
        tools = await yard.tools(mode="direct")
        console.show_notices(failure_notices(yard.known().failures, yard.configuration))
        users = [client.title for client in clients if not client.scope]
        views = [ClientTools(_EVERYTHING, count(tools), users)]
        scopes: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for agent in yard.agents:
            scopes[("agent", agent),] = []
        for client in clients:
            if client.scope:
                scopes.setdefault(tuple(sorted(client.scope.items())), []).append(client.title)
        for scope, titles in scopes.items():
            title = ", ".join(f"{key} {value}" for key, value in scope)
            try:
                seen = await _list_scope(yard, dict(scope))
            except ConfigError as error:
                console.show_note(f"{title}: {console.one_line(error.problems[0].message)}")
            else:
                views.append(ClientTools(title, count(seen), titles))
        meta = sum(count(await yard.tools(mode="meta")).values())
        costs = [
            ToolCost(
                tool.server,
                tool.id.removeprefix(f"{tool.server}/"),
                estimate_tool_tokens(tool.name, tool.description, tool.input_schema),
                None if usage.since is None else usage.calls.get(tool.id, 0),
            )
            for tool in tools
        ]
    return views, costs, meta, usage


async def _list_scope(yard: Toolyard, scope: Mapping[str, Any]) -> list[Tool]:
    bundles = [scope["bundle"]] if "bundle" in scope else []
    agent, server, mode = (scope.get(key) for key in ("agent", "server", "mode"))
    return await yard.tools(agent=agent, bundles=bundles, server=server, mode=mode)


async def _read_usage(options: Options, weeks: int) -> ToolUsage:
    """Count the calls of the last weeks, if a server has used the data directory."""
    async with open_existing_database(options) as database:
        if database is None:
            return ToolUsage()
        return await database.usage.count_calls(time.time() - weeks * _SECONDS_PER_WEEK)


def _find_connected_clients() -> Iterable[ConnectedClient]:
    from toolyard.gateway.client_snippets import CLIENT_FORMATS, ENTRY_NAME  # not for the help

    files = {place.client: place.path for place in find_user_files(Path.home(), env=os.environ)}
    for name, known in CLIENT_FORMATS.items():
        file = files.get(known.title)
        if file is None or not file.is_file():
            continue
        try:
            path = resolve_entry_path(file, (known.key, ENTRY_NAME))
            entry = read_value(file, path)
        except ConfigError:  # `connect` and `import` report it.
            continue
        if isinstance(entry, dict):
            yield ConnectedClient(name, known.title, file, path, entry, _read_scope(entry))


def _read_scope(entry: Mapping[str, JsonValue]) -> dict[str, str]:
    """Return the agent, bundle, server and mode that an entry of ours selects."""
    url = next((entry[key] for key in ("url", "httpUrl", "serverUrl") if key in entry), None)
    if isinstance(url, str):
        steps = urlsplit(url).path.split("/")[-2:]
        return {_SCOPE_PATHS[steps[0]]: unquote(steps[1])} if steps[0] in _SCOPE_PATHS else {}
    words = [word for word in _command_words(entry) if isinstance(word, str)]
    after = words[words.index("stdio") + 1 :] if "stdio" in words else []
    options = dict(zip(after[::2], after[1::2], strict=False))
    return {
        key: options[f"--{key}"] for key in ("agent", "bundle", "server", "mode") if f"--{key}" in options
    }


def _command_words(entry: Mapping[str, JsonValue]) -> list[JsonValue]:
    command, args = entry.get("command"), entry.get("args")
    return [*(command if isinstance(command, list) else [command]), *(args if isinstance(args, list) else [])]


def _show_costs(
    views: Sequence[ClientTools], costs: Sequence[ToolCost], usage: ToolUsage, weeks: int
) -> None:
    columns = [
        console.Column("server", style="cyan", never_truncate=True),
        console.Column("tools", align_right=True),
        console.Column("not used", align_right=True),
        *(console.Column(f"~tokens: {view.title}", align_right=True) for view in views),
    ]
    servers = sorted({server for view in views for server in view.tokens})
    rows: list[list[str]] = []
    for server in servers:
        own = [each for each in costs if each.server == server]
        unused = "?" if usage.since is None else str(sum(not each.calls for each in own))
        tokens = [str(view.tokens.get(server, 0)) for view in views]
        rows.append([server or "meta tools", str(len(own)), unused, *tokens])
    rows.append(["all", str(len(costs)), "", *(str(view.total) for view in views)])
    console.show_table(columns, rows)
    for view in views:
        if view.clients:
            print(f"{', '.join(view.clients)}: {console.one_line(view.title)}")
    if usage.since is None:
        console.show_note(
            "which tools were used is not known: no calls were counted",
            "`toolyard serve` and chats count calls",
        )
    elif usage.since > time.time() - weeks * _SECONDS_PER_WEEK + 86_400:
        day = datetime.fromtimestamp(usage.since, UTC).date()
        console.show_note(f"calls are counted since {day}, so 'not used' means: not since then")


def _show_proposals(total: int, limit: int, proposals: Sequence[SavingProposal]) -> None:
    if not proposals:
        print(f"within the budget of {limit} tokens")
        return
    print(f"over the budget of {limit} tokens by {total - limit}")
    for proposal in proposals:
        count = sum(len(tools) for tools in proposal.tools.values())
        text = {
            SavingKind.TOOLS: f"deny {console.format_count(count, 'tool')} that were not used",
            SavingKind.BUNDLES: f"define bundles with the {console.format_count(count, 'used tool')}",
            SavingKind.META: "let the connected clients use the meta tools",
        }[proposal.kind]
        fits = "" if proposal.tokens <= limit else ", which is still over the budget"
        print(f"toolyard budget --apply {proposal.kind.value}: {text}; {proposal.tokens} tokens remain{fits}")


def _apply(options: Options, proposal: SavingProposal, clients: Sequence[ConnectedClient]) -> int:
    if proposal.kind is SavingKind.META:
        return _apply_meta(options, clients)
    target = choose_target(options, None, False)
    edits: list[EntryEdit] = []
    for server, tools in proposal.tools.items():
        stored = find_stored_entry(target, server)
        if proposal.kind is SavingKind.TOOLS:
            edits.append(build_denial(stored, tools))
        else:
            bundle: dict[str, JsonValue] = {"serverId": server, "mode": "direct", "allowTools": list(tools)}
            edits.append(EntryEdit(("bundles", f"{server}-used"), bundle))
    plan = plan_server_edits(target.path, edits)
    facts = save_plan(options, target, plan, f"applied '{proposal.kind.value}'")
    if options.json:
        console.print_json(facts)
    elif proposal.kind is SavingKind.BUNDLES:
        name = f"{next(iter(proposal.tools))}-used"
        console.show_note(
            "bundles only apply to clients and agents that select them",
            f"e.g. `toolyard connect cursor --write --bundle {name}`, or `bundles` of an agent",
        )
    return 0


def _apply_meta(options: Options, clients: Sequence[ConnectedClient]) -> int:
    changed: list[str] = []
    for client in clients:
        key = "command" if isinstance(client.entry.get("command"), list) else "args"
        words = client.entry.get(key)
        if not isinstance(words, list) or "stdio" not in words or client.scope:
            continue
        entry: dict[str, JsonValue] = {**client.entry, key: [*words, "--mode", "meta"]}
        edits = [EntryEdit(client.path, entry)]
        plan = plan_edits(client.file, edits)
        backup = write_client_edits(client.name, plan, edits, options.resolved_data_dir, private=False)
        changed.append(str(client.file))
        if not options.json:
            print(f"wrote {client.file}; the previous version is in {backup}")
    if options.json:
        console.print_json({"files": changed})
    elif not changed:
        console.show_note("no connected client sees all tools", "connect one with `toolyard connect --all`")
    return 0


def _report_json(
    views: Sequence[ClientTools],
    costs: Sequence[ToolCost],
    usage: ToolUsage,
    limit: int,
    proposals: Sequence[SavingProposal],
) -> dict[str, Any]:
    return {
        "limit": limit,
        "views": [
            {
                "view": view.title,
                "clients": list(view.clients),
                "tokens": view.total,
                "servers": dict(view.tokens),
            }
            for view in views
        ],
        "tools": [
            {"server": each.server, "tool": each.tool, "tokens": each.tokens, "calls": each.calls}
            for each in costs
        ],
        "usageSince": usage.since,
        "proposals": [
            {"apply": each.kind, "tokens": each.tokens, "tools": dict(each.tools)} for each in proposals
        ],
    }
