"""``toolyard tools``: list all tools, or those of an agent."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from toolyard.cli.app import COMMAND_SUMMARIES
from toolyard.cli.error_exit import Usage
from toolyard.cli.input.completion import complete_agents, complete_bundles, complete_servers
from toolyard.cli.input.options import Options, RemoteCommand
from toolyard.cli.output.notice_memory import NoticeMemory
from toolyard.cli.output.notices import (
    clean_server_text,
    show_agent_problems,
    show_disabled_servers_notice,
    show_failures,
    show_hidden_tools_notice,
    show_no_servers_notice,
    show_quarantined_tools_notice,
    show_servers_without_tools,
    show_stale_listings_notice,
    show_unaccepted_tools_notice,
)
from toolyard.cli.output.progress import EARLY_OUTPUT_SECONDS, ProgressIndicator
from toolyard.cli.output.safe_text import print_json
from toolyard.cli.output.tools import show_tools, tools_json
from toolyard.cli.runner import open_yard, run_async
from toolyard.errors import ServerError, Unreachable
from toolyard.types.decision import HiddenTool
from toolyard.types.tool import Tool

if TYPE_CHECKING:
    from toolyard.yard import Toolyard

__all__ = ["command"]

_PROVIDERS = ("openai", "openai-strict", "openai-responses", "anthropic", "gemini")
_UNREACHABLE_EXIT_CODE = 3


@click.command("tools", cls=RemoteCommand, short_help=COMMAND_SUMMARIES["tools"])
@click.option("--agent", metavar="A", shell_complete=complete_agents, help="List the tools of this agent.")
@click.option("--server", metavar="S", shell_complete=complete_servers, help="Only this server.")
@click.option(
    "--bundle",
    "bundles",
    metavar="B",
    multiple=True,
    shell_complete=complete_bundles,
    help="Select this bundle. May be repeated.",
)
@click.option(
    "--mode", type=click.Choice(["direct", "meta"]), help="Override the agent's mode: meta tools or all."
)
@click.option("--all", "show_hidden", is_flag=True, help="Show hidden tools too, each with the reason.")
@click.option("--fresh", is_flag=True, help="List every server again.")
@click.option(
    "--provider", type=click.Choice(_PROVIDERS), help="Print the definitions in the JSON format of this API."
)
@click.pass_obj
def command(
    options: Options,
    agent: str | None,
    server: str | None,
    bundles: tuple[str, ...],
    mode: Any,
    show_hidden: bool,
    fresh: bool,
    provider: Any,
) -> int:
    """List the tools by name, each with the first line of its description.

    Uses the stored catalogue. Only servers that were never listed are connected to.
    """
    if options.remote is not None:
        from toolyard.cli.remote_commands import show_remote_tools  # only for --remote

        return run_async(
            show_remote_tools(
                options, agent, server, bundles, show_hidden=show_hidden, fresh=fresh, provider=provider
            )
        )
    return run_async(_list_tools(options, agent, server, bundles, mode, show_hidden, fresh, provider))


async def _list_tools(
    options: Options,
    agent: str | None,
    server: str | None,
    bundles: tuple[str, ...],
    mode: Any,
    show_hidden: bool,
    fresh: bool,
    provider: Any,
) -> int:
    import asyncio  # slow to load, and not needed for the help

    async with open_yard(options) as yard:
        if server is not None:
            _require_enabled_server(server, yard)
        machine = options.json or provider is not None
        early: list[Tool] = []
        async with ProgressIndicator("listing", quiet=machine) as progress:
            listing = asyncio.ensure_future(
                yard.tools(
                    agent=agent, bundles=bundles, server=server, provider=provider, fresh=fresh, mode=mode
                )
            )
            await asyncio.wait({listing}, timeout=EARLY_OUTPUT_SECONDS)
            if not listing.done() and not machine and server is None and mode is None:
                early = await yard.search("", limit=sys.maxsize, agent=agent, bundles=bundles)
                progress.stop()
                show_tools(early)
                known = yard.known().catalogues
                servers = yard.configuration.servers.values()
                progress.show_waiting(one.id for one in servers if one.enabled and one.id not in known)
            found: list[Any] = await listing
        roster, configuration = yard.known(), yard.configuration
        failures = {id_: error for id_, error in roster.failures.items() if server in (None, id_)}
        hidden = [each for each in yard.hidden(agent=agent, bundles=bundles) if server in (None, each.server)]
        invalid = {
            one.id: one.problem_text
            for one in configuration.servers.values()
            if one.problems and server in (None, one.id)
        }
        if provider is not None:
            print_json(found)
        elif options.json:
            print_json(_listing_json(found, yard, failures, invalid, hidden))
        else:
            shown = {tool.name for tool in early}
            rest = [tool for tool in found if tool.name not in shown]
            if rest or not early or show_hidden:
                show_tools(rest, hidden if show_hidden else ())
            show_no_servers_notice(configuration, options.resolved_data_dir)
        if not options.json:
            show_disabled_servers_notice(configuration)
            memory = NoticeMemory(options.resolved_data_dir, configuration.file)
            is_full = server is None and not show_hidden
            show_quarantined_tools_notice(roster, server, memory if is_full else None)
            show_unaccepted_tools_notice(roster, yard.locks, memory)
            show_stale_listings_notice(roster, server)
            show_failures(failures, configuration, memory if is_full else None)
            if agent is not None:
                show_agent_problems(yard.agent_problems(agent))
            if agent is None and not bundles:
                show_servers_without_tools(roster, hidden, configuration)
            show_hidden_tools_notice(hidden, are_shown=show_hidden or provider is not None)
    failed = failures or invalid
    return _UNREACHABLE_EXIT_CODE if failed and (not found or server is not None) else 0


def _require_enabled_server(server_id: str, yard: Toolyard) -> None:
    servers = yard.configuration.servers
    server = servers.get(server_id)
    if server is None:
        raise Usage(
            f"unknown server '{server_id}'", hint=f"configured servers: {', '.join(servers) or 'none'}"
        )
    if not server.enabled:
        if server.problems:
            raise Unreachable(server.problem_text, server=server_id, hint=server.problem_hint)
        cause = f"is disabled: {server.disabled_reason or 'turned off in its entry'}"
        raise Unreachable(cause, server=server_id)


def _listing_json(
    tools: list[Tool],
    yard: Toolyard,
    failures: dict[str, ServerError],
    invalid: dict[str, str],
    hidden: Sequence[HiddenTool],
) -> dict[str, Any]:
    catalogues = yard.known().catalogues
    return {
        "tools": tools_json(tools),
        "listed_seconds_ago": {server_id: round(one.age, 3) for server_id, one in catalogues.items()},
        "failures": {
            server_id: clean_server_text(error.cause, yard.configuration.servers.get(server_id))
            for server_id, error in failures.items()
        }
        | invalid,
        "set_aside": [str(one) for one in yard.known().quarantined()],
        "hidden": [asdict(each) for each in hidden],
    }
