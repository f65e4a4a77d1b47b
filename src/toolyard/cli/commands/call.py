"""``toolyard call``: call a tool and print its answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from toolyard.cli.app import COMMANDS
from toolyard.cli.input.arguments import coerce_words, needs_schema, read_object
from toolyard.cli.input.completion import complete_agents, complete_bundles, complete_tools
from toolyard.cli.input.duration import Seconds
from toolyard.cli.input.options import Options, RemoteCommand
from toolyard.cli.input.prompts import arguments_to_approve, ask_while_running
from toolyard.cli.output.call_result import answer_json, show_answer
from toolyard.cli.output.media import make_folder, save_media
from toolyard.cli.output.messages import note
from toolyard.cli.output.notices import explained
from toolyard.cli.output.progress import Busy
from toolyard.cli.output.safe_text import print_json
from toolyard.cli.output.terminal import person_is_there
from toolyard.cli.runner import open_yard, run_async
from toolyard.errors import CallTimeout, ToolRefused
from toolyard.types.call import Question
from toolyard.types.result import Result
from toolyard.types.server import Timeouts

__all__ = ["command"]

_WHOLE = 2**31
"""A person, or a pipe, gets all of a result: the limit is for models."""
_SHORT_ARGUMENTS = 500
"""Characters of arguments that stand within the question."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be called, and by whom."""

    name: str
    words: tuple[str, ...]
    agent: str | None
    bundles: tuple[str, ...]
    timeout: float | None


@click.command("call", cls=RemoteCommand, short_help=COMMANDS["call"])
@click.argument("name", shell_complete=complete_tools)
@click.argument("words", metavar="['{json}' | key=value ... | -]", nargs=-1)
@click.option("--agent", metavar="A", shell_complete=complete_agents, help="As this agent.")
@click.option(
    "--bundle",
    "bundles",
    metavar="B",
    multiple=True,
    shell_complete=complete_bundles,
    help="With this bundle selected. May be repeated.",
)
@click.option(
    "--timeout",
    metavar="S",
    type=Seconds(),
    help="Seconds for all of it. Default: the server's own timeouts.",
)
@click.option("--raw", is_flag=True, help="Print the server's result as it came, in JSON.")
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
    """Call the tool NAME and print the text of its answer.

    Arguments are one JSON object, or - for JSON from standard input, or words: key=value becomes what the
    tool's schema says (a repeated key makes a list, a.b=1 leads into an object), key:=json is taken as JSON.
    """
    wanted = Wanted(name, words, agent, bundles, timeout)
    arguments = None if needs_schema(words) else read_object(words, sys.stdin)
    if save is not None:
        make_folder(save)
    if options.remote is not None:
        from toolyard.cli.remote_commands import call_remotely  # only for --remote

        result = run_async(call_remotely(options, wanted, arguments, quiet=raw or options.json))
    else:
        result = run_async(_call(options, wanted, arguments, quiet=raw or options.json))
    saved = save_media(result.media, save, name) if save is not None else ()
    if raw:
        print_json(result.raw)
    elif options.json:
        print_json(answer_json(result, saved))
    else:
        show_answer(result, saved, name)
    return 1 if result.is_error else 0


async def _call(options: Options, wanted: Wanted, arguments: dict[str, Any] | None, *, quiet: bool) -> Result:
    busy = Busy(wanted.name, quiet=quiet, verbose=options.verbose)

    async def approve(question: Question) -> bool:
        busy.stop()
        return await _approve(wanted.name, question.arguments)

    chosen = approve if person_is_there() and "-" not in wanted.words else None
    yard_made = open_yard(options, approve=chosen, settings={"result_limit": _WHOLE})
    async with yard_made as yard:
        try:
            async with busy, _bounded(wanted.timeout):
                if arguments is None:
                    tool = await yard.find(wanted.name, agent=wanted.agent, bundles=wanted.bundles)
                    arguments = coerce_words(wanted.words, tool.input_schema)
                seconds = wanted.timeout
                return await yard.call(
                    wanted.name,
                    arguments,
                    agent=wanted.agent,
                    bundles=wanted.bundles,
                    on_progress=busy.told,
                    timeouts=None if seconds is None else Timeouts(silence=seconds, call=seconds),
                )
        except TimeoutError:
            raise CallTimeout(f"'{wanted.name}' took longer than {wanted.timeout:g} s") from None
        except ToolRefused as error:
            raise explained(error, wanted.name, yard.configuration) from None


def _bounded(seconds: float | None) -> Any:
    import asyncio  # the loop that runs us

    return asyncio.timeout(seconds)


async def _approve(name: str, arguments: Mapping[str, Any]) -> bool:
    text = arguments_to_approve(arguments)
    if text is None:
        note("the arguments are too long to be shown here, so the call cannot be approved")
        return False
    if len(text) > _SHORT_ARGUMENTS or "\n" in text:
        print(text, file=sys.stderr, flush=True)
        text = "these arguments"
    return await ask_while_running(f"{name} may change something. Call it with {text}?")
