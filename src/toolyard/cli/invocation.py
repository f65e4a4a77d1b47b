"""One run of a command: its common options, its errors and exit code, and what it opens."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TextIO, TypeVar

import click

from toolyard.cli.output.console import error_json, print_json, show_error, show_problems
from toolyard.errors import AgentsError, ConfigError, ToolyardError

if TYPE_CHECKING:
    from toolyard.config.settings.table import Settings
    from toolyard.library import Toolyard
    from toolyard.types.server import Configuration

__all__ = [
    "INTERRUPT_EXIT_CODE",
    "Command",
    "Options",
    "PositiveSeconds",
    "RemoteCommand",
    "Usage",
    "explain_write_error",
    "open_offline_yard",
    "open_yard",
    "print_outcome",
    "remote_params",
    "report_error",
    "report_os_error",
    "report_usage_error",
    "run_async",
    "shared_params",
    "unknown_server_error",
]

T = TypeVar("T")

INTERRUPT_EXIT_CODE = 130
"""Exit code after Ctrl-C, without a message."""
_BROKEN_PIPE_EXIT_CODE = 141


@dataclass(slots=True)
class Options:
    """Common options of the command line, filled while it is parsed."""

    config: str | None = None
    data_dir: str | None = None
    json: bool = False
    verbose: bool = False
    remote: str | None = None
    """URL of a running Toolyard to work on, instead of local servers."""
    token_file: str | None = None

    @property
    def resolved_data_dir(self) -> Path:
        """Return the data directory. Nothing is created."""
        from toolyard.config import default_data_dir  # the help needs no folder

        named = self.data_dir and os.path.abspath(os.path.expanduser(self.data_dir))
        return Path(named) if named else default_data_dir()

    # Both import when they are called: the help of a command needs neither.

    def load_settings(self, **overrides: object) -> Settings:
        """Return the settings of the data directory. Raises ConfigError."""
        from toolyard.config import load_settings

        return load_settings(self.resolved_data_dir, overrides=overrides)

    def load_config(self) -> Configuration:
        """Return the configuration of this command line. Raises ConfigError."""
        from toolyard.config import load_config

        return load_config(self.config, data_dir=self.resolved_data_dir)


class Command(click.Command):
    """A command with the common options."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params += shared_params()

    supports_remote: ClassVar[bool] = False

    def invoke(self, ctx: click.Context) -> Any:
        options = ctx.ensure_object(Options)
        if options.remote is not None and not self.supports_remote:
            hint = "--remote works with servers, tools, search, call, lock and restart"
            raise Usage(f"`toolyard {self.name}` does not work with --remote", hint=hint)
        _start_logging(options.verbose)
        try:
            outcome = super().invoke(ctx)
            _flush_output()
        except BrokenPipeError:
            _discard_unwritten_output()
            ctx.exit(_BROKEN_PIPE_EXIT_CODE)
        return outcome


class RemoteCommand(Command):
    """A command that can work on a running Toolyard."""

    supports_remote = True

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params += remote_params()


def remote_params() -> list[click.Parameter]:
    """Return new parameters for a running Toolyard."""
    url_help = "Use the Toolyard running at this URL. The token comes from TOOLYARD_REMOTE_TOKEN."
    file = click.Path(dir_okay=False, path_type=str)
    file_help = "With --remote: the file with the token."
    return [
        _make_option("--remote", help=url_help, metavar="URL"),
        _make_option("--token-file", help=file_help, metavar="PATH", type=file),
    ]


def shared_params() -> list[click.Parameter]:
    """Return new common parameters: each parameter belongs to one command."""
    file, folder = click.Path(path_type=str), click.Path(file_okay=False, path_type=str)
    config_help = "The configuration file. Default: the usual places."
    flag: dict[str, Any] = {"is_flag": True, "default": None}
    return [
        _make_option("--config", help=config_help, metavar="PATH", type=file),
        _make_option("--data-dir", help="The folder for Toolyard's data.", metavar="PATH", type=folder),
        _make_option("--json", help="Print JSON, including errors.", **flag),
        _make_option("-v", "--verbose", help="Log to standard error.", **flag),
    ]


def _make_option(*names: str, help: str, **attributes: Any) -> click.Option:
    return click.Option(names, expose_value=False, callback=_store_option, help=help, **attributes)


