"""``toolyard tools``: list all tools, or those of an agent."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from toolyard.cli.backends.backend import PartialTools, ToolsReport, ToolsRequest, open_backend
from toolyard.cli.input.completion import complete_agents, complete_bundles, complete_servers
from toolyard.cli.invocation import Options, RemoteCommand, run_async
from toolyard.cli.output.console import print_json, show_notices
from toolyard.cli.output.progress import ProgressIndicator
from toolyard.cli.output.tools import show_tools, tools_json

__all__ = ["command"]

_PROVIDERS = ("openai", "openai-strict", "openai-responses", "anthropic", "gemini")
_UNREACHABLE_EXIT_CODE = 3


@click.command("tools", cls=RemoteCommand)
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
    request = ToolsRequest(
        agent, server, bundles, mode, fresh, provider, has_notices=not options.json, shows_hidden=show_hidden
    )
    return run_async(_list_tools(options, request))


async def _list_tools(options: Options, request: ToolsRequest) -> int:
    is_for_program = options.json or request.provider is not None
    early: set[str] = set()
    async with open_backend(options) as backend:
        async with ProgressIndicator("listing", quiet=is_for_program) as progress:

            def show_early(known: PartialTools) -> None:
                early.update(tool.name for tool in known.tools)
                progress.stop()
                show_tools(known.tools)
                progress.show_waiting(known.awaited_servers)

            report = await backend.list_tools(request, None if is_for_program else show_early)
        if report.provider_tools is not None:
            print_json(report.provider_tools)
        elif options.json:
            print_json(_listing_json(report))
        else:
            rest = [tool for tool in report.tools if tool.name not in early]
            if rest or not early or request.shows_hidden:
                show_tools(rest, report.hidden if request.shows_hidden else ())
        show_notices(report.notices)
    has_tools = bool(report.tools or report.provider_tools)
    return _UNREACHABLE_EXIT_CODE if report.failures and (not has_tools or request.server) else 0


def _listing_json(report: ToolsReport) -> dict[str, Any]:
    return {
        "tools": tools_json(report.tools),
        "listed_seconds_ago": report.listed_seconds_ago,
        "failures": report.failures,
        "set_aside": report.set_aside,
        "hidden": [asdict(each) for each in report.hidden],
    }
