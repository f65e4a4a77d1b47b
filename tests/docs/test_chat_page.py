"""What docs/chat.md says of the terminal is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import click

from toolyard.cli.app import app
from toolyard.cli.chatting.commands import COMMANDS
from toolyard.cli.chatting.once import CODES

PAGE = (Path(__file__).parent.parent.parent / "docs/chat.md").read_text().partition("## In the terminal")[2]


def test_every_command_of_a_conversation_is_there() -> None:
    assert set(re.findall(r"^\| `(/\w+)", PAGE, re.MULTILINE)) == COMMANDS


def test_every_exit_code_is_there() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert told == {*CODES.values(), 1, 2, 4}


def test_every_option_is_there() -> None:
    command = app.get_command(click.Context(app), "chat")
    assert command is not None
    shared = {"--config", "--data-dir", "--verbose", "--prompt"}
    options = {option for param in command.params for option in param.opts if option.startswith("--")}
    for option in options - shared:
        assert option in PAGE, option
    assert "-p TEXT" in PAGE
