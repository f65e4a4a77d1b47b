"""Options that every command accepts, before or after its name."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, ClassVar

import click

from toolyard.cli.error_exit import Usage, flush_output, silence_broken_pipe

__all__ = ["Command", "Options", "PositiveSeconds", "RemoteCommand", "remote_params", "shared_params"]


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


class Command(click.Command):
    """A command with the common options."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params += shared_params()

    supports_remote: ClassVar[bool] = False

    def invoke(self, ctx: click.Context) -> Any:
        options = ctx.ensure_object(Options)
        if options.remote is not None and not self.supports_remote:
            hint = "--remote works with servers, tools, call, lock and restart"
            raise Usage(f"`toolyard {self.name}` does not work with --remote", hint=hint)
        _start_logging(options.verbose)
        try:
            outcome = super().invoke(ctx)
            flush_output()
        except BrokenPipeError:
            ctx.exit(silence_broken_pipe())
        return outcome


class RemoteCommand(Command):
    """A command that can work on a running Toolyard."""

    supports_remote = True

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params += remote_params()


def remote_params() -> list[click.Parameter]:
    """Return new parameters for a running Toolyard."""
    return [
        click.Option(
            ["--remote"],
            metavar="URL",
            expose_value=False,
            callback=_store_option,
            help="Use the Toolyard running at this URL. The token comes from TOOLYARD_REMOTE_TOKEN.",
        ),
        click.Option(
            ["--token-file"],
            metavar="PATH",
            type=click.Path(dir_okay=False, path_type=str),
            expose_value=False,
            callback=_store_option,
            help="With --remote: the file with the token.",
        ),
    ]


def shared_params() -> list[click.Parameter]:
    """Return new common parameters: each parameter belongs to one command."""
    return [
        click.Option(
            ["--config"],
            metavar="PATH",
            type=click.Path(path_type=str),
            expose_value=False,
            callback=_store_option,
            help="The configuration file. Default: the usual places.",
        ),
        click.Option(
            ["--data-dir"],
            metavar="PATH",
            type=click.Path(file_okay=False, path_type=str),
            expose_value=False,
            callback=_store_option,
            help="The folder for Toolyard's data.",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            default=None,
            expose_value=False,
            callback=_store_option,
            help="Print JSON, including errors.",
        ),
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            default=None,
            expose_value=False,
            callback=_store_option,
            help="Log to standard error.",
        ),
    ]


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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
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
