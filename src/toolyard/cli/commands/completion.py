"""``toolyard completion``: the shell completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from toolyard.cli.app import PROGRAM_NAME, app
from toolyard.cli.invocation import Command

__all__ = ["command"]

_SETUP_BY_SHELL = {
    "bash": 'eval "$(toolyard completion bash)"   in ~/.bashrc',
    "zsh": 'eval "$(toolyard completion zsh)"   in ~/.zshrc',
    "fish": "toolyard completion fish > ~/.config/fish/completions/toolyard.fish",
}


@click.command(
    "completion",
    cls=Command,
    epilog="\b\n" + "\n".join(_SETUP_BY_SHELL.values()),
)
@click.argument("shell", type=click.Choice(list(_SETUP_BY_SHELL)))
def command(shell: str) -> None:
    """Print the shell completion script for commands, options, and names of tools, servers and agents.

    Names come from the configuration and the stored catalogue; no server is started.
    """
    made = get_completion_class(shell)
    assert made is not None
    script = made(app, {}, PROGRAM_NAME, f"_{PROGRAM_NAME.upper()}_COMPLETE")
    click.echo(script.source_template % script.source_vars())