def _store_option(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    options = ctx.ensure_object(Options)
    if value is not None:
        setattr(options, str(param.name), value)


def _start_logging(verbose: bool) -> None:
    import logging  # the help needs none

    log = logging.getLogger("toolyard")
    if log.handlers:
        return
    if not verbose:
        # Commands print messages of their own for the problems that the library logs as warnings.
        log.addHandler(logging.NullHandler())
        return
    from toolyard.types.log_formatter import TextFormatter  # few commands write a log

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter("%(levelname)s %(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)


class PositiveSeconds(click.FloatRange):
    """A number above 0. Rejects ``nan``, which is neither below nor above."""

    def __init__(self) -> None:
        super().__init__(0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if isnan(seconds):
            self.fail(f"{value!r} is not a valid float.", param, ctx)
        return seconds


# Outcome and errors.


def print_outcome(options: Options, text: str, **json_fields: object) -> None:
    """Print what a command has done: a sentence, or its facts as JSON."""
    if options.json:
        print_json(json_fields)
    else:
        print(text)


class Usage(ToolyardError):
    """Raised for command lines that cannot be used."""

    exit_code = 2


def unknown_server_error(server_id: str, servers: Iterable[str]) -> Usage:
    """Return the error for a server that is not configured; ``servers`` are the ids of those that are."""
    known = ", ".join(servers) or "none"
    return Usage(f"unknown server '{server_id}'", hint=f"configured servers: {known}")


@contextmanager
def explain_write_error(file: Path | str) -> Generator[None]:
    """Raise Usage for a file that cannot be written."""
    try:
        yield
    except OSError as error:
        raise Usage(f"{file} cannot be written: {error.strerror or error}") from None


def report_error(error: ToolyardError, options: Options, **json_fields: Any) -> int:
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


def report_os_error(error: OSError, options: Options) -> int:
    """Report an error of the operating system."""
    place = f": {error.filename}" if error.filename else ""
    told = ToolyardError(f"{error.strerror or error}{place}")
    if isinstance(error, FileNotFoundError) and not place:
        told = ToolyardError("the current folder no longer exists", hint="change to another folder")
    try:
        report_error(told, options)
        _flush_output()
    except OSError:  # It is a standard stream that cannot be written.
        with suppress(OSError):
            show_error(told.cause)
    _discard_unwritten_output()
    return told.exit_code


def report_usage_error(error: click.UsageError, options: Options) -> int:
    """Report an error that Click found in the arguments."""
    path = error.ctx.command_path if error.ctx is not None else "toolyard"
    if type(error).__name__ == "NoArgsIsHelpError":
        click.echo(error.format_message(), err=True)
        return error.exit_code
    message = error.format_message().rstrip(".")
    return report_error(Usage(message[:1].lower() + message[1:], hint=f"see `{path} --help`"), options)


def _flush_output() -> None:
    """Flush buffered output. Raises BrokenPipeError if the reader is gone."""
    for stream in _get_output_streams():
        stream.flush()


def _discard_unwritten_output() -> None:
    """Stop all output after its reader has gone, including the flush at exit."""
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


# Event loop and Toolyard.


_GC_DELAY_SECONDS = 3.0
"""Loading the program takes less. It would take a tenth longer with garbage collection."""


def run_async(coroutine: Coroutine[Any, Any, T], *, gc_delay: float = _GC_DELAY_SECONDS) -> T:
    """Run a coroutine, on uvloop if that is installed. Garbage is collected after ``gc_delay`` seconds.

    Ctrl-C cancels it, so that connections close and children end before KeyboardInterrupt is raised.
    """
    import asyncio  # slow to load, and not for the help

    try:
        from uvloop import new_event_loop  # optional
    except ImportError:
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.get_loop().call_later(gc_delay, _start_garbage_collection)
        return runner.run(coroutine)


def _start_garbage_collection() -> None:
    # Loaded modules are never freed: frozen, they are not traversed again. Requests create few reference
    # cycles.
    gc.freeze()
    gc.set_threshold(20_000, 20, 5)
    gc.enable()


def open_yard(
    options: Options, configuration: Configuration | None = None
) -> AbstractAsyncContextManager[Toolyard]:
    """Open a Toolyard for this command line. ``configuration`` is used in place of the files. Raises
    ConfigError or AgentsError."""
    from toolyard.library import Toolyard  # slow to load, as the whole core is

    source = configuration or options.config
    return Toolyard.open(source, data_dir=options.resolved_data_dir)


def open_offline_yard(
    configuration: Configuration, settings: Settings, data_dir: Path
) -> AbstractAsyncContextManager[Toolyard]:
    """Open a Toolyard that only reads stored data, without agents. Writes nothing if nothing is stored."""
    from toolyard.catalog.sqlite_storage import CATALOGUE_FILE_NAME  # slow to load, as the whole core is
    from toolyard.library import Toolyard

    stored = settings.database_url is not None or (data_dir / CATALOGUE_FILE_NAME).exists()
    return Toolyard(configuration, settings, (), data_dir if stored else None)
