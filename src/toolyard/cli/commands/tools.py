"""``toolyard tools`` and ``search``: list all tools, or those of an agent, or find some by their purpose."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from click.core import ParameterSource

from toolyard.cli.backends.backend import PartialTools, SearchReport, SearchRequest, ToolsReport, ToolsRequest
from toolyard.cli.backends.selection import open_backend
from toolyard.cli.input.completion import agent_option, bundles_option, complete_servers
from toolyard.cli.invocation import Options, RemoteCommand, run_async
from toolyard.cli.output import console
from toolyard.cli.output.progress import ProgressIndicator
from toolyard.errors import Unreachable
from toolyard.types.call import HiddenTool
from toolyard.types.tool import Tool

__all__ = ["commands"]

_COLUMNS = (console.Column("tool", style="cyan", never_truncate=True), console.Column("what it does"))
_PROVIDERS = ("openai", "openai-strict", "openai-responses", "anthropic", "gemini")


@click.command("tools", cls=RemoteCommand)
@agent_option("List the tools of this agent.")
@click.option("--server", metavar="S", shell_complete=complete_servers, help="Only this server.")
@bundles_option
@click.option(
    "--mode", type=click.Choice(["direct", "meta"]), help="Override the agent's mode: meta tools or all."
)
@click.option("--all", "show_hidden", is_flag=True, help="Show hidden tools too, each with the reason.")
@click.option("--fresh", is_flag=True, help="List every server again.")
@click.option(
    "--provider", type=click.Choice(_PROVIDERS), help="Print the definitions in the JSON format of this API."
)
@click.pass_obj
def _tools(
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
                _show_tools(known.tools)
                progress.show_waiting(known.awaited_servers)

            report = await backend.list_tools(request, None if is_for_program else show_early)
        if report.provider_tools is not None:
            console.print_json(report.provider_tools)
        elif options.json:
            console.print_json(_listing_json(report))
        else:
            rest = [tool for tool in report.tools if tool.name not in early]
            if rest or not early or request.shows_hidden:
                _show_tools(rest, report.hidden if request.shows_hidden else ())
        console.show_notices(report.notices)
    has_tools = bool(report.tools or report.provider_tools)
    return Unreachable.exit_code if report.failures and (not has_tools or request.server) else 0


def _listing_json(report: ToolsReport) -> dict[str, Any]:
    return {
        "tools": _tools_json(report.tools),
        "listed_seconds_ago": report.listed_seconds_ago,
        "failures": report.failures,
        "set_aside": report.set_aside,
        "hidden": [asdict(each) for each in report.hidden],
    }


def _show_tools(tools: Sequence[Tool], hidden: Sequence[HiddenTool] = ()) -> None:
    """Print each tool with the first line of its description, and each hidden one with the reason."""
    rows: list[console.Row] = [(tool.name, _first_line(tool)) for tool in tools]
    for each in hidden:
        reason = f"hidden: {console.one_line(each.reason, 200)}"
        rows.append((each.name, console.StyledCell(reason, "dim")))
    if rows or not console.is_terminal(sys.stdout):
        console.show_table(_COLUMNS, sorted(rows, key=lambda row: str(row[0])))
    if console.is_terminal(sys.stdout):
        of = len({tool.server for tool in tools})
        counts = f"\n{console.format_count(len(tools), 'tool')} of {console.format_count(of, 'server')}"
        print(console.style_text(counts, "dim", sys.stdout))


def _tools_json(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return the tools as JSON."""
    return [
        {
            "name": tool.name,
            "id": tool.id,
            "server": tool.server,
            "title": tool.title,
            "description": tool.description,
            "input_schema": tool.input_schema,
            "output_schema": tool.output_schema,
            "annotations": tool.annotations,
        }
        for tool in tools
    ]


def _first_line(tool: Tool) -> str:
    text = (tool.description or tool.title or "").strip()
    return console.one_line(text.split("\n", 1)[0], 200)


_SERVER_COLUMN = console.Column("server", never_truncate=True)
_MAX_DESCRIPTION_CHARACTERS = 200
_MAX_TOOLS = 1_000


@click.command("search", cls=RemoteCommand)
@click.argument("words", nargs=-1)
@click.option(
    "--limit",
    type=click.IntRange(1, _MAX_TOOLS),
    default=10,
    show_default=True,
    help="Maximum number of tools.",
)
@agent_option("Only tools that this agent can reach.")
@bundles_option
@click.pass_obj
def _search(
    options: Options, words: tuple[str, ...], limit: int, agent: str | None, bundles: tuple[str, ...]
) -> None:
    """Find tools by WORDS that describe their purpose, in any order. The best matches come first. Without
    words, all tools are listed by server.

    Searches the stored listings and starts no server; `toolyard tools` lists.
    """
    query = " ".join(words) if words else _read_query_from_stdin()
    source = click.get_current_context().get_parameter_source("limit")
    if not query.strip() and source is ParameterSource.DEFAULT:
        limit = _MAX_TOOLS
    request = SearchRequest(query, limit, agent, bundles, has_notices=not options.json)
    run_async(_search_tools(options, request))


def _read_query_from_stdin() -> str:
    """Read the query from standard input, for a command line without words."""
    return "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read(100_000)


async def _search_tools(options: Options, request: SearchRequest) -> None:
    async with open_backend(options) as backend:
        report = await backend.search(request)
    if options.json:
        console.print_json(_search_json(report))
        return
    from toolyard.catalog.search import summarize_description  # not for the help

    # The best match comes first; without words, the tools of one server stand together.
    by_server = not request.query.strip()
    console.show_table(
        (_SERVER_COLUMN, *_COLUMNS) if by_server else _COLUMNS,
        [
            (
                *((tool.server,) if by_server else ()),
                tool.name,
                summarize_description(tool.description or tool.title or "", _MAX_DESCRIPTION_CHARACTERS),
            )
            for tool in report.tools
        ],
    )
    console.show_notices(report.notices)
    if report.unlisted_servers:
        from toolyard.cli.output.notices import LISTING_HINT  # not for the help

        console.show_note(f"not listed yet: {', '.join(report.unlisted_servers)}", LISTING_HINT)
    elif not report.tools and not by_server:
        console.show_note("nothing matches", "try other words")


def _search_json(report: SearchReport) -> dict[str, Any]:
    return {
        "tools": [
            {
                "name": tool.name,
                "id": tool.id,
                "server": tool.server,
                "description": tool.description,
                "input_schema": tool.input_schema,
            }
            for tool in report.tools
        ],
        "never_listed": report.unlisted_servers,
    }


commands = {"tools": _tools, "search": _search}
