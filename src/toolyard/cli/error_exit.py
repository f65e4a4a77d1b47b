"""How a command ends badly: what is told, to whom, and with which exit code."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, Protocol, TextIO

import click

from toolyard.cli.output.messages import error_json, show_error, show_problems
from toolyard.cli.output.safe_text import print_json
from toolyard.errors import AgentsError, ConfigError, ToolyardError

__all__ = [
    "Usage",
    "ended",
    "ended_by_system",
    "flush_output",
    "interrupted",
    "show_usage_error",
    "silence_broken_pipe",
]

_INTERRUPTED = 130
_BROKEN_PIPE = 141


class HasJson(Protocol):
    """Whether a program reads what we print."""

    json: bool


class Usage(ToolyardError):
    """The words on the command line cannot be used."""

    exit_code = 2


def ended(error: ToolyardError, options: HasJson, **more: Any) -> int:
    """Tell what went wrong. ``more`` joins the JSON."""
    if options.json:
        print_json({**more, "error": error_json(error)})
    elif isinstance(error, ConfigError | AgentsError):
        show_problems(error.problems)
    else:
        # Most commands end well and need none of it.
        from toolyard.results.error_result import in_full

        server, told = getattr(error, "server", ""), in_full(error)
        show_error(f"server '{server}': {told}" if server else told, error.hint)
    return error.exit_code


def ended_by_system(error: OSError, options: HasJson) -> int:
    """Tell what the system refused."""
    place = f": {error.filename}" if error.filename else ""
    told = ToolyardError(f"{error.strerror or error}{place}")
    if isinstance(error, FileNotFoundError) and not place:
        told = ToolyardError("the folder that this runs in is gone", hint="change to one that is there")
    try:
        ended(told, options)
        flush_output()
    except OSError:  # It is a standard stream that cannot be written.
        with suppress(OSError):
            show_error(told.cause)
    _drop_unwritten()
    return told.exit_code


def show_usage_error(error: click.UsageError, options: HasJson) -> int:
    """Tell what Click found wrong with the words."""
    path = error.ctx.command_path if error.ctx is not None else "toolyard"
    if type(error).__name__ == "NoArgsIsHelpError":
        click.echo(error.format_message(), err=True)
        return error.exit_code
    message = error.format_message().rstrip(".")
    return ended(Usage(message[:1].lower() + message[1:], hint=f"see `{path} --help`"), options)


def interrupted() -> int:
    """Somebody pressed Ctrl-C: they know."""
    return _INTERRUPTED


def flush_output() -> None:
    """Write what is still held back. Raises BrokenPipeError where nobody reads it."""
    for stream in _streams():
        stream.flush()


def silence_broken_pipe() -> int:
    """The reader of our output went away. Nothing more may be written, not even at the very end."""
    _drop_unwritten()
    return _BROKEN_PIPE


def _drop_unwritten() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in _streams():
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _streams() -> list[TextIO]:
    """Those that are there: whoever starts us may have closed them."""
    streams: list[TextIO | None] = [sys.stdout, sys.stderr]
    return [stream for stream in streams if stream is not None]
