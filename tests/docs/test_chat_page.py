"""The commands in docs/chat.md and the chat events in docs/api.md match the code."""

from __future__ import annotations

import re

import click
from tests.docs.pages import read

from toolyard.cli.app import app
from toolyard.cli.chat.chat_run import EXIT_CODES
from toolyard.cli.chat.interactive_chat import COMMAND_NAMES
from toolyard.types.chat import Kind, TurnOutcome

PAGE = read("docs/chat.md").partition("## In the terminal")[2]


def test_every_command_of_a_conversation_is_there() -> None:
    assert set(re.findall(r"^\| `(/\w+)", PAGE, re.MULTILINE)) == COMMAND_NAMES


def test_every_exit_code_is_there() -> None:
    status_codes = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert status_codes == {*EXIT_CODES.values(), 1, 2, 4}


def test_every_option_is_there() -> None:
    command = app.get_command(click.Context(app), "chat")
    assert command is not None
    common_options = {"--config", "--data-dir", "--verbose", "--prompt"}
    options = {option for param in command.params for option in param.opts if option.startswith("--")}
    for option in options - common_options:
        assert option in PAGE, option
    assert "-p TEXT" in PAGE


def test_every_kind_of_event_and_every_ending_is_there() -> None:
    table = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.+)$", read("docs/api.md"), re.MULTILINE)
    event_kinds = {kind for first, _ in table for kind in re.findall(r"`(\w+)`", first)}
    assert {kind.value for kind in Kind} <= event_kinds
    (end,) = (rest for first, rest in table if first == "`end`")
    assert [ending.value for ending in TurnOutcome if f"`{ending}`" not in end] == []
