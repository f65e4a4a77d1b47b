"""Error reports and exit codes of commands."""

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
    "flush_output",
    "interrupt_exit_code",
    "report_error",
    "report_os_error",
    "report_usage_error",
    "silence_broken_pipe",
]

_INTERRUPT_EXIT_CODE = 130
_BROKEN_PIPE_EXIT_CODE = 141


class OutputOptions(Protocol):
    """Whether the output is read by a program."""

    json: bool


class Usage(ToolyardError):
    """Raised for command lines that cannot be used."""

    exit_code = 2


def report_error(error: ToolyardError, options: OutputOptions, **json_fields: Any) -> int:
    """Report an error. ``json_fields`` are added to the JSON output."""
    if options.json:
        print_json({**json_fields, "error": error_json(error)})
    elif isinstance(error, ConfigError | AgentsError):
        show_problems(error.problems)
    else:
        # Imported here because most commands succeed and need none of it.
        from toolyard.results.model_result import format_error_details

        server, told = getattr(error, "server", ""), format_error_details(error)
        show_error(f"server '{server}': {told}" if server else told, error.hint)
    return error.exit_code


def report_os_error(error: OSError, options: OutputOptions) -> int:
    """Report an error of the operating system."""
    place = f": {error.filename}" if error.filename else ""
    told = ToolyardError(f"{error.strerror or error}{place}")
    if isinstance(error, FileNotFoundError) and not place:
        told = ToolyardError("the current folder no longer exists", hint="change to another folder")
    try:
        report_error(told, options)
        flush_output()
    except OSError:  # It is a standard stream that cannot be written.
        with suppress(OSError):
            show_error(told.cause)
    _discard_unwritten_output()
    return told.exit_code


def report_usage_error(error: click.UsageError, options: OutputOptions) -> int:
    """Report an error that Click found in the arguments."""
    path = error.ctx.command_path if error.ctx is not None else "toolyard"
    if type(error).__name__ == "NoArgsIsHelpError":
        click.echo(error.format_message(), err=True)
        return error.exit_code
    message = error.format_message().rstrip(".")
    return report_error(Usage(message[:1].lower() + message[1:], hint=f"see `{path} --help`"), options)


def interrupt_exit_code() -> int:
    """Return the exit code after Ctrl-C, without a message."""
    return _INTERRUPT_EXIT_CODE


def flush_output() -> None:
    """Flush buffered output. Raises BrokenPipeError if the reader is gone."""
    for stream in _get_output_streams():
        stream.flush()


def silence_broken_pipe() -> int:
    """Stop all output after its reader has gone, including the flush at exit."""
    _discard_unwritten_output()
    return _BROKEN_PIPE_EXIT_CODE


def _discard_unwritten_output() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in _get_output_streams():
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _get_output_streams() -> list[TextIO]:
    """Return the standard streams that are open; our parent may have closed some."""
    streams: list[TextIO | None] = [sys.stdout, sys.stderr]
    return [stream for stream in streams if stream is not None]
