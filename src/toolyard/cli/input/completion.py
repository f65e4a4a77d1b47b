"""Options that take names, and the names for shell completion, from files and the stored catalogue.

Completion starts no server and prints no errors.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolyard.cli.invocation import Options
from toolyard.cli.output.console import one_line
from toolyard.errors import ToolyardError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from toolyard.catalog.tool_listing import ToolListing
    from toolyard.types.agent import Agent
    from toolyard.types.server import Configuration

__all__ = [
    "agent_option",
    "bundles_option",
    "complete_models",
    "complete_servers",
    "complete_tools",
]

Function = TypeVar("Function", bound=Callable[..., Any])

_SHELL_SAFE_PATTERN = re.compile(r"[\w.@:+/-]+")
"""Text that a shell treats as one plain word. Names from an unapproved file could otherwise be commands."""


def complete_servers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete server ids."""
    configuration = _load_configuration(ctx)
    servers = () if configuration is None else configuration.servers.values()
    return _make_items(((server.id, server.description or "") for server in servers), incomplete)


def complete_bundles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete bundle ids."""
    configuration = _load_configuration(ctx)
    bundles = () if configuration is None else configuration.bundles.values()
    return _make_items(((bundle.id, bundle.label or "") for bundle in bundles), incomplete)


def complete_agents(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete agent ids."""
    import asyncio  # only while a shell completes

    from toolyard.agents.definitions.agents_md import load_agents
    from toolyard.core.agents import add_all_stored_agents

    options = ctx.ensure_object(Options)
    agents: Mapping[str, Agent] = {}
    with contextlib.suppress(ToolyardError):
        settings, folder = options.load_settings(), options.resolved_data_dir
        agents = {each.id: each for each in load_agents(settings.agents_path, folder)}
        agents = asyncio.run(add_all_stored_agents(agents, settings, folder))
    return _make_items(((agent.id, agent.description) for agent in agents.values()), incomplete)


def complete_models(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the models of the settings."""
    try:
        settings = ctx.ensure_object(Options).load_settings()
    except ToolyardError:
        return []
    named = [(entry.name, entry.label or entry.model) for entry in settings.models]
    return _make_items([*([(settings.model, "the default")] if settings.model else []), *named], incomplete)


def complete_tools(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete exposed tool names from the stored listings."""
    options, configuration = ctx.ensure_object(Options), _load_configuration(ctx)
    if configuration is None:
        return []
    try:
        roster = _load_stored_listing(options, configuration)
    except ToolyardError:
        return []
    return _make_items(
        ((name, definition.description) for name, definition in roster.tools.items()), incomplete
    )


def _load_configuration(ctx: click.Context) -> Configuration | None:

    options = ctx.ensure_object(Options)
    try:
        return options.load_config()
    except ToolyardError:
        return None


def _load_stored_listing(options: Options, configuration: Configuration) -> ToolListing:
    """Load the stored listing as Toolyard does at start-up, without the parts for connecting, since a key
    press waits for it."""
    import asyncio  # only while a shell completes

    from toolyard.catalog.cache import CatalogueCache
    from toolyard.catalog.exposed_names import NameAssigner, NameTemplates
    from toolyard.catalog.sqlite_storage import CATALOGUE_FILE_NAME, SqliteListingStorage
    from toolyard.catalog.tool_listing import ToolListing
    from toolyard.config.fingerprint_key import fingerprint_key
    from toolyard.errors import Unreachable
    from toolyard.store.lazy_database import LazyDatabase, select_catalogue_storage
    from toolyard.types.account import LOCAL_PRINCIPAL, Principal
    from toolyard.types.tool import Catalogue, RawListing

    folder = options.resolved_data_dir
    settings = options.load_settings()
    naming = NameAssigner(NameTemplates(settings.naming_template, settings.instance_naming_template))
    if settings.database_url is None and not (folder / CATALOGUE_FILE_NAME).exists():
        return ToolListing.build(naming, {}, {})

    async def refuse_to_list(server_id: str, principal: Principal, chat: str | None = None) -> RawListing:
        raise Unreachable("a shell that completes starts nothing", server=server_id)

    async def load_catalogues() -> dict[str, Catalogue]:
        file, database = SqliteListingStorage(folder / CATALOGUE_FILE_NAME), LazyDatabase(settings, folder)
        catalogues = CatalogueCache(
            refuse_to_list,
            select_catalogue_storage(settings, file, database),
            key=lambda: fingerprint_key(settings.secret_key, folder),
        )
        servers = [server for server in configuration.servers.values() if server.enabled]
        found = {server.id: await catalogues.peek(server, LOCAL_PRINCIPAL) for server in servers}
        await database.close()
        await file.close()
        return {server_id: one for server_id, one in found.items() if one is not None}

    return ToolListing.build(naming, asyncio.run(load_catalogues()), {})


def _make_items(candidates: Iterable[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem  # only while a shell completes

    return [
        CompletionItem(name, help=one_line(text, 80) or None)
        for name, text in candidates
        if name.startswith(incomplete) and _SHELL_SAFE_PATTERN.fullmatch(name)
    ]


def agent_option(help: str) -> Callable[[Function], Function]:
    """Return the option that names an agent."""
    return click.option("--agent", metavar="A", shell_complete=complete_agents, help=help)


def bundles_option(function: Function) -> Function:
    """Add the option that selects bundles."""
    text = "Select this bundle. May be repeated."
    option = click.option(
        "--bundle", "bundles", metavar="B", multiple=True, shell_complete=complete_bundles, help=text
    )
    return option(function)
