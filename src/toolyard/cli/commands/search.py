"""``toolyard search``: find a tool by its purpose."""

from __future__ import annotations

import sys
from typing import Any

import click
from click.core import ParameterSource

from toolyard.cli.backends.backend import SearchReport, SearchRequest, open_backend
from toolyard.cli.input.completion import complete_agents, complete_bundles
from toolyard.cli.invocation import Command, Options, run_async
from toolyard.cli.output.console import Column, print_json, show_note, show_notices, show_table

__all__ = ["command"]

_SERVER_COLUMN = Column("server", never_truncate=True)
_COLUMNS = (Column("tool", style="cyan", never_truncate=True), Column("what it does"))
_MAX_DESCRIPTION_CHARACTERS = 200
_MAX_TOOLS = 1_000


@click.command("search", cls=Command)
@click.argument("words", nargs=-1)
@click.option(
    "--limit",
    type=click.IntRange(1, _MAX_TOOLS),
    default=10,
    show_default=True,
    help="Maximum number of tools.",
)
@click.option(
    "--agent", metavar="A", shell_complete=complete_agents, help="Only tools that this agent can reach."
)
@click.option(
    "--bundle",
    "bundles",
    metavar="B",
    multiple=True,
    shell_complete=complete_bundles,
    help="Select this bundle. May be repeated.",
)
@click.pass_obj
def command(
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
        print_json(_search_json(report))
        return
    from toolyard.catalog.search import summarize_description  # not for the help

    # The best match comes first; without words, the tools of one server stand together.
    by_server = not request.query.strip()
    show_table(
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
    show_notices(report.notices)
    if report.unlisted_servers:
        show_note(f"not listed yet: {', '.join(report.unlisted_servers)}", "`toolyard tools` lists them")
    elif not report.tools:
        show_note("nothing matches", "try other words")


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
