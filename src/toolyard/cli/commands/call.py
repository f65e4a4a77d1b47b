"""``toolyard call``: call a tool and print its result."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from toolyard.cli.app import COMMAND_SUMMARIES
from toolyard.cli.backends.backend import CommandCall
from toolyard.cli.backends.selection import open_backend
from toolyard.cli.input.arguments import needs_schema, read_json_arguments
from toolyard.cli.input.completion import complete_agents, complete_bundles, complete_tools
from toolyard.cli.input.options import Options, PositiveSeconds, RemoteCommand
from toolyard.cli.input.prompts import ask_yes_no_async, format_arguments_for_approval
from toolyard.cli.output.call_result import make_folder, result_json, save_media, show_result
from toolyard.cli.output.messages import show_note
from toolyard.cli.output.progress import ProgressIndicator
from toolyard.cli.output.safe_text import print_json
from toolyard.cli.output.terminal import is_interactive
from toolyard.cli.runner import run_async
from toolyard.types.tool import Result

__all__ = ["command"]

_MAX_INLINE_ARGUMENT_CHARACTERS = 500
"""Maximum length of arguments that are shown within the question."""


@click.command("call", cls=RemoteCommand, short_help=COMMAND_SUMMARIES["call"])
@click.argument("name", shell_complete=complete_tools)
@click.argument("words", metavar="['{json}' | key=value ... | -]", nargs=-1)
@click.option("--agent", metavar="A", shell_complete=complete_agents, help="Call as this agent.")
@click.option(
    "--bundle",
    "bundles",
    metavar="B",
    multiple=True,
    shell_complete=complete_bundles,
    help="Select this bundle. May be repeated.",
)
@click.option(
    "--timeout",
    metavar="S",
    type=PositiveSeconds(),
    help="Seconds for the whole call. Default: the server's timeouts.",
)
@click.option("--raw", is_flag=True, help="Print the server's unmodified result as JSON.")
@click.option(
    "--save", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="Write media to files."
)
@click.pass_obj
def command(
    options: Options,
    name: str,
    words: tuple[str, ...],
    agent: str | None,
    bundles: tuple[str, ...],
    timeout: float | None,
    raw: bool,
    save: Path | None,
) -> int:
    """Call the tool NAME and print the text of its result.

    Arguments are one JSON object, - for JSON from standard input, or words: key=value is converted by the
    tool's schema (a repeated key makes a list, a.b=1 sets a nested key), key:=json is parsed as JSON.
    """
    arguments = None if needs_schema(words) else read_json_arguments(words, sys.stdin)
    if save is not None:
        make_folder(save)
    request = CommandCall(name, arguments, words, agent, bundles, timeout)
    result = run_async(_call_tool(options, request, quiet=raw or options.json))
    saved = save_media(result.media, save, name) if save is not None else ()
    if raw:
        print_json(result.raw)
    elif options.json:
        print_json(result_json(result, saved))
    else:
        show_result(result, saved, name)
    return 1 if result.is_error else 0


async def _call_tool(options: Options, request: CommandCall, *, quiet: bool) -> Result:
    busy = ProgressIndicator(request.name, quiet=quiet, verbose=options.verbose)

    async def approve(arguments: Mapping[str, Any]) -> bool:
        busy.stop()
        return await _ask_approval(request.name, arguments)

    can_ask = is_interactive() and "-" not in request.argument_words
    async with open_backend(options) as backend, busy:
        return await backend.call(request, busy.on_progress, approve if can_ask else None)


async def _ask_approval(tool_name: str, arguments: Mapping[str, Any]) -> bool:
    text = format_arguments_for_approval(arguments)
    if text is None:
        show_note("the arguments are too long to show here, so the call cannot be approved")
        return False
    if len(text) > _MAX_INLINE_ARGUMENT_CHARACTERS or "\n" in text:
        print(text, file=sys.stderr, flush=True)
        text = "these arguments"
    return await ask_yes_no_async(f"{tool_name} can change data. Call it with {text}?")
