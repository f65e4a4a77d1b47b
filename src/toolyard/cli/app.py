"""The command ``toolyard``: lists its subcommands, and imports the one that is used."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

import click

from toolyard.cli.error_exit import (
    Usage,
    interrupt_exit_code,
    report_error,
    report_os_error,
    report_usage_error,
)
from toolyard.cli.init_process import fork_from_init
from toolyard.cli.input.options import Options, remote_params, shared_params
from toolyard.cli.process_protection import protect_process
from toolyard.errors import ToolyardError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = [
    "COMMAND_SECTIONS",
    "COMMAND_SUMMARIES",
    "PROGRAM_NAME",
    "app",
    "main",
    "prepare_streams",
    "run_command",
]


_STREAM_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def prepare_streams() -> None:
    """Open closed standard streams and make them tolerate any text. Call it before anything is opened.

    A standard stream that our parent closed is connected to the null device. Otherwise the next file or
    connection would get its descriptor, and our output would be written there.
    """
    codecs.register_error("toolyard", _escape_unencodable)
    for name, mode in _STREAM_MODES.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for as long as we run
    for stream in (sys.stdout, sys.stderr):
        # A server may send characters that the terminal's encoding lacks, which must not end the program.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="toolyard")


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Escape characters that an encoding lacks as JSON does, so that JSON output stays valid."""
    import json  # only for what cannot be printed as it is

    failed = cast("UnicodeEncodeError", error)
    return json.dumps(failed.object[failed.start : failed.end])[1:-1], failed.end


PROGRAM_NAME = "toolyard"

COMMAND_SECTIONS: dict[str, dict[str, str]] = {
    "Look": {
        "servers": "Connect to the servers and show how they are.",
        "tools": "List the tools, with a line about each.",
        "search": "Find tools by what they should do.",
        "why": "Say whether a tool may be seen and called, and which rules decide.",
    },
    "Use": {
        "chat": "Talk to a model that uses your tools.",
        "call": "Call a tool and print its answer.",
        "login": "Sign in to a server, in your browser.",
        "logout": "Forget the sign-in to a server.",
    },
    "Serve": {
        "stdio": "Speak MCP over standard streams, for all servers at once.",
        "connect": "Let a client use Toolyard: show what to put into it, or write it.",
        "serve": "Serve the web app: pages and an API.",
        "restart": "Start a server of a running Toolyard again.",
        "users": "Manage the people who have accounts.",
    },
    "Set up": {
        "import": "Bring in the servers of other clients.",
        "approve": "Look at a configuration file that was found, and trust it.",
        "check": "Check configuration, settings and AGENTS.md.",
        "lock": "Pin what the servers' tools are, and accept changes.",
        "settings": "List the settings, with value and origin.",
        "rekey": "Encrypt what is stored with another key.",
        "move": "Copy what SQLite keeps into an empty PostgreSQL.",
        "doctor": "Find out why something does not work, step by step.",
        "completion": "Print the script that completes names in your shell.",
        "demo": "Show it all with a small server that comes with Toolyard.",
    },
}
"""The commands with their summaries, listed here so that the help imports none of them."""

COMMAND_SUMMARIES: dict[str, str] = {
    name: line for section in COMMAND_SECTIONS.values() for name, line in section.items()
}


class LazyGroup(click.Group):
    """A group that imports the module of a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMAND_SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMAND_SUMMARIES:
            return None
        # ``import`` is a keyword, and cannot be the name of a module.
        module = "import_" if cmd_name == "import" else cmd_name
        found: click.Command = import_module(f"toolyard.cli.commands.{module}").command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMAND_SUMMARIES and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches  # only for a slip

            near = get_close_matches(name, COMMAND_SUMMARIES, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"see `{PROGRAM_NAME} --help`"
            raise Usage(f"there is no command '{name}'", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in COMMAND_SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()), col_max=12)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # only while a shell completes

        names = [
            CompletionItem(name, help=line)
            for name, line in COMMAND_SUMMARIES.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from toolyard import __version__

        click.echo(f"{PROGRAM_NAME} {__version__}")
        ctx.exit()


app = LazyGroup(
    name=PROGRAM_NAME,
    help=(
        "Connect, scope and watch every MCP server that your agents use.\n\n"
        "Exit codes: 0 fine; 1 the tool answered an error, or `check` found problems; 2 usage or "
        "configuration; 3 server unreachable; 4 refused, or no such tool; 5 sign-in needed; 6 timed out, or "
        "outcome unknown."
    ),
    params=[
        *shared_params(),
        *remote_params(),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version and end.",
        ),
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)


def run_command(arguments: Sequence[str], options: Options | None = None) -> int:
    """Run one command line and return its exit code. Errors have been reported by then."""
    obj = options or Options(json="--json" in arguments)
    try:
        outcome = app.main(list(arguments), prog_name=PROGRAM_NAME, standalone_mode=False, obj=obj)
        return outcome if isinstance(outcome, int) else 0
    except click.UsageError as error:
        return report_usage_error(error, obj)
    except ToolyardError as error:
        return report_error(error, obj)
    except (click.Abort, KeyboardInterrupt):
        return interrupt_exit_code()
    except OSError as error:
        # The outermost boundary: a removed folder, a full disk.
        return report_os_error(error, obj)


def main() -> None:
    """Entry point of the program."""
    prepare_streams()
    protect_process()
    fork_from_init()
    sys.exit(run_command(sys.argv[1:]))
