"""The options that every command has, before its name or after it."""

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
    """What was said for the whole command line. It is filled while the words are parsed."""

    config: str | None = None
    data_dir: str | None = None
    json: bool = False
    verbose: bool = False
    remote: str | None = None
    """The address of a running Toolyard to act on, instead of servers of our own."""
    token_file: str | None = None

    @property
    def resolved_data_dir(self) -> Path:
        """The data directory. Nothing is created."""
        from toolyard.config import default_data_dir  # the help needs no folder

        named = self.data_dir and os.path.abspath(os.path.expanduser(self.data_dir))
        return Path(named) if named else default_data_dir()


class Command(click.Command):
    """A command with the shared options."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params += shared_params()

    supports_remote: ClassVar[bool] = False

    def invoke(self, ctx: click.Context) -> Any:
        options = ctx.ensure_object(Options)
        if options.remote is not None and not self.supports_remote:
            hint = "servers, tools, call, lock and restart do"
            raise Usage(f"`toolyard {self.name}` does not work with --remote", hint=hint)
        _start_logging(options.verbose)
        try:
            outcome = super().invoke(ctx)
            flush_output()
        except BrokenPipeError:
            ctx.exit(silence_broken_pipe())
        return outcome


class RemoteCommand(Command):
    """A command that can act on a running Toolyard."""

    supports_remote = True

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params += remote_params()


def remote_params() -> list[click.Parameter]:
    """Those for a running Toolyard; fresh ones each time."""
    return [
        click.Option(
            ["--remote"],
            metavar="URL",
            expose_value=False,
            callback=_store_option,
            help="Act on the Toolyard that runs there. Its token is in TOOLYARD_REMOTE_TOKEN.",
        ),
        click.Option(
            ["--token-file"],
            metavar="PATH",
            type=click.Path(dir_okay=False, path_type=str),
            expose_value=False,
            callback=_store_option,
            help="With --remote: the file that holds the token.",
        ),
    ]


def shared_params() -> list[click.Parameter]:
    """Fresh ones each time: a parameter belongs to one command."""
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
            help="Where Toolyard keeps what is its own.",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            default=None,
            expose_value=False,
            callback=_store_option,
            help="Print JSON, errors too.",
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
        # What the library warns of, the commands tell in their own words.
        log.addHandler(logging.NullHandler())
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)


class PositiveSeconds(click.FloatRange):
    """Above 0. What is no number at all, ``nan``, is neither below it nor above, and no time to wait."""

    def __init__(self) -> None:
        super().__init__(0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if isnan(seconds):
            self.fail(f"{value!r} is not a valid float.", param, ctx)
        return seconds
