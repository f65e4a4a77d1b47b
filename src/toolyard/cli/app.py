"""The command ``toolyard``: lists its subcommands, and imports the one that is used."""

from __future__ import annotations

import codecs
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

import click

from toolyard.cli.invocation import (
    INTERRUPT_EXIT_CODE,
    Options,
    Usage,
    remote_params,
    report_error,
    report_os_error,
    report_usage_error,
    shared_params,
)
from toolyard.cli.process_setup import fork_from_init, protect_process
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
        "servers": "Connect to the servers and show their states.",
        "tools": "List the tools with descriptions.",
        "search": "Find tools by their purpose.",
        "why": "Explain whether a tool is visible and callable.",
    },
    "Use": {
        "chat": "Chat with a model that uses your tools.",
        "call": "Call a tool and print its result.",
        "login": "Sign in to a server, in your browser.",
        "logout": "Delete the sign-in to a server.",
    },
    "Serve": {
        "stdio": "Serve all servers to one MCP client over standard streams.",
        "connect": "Connect a client to Toolyard: show or write its configuration.",
        "disconnect": "Remove Toolyard from the files of clients.",
        "status": "Show the Toolyard that clients share in the background.",
        "stop": "Stop the Toolyard that clients share in the background.",
        "open": "Open the pages of the Toolyard in the background.",
        "serve": "Run the web app: pages and an API.",
        "restart": "Restart a server of a running Toolyard.",
        "users": "Manage accounts.",
        "approvals": "List and revoke standing approvals.",
    },
    "Set up": {
        "add": "Add a server: a known one, a command, a URL or a pasted entry.",
        "catalog": "Find well-known servers that `add` can set up.",
        "remove": "Remove a server from the configuration file.",
        "enable": "Turn a server on.",
        "disable": "Turn a server off, and keep its entry.",
        "edit": "Change the entry of a server, or open the file in an editor.",
        "import": "Import the servers of other clients.",
        "budget": "Show what tool definitions cost in tokens, and spend fewer.",
        "approve": "Review a discovered configuration file and trust it.",
        "check": "Check configuration, settings and AGENTS.md.",
        "lock": "Pin tool definitions and accept changes.",
        "settings": "List the settings, with value and origin.",
        "migrate": "Update the tables of the database to this version.",
        "rekey": "Encrypt the stored data with another key.",
        "move": "Copy the data from SQLite to an empty PostgreSQL.",
        "doctor": "Find out why something does not work, step by step.",
        "completion": "Print the shell completion script.",
        "demo": "Tour the main commands with a small demo server.",
    },
}
"""The commands with their summaries, listed here so that the help imports none of them."""

_MODULE_BY_COMMAND = {
    "import": "import_",  # a keyword cannot be the name of a module
    "add": "setup.add",
    **dict.fromkeys(("migrate", "move", "rekey"), "database"),
    "budget": "setup.budget",
    "catalog": "setup.catalog",
    "disconnect": "setup.clients",
    "logout": "login",
    "restart": "servers",
    "search": "tools",
    **dict.fromkeys(("status", "stop", "open"), "background"),
    **dict.fromkeys(("remove", "enable", "disable", "edit"), "setup.config_file"),
}
"""Modules that are not named after their command. A module of several commands names them in ``commands``."""
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
        name = _MODULE_BY_COMMAND.get(cmd_name, cmd_name)
        module = import_module(f"toolyard.cli.commands.{name}")
        commands: dict[str, click.Command] = getattr(module, "commands", None) or {cmd_name: module.command}
        found = commands[cmd_name]
        # Said once, in the table above: the list of commands must not import them.
        found.short_help = COMMAND_SUMMARIES[cmd_name]
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMAND_SUMMARIES and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches  # only for a slip

            near = get_close_matches(name, COMMAND_SUMMARIES, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"see `{PROGRAM_NAME} --help`"
            raise Usage(f"unknown command '{name}'", hint=hint)
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
        from toolyard.types.version import __version__

        click.echo(f"{PROGRAM_NAME} {__version__}")
        ctx.exit()


app = LazyGroup(
    name=PROGRAM_NAME,
    help=(
        "Connect, scope and watch every MCP server that your agents use.\n\n"
        "Exit codes: 0 success; 1 the tool returned an error, or `check` found problems; 2 usage or "
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
            help="Print the version and exit.",
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
        return INTERRUPT_EXIT_CODE
    except OSError as error:
        # The outermost boundary: a removed folder, a full disk.
        return report_os_error(error, obj)


def main() -> None:
    """Entry point of the program."""
    gc.disable()  # `run_async` enables it
    prepare_streams()
    protect_process()
    fork_from_init()
    code = run_command(sys.argv[1:])
    # The interpreter collects garbage twice when it ends, which takes 0.2 s once the model libraries are
    # loaded. Frozen objects are not traversed.
    gc.disable()
    gc.freeze()
    sys.exit(code)
