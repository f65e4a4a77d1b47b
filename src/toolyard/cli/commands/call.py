"""``toolyard call``: call a tool and print its result."""

from __future__ import annotations

import base64
import mimetypes
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import click

from toolyard.cli.backends.backend import CommandCall
from toolyard.cli.backends.selection import open_backend
from toolyard.cli.input.arguments import needs_schema, read_json_arguments
from toolyard.cli.input.completion import agent_option, bundles_option, complete_tools
from toolyard.cli.input.prompts import ask_yes_no_async, format_arguments_for_approval
from toolyard.cli.invocation import Options, PositiveSeconds, RemoteCommand, Usage, run_async
from toolyard.cli.output import console
from toolyard.cli.output.progress import ProgressIndicator
from toolyard.types.tool import Media, Result, TextBlock, TextResource

__all__ = ["command", "make_folder", "result_json", "save_media", "show_result"]

_MAX_INLINE_ARGUMENT_CHARACTERS = 500
"""Maximum length of arguments that are shown within the question."""


@click.command("call", cls=RemoteCommand)
@click.argument("name", shell_complete=complete_tools)
@click.argument("words", metavar="['{json}' | key=value ... | -]", nargs=-1)
@agent_option("Call as this agent.")
@bundles_option
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
        console.print_json(result.raw)
    elif options.json:
        console.print_json(result_json(result, saved))
    else:
        show_result(result, saved, name)
    return 1 if result.is_error else 0


async def _call_tool(options: Options, request: CommandCall, *, quiet: bool) -> Result:
    busy = ProgressIndicator(request.name, quiet=quiet, verbose=options.verbose)

    async def approve(arguments: Mapping[str, Any]) -> bool:
        busy.stop()
        return await _ask_approval(request.name, arguments)

    can_ask = console.is_interactive() and "-" not in request.argument_words
    async with open_backend(options) as backend, busy:
        return await backend.call(request, busy.on_progress, approve if can_ask else None)


async def _ask_approval(tool_name: str, arguments: Mapping[str, Any]) -> bool:
    text = format_arguments_for_approval(arguments)
    if text is None:
        console.show_note("the arguments are too long to show here, so the call cannot be approved")
        return False
    if len(text) > _MAX_INLINE_ARGUMENT_CHARACTERS or "\n" in text:
        console.print_to_stderr(text)
        text = "these arguments"
    return await ask_yes_no_async(f"{tool_name} can change data. Call it with {text}?")


def show_result(result: Result, saved_paths: Sequence[Path], tool: str) -> None:
    """Print the text on standard output, with descriptions of media; a tool error goes to standard error."""
    if result.is_error:
        console.show_error(f"{tool} returned an error: {result.text}")
        return
    media = result.media
    has_text = any(isinstance(block, TextBlock | TextResource) for block in result.blocks)
    if has_text or not media:
        text = result.text
        # On a terminal, control characters of a server are escaped; a pipe gets the text unchanged.
        sys.stdout.write(console.make_printable(text) if console.is_terminal(sys.stdout) else text)
        sys.stdout.write("" if text.endswith("\n") else "\n")
    for place, one in enumerate(media):
        where = f" -> {saved_paths[place]}" if saved_paths else ""
        if saved_paths or not has_text or one.uri is None:
            print(f"{one}{where}")
    if media and not saved_paths:
        console.show_note("media were not saved", "use --save DIR to write them to files")
    for warning in result.warnings:
        console.show_note(warning)


def result_json(result: Result, saved_paths: Sequence[Path]) -> dict[str, Any]:
    """Return the result as a JSON object. A tool's own failure also has ``error``."""
    found: dict[str, Any] = {
        "text": result.text,
        "is_error": result.is_error,
        "structured": result.structured,
        "media": [
            _media_json(one, saved_paths[place] if saved_paths else None)
            for place, one in enumerate(result.media)
        ],
        "warnings": list(result.warnings),
    }
    if result.is_error:
        found["error"] = {"kind": "ToolError", "message": result.text, "hint": None, "exit_code": 1}
    return found


def _media_json(media: Media, path: Path | None) -> dict[str, Any]:
    return {
        "kind": media.kind,
        "mime": media.mime,
        "bytes": media.size,
        "uri": media.uri,
        "file": None if path is None else str(path),
    }


_UNSAFE_NAME_CHARACTERS = re.compile(r"[^\w.-]+", re.ASCII)
_MAX_NAME_ATTEMPTS = 10_000


def make_folder(folder: Path) -> None:
    """Create the folder, before a call whose result could be lost otherwise. Raises Usage."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Usage(f"--save {folder}: cannot write there: {error.strerror or error}") from None


def save_media(media: Sequence[Media], folder: Path, tool: str) -> tuple[Path, ...]:
    """Write each item to a new file, and return the paths. Raises Usage."""
    try:
        return tuple(_write_media_file(one, folder, tool) for one in media)
    except OSError as error:
        raise Usage(f"--save {folder}: cannot write there: {error.strerror or error}") from None


def _write_media_file(media: Media, folder: Path, tool: str) -> Path:
    stem, ending = _choose_file_name(media, tool)
    content = base64.b64decode(media.data)
    for number in range(1, _MAX_NAME_ATTEMPTS):
        path = folder / (f"{stem}-{number}{ending}" if number > 1 or not media.uri else f"{stem}{ending}")
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            continue
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        return path
    raise Usage(f"--save {folder}: too many files are named {stem}")


def _choose_file_name(media: Media, tool: str) -> tuple[str, str]:
    """Return a name that cannot leave the folder, and a suffix for the media type."""
    ending = mimetypes.guess_extension(media.mime.partition(";")[0].strip()) or ".bin"
    if media.uri:
        last = PurePosixPath(unquote(urlsplit(media.uri).path)).name
        safe = _UNSAFE_NAME_CHARACTERS.sub("_", last).lstrip(".")[:100]
        if safe:
            stem, dot, own = safe.rpartition(".")
            return (stem, f".{own}") if dot and stem else (safe, ending)
    return _UNSAFE_NAME_CHARACTERS.sub("_", tool)[:100], ending
