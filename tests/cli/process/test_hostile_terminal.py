"""Texts of a hostile server on a real terminal: none of them acts as a control sequence."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import ROOT

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, CliWithChat

SERVER = {
    "command": sys.executable,
    "args": ["-I", "-S", str(ROOT / "tests/servers/terminal_attack_server.py")],
}
UNTRUSTED_SERVER = {
    **SERVER,
    "trust": "untrusted",
    "allowTools": ["say", "fail", "error", "die", "rows", "write", "b*"],
}
ATTACKS = (
    "\x1b]",  # operating system commands: title, clipboard, links
    "\x1b[2J",
    "\x1b[1;31mRED",
    "\rOVER",
    "\u202e",
    "\u2066",
    "\x9b",
    "\x08",
    "\x07",
    "\x7f",
)
COMMANDS = (
    "tools",
    "tools --json",
    "search says",
    "servers",
    "servers -v",
    "doctor",
    "why evil_say",
    "lock",
    "call evil_say a=x",
    "call evil_say a=x --json",
    "call evil_say --help",
    "call evil_fail",
    "call evil_error",
    "call evil_error --json",
    "--verbose call evil_say a=x",
    "call evil_die",
    "call evil_rows",
    "call evil_rows --json",
    "call evil_write",
)


def check(screen_text: str) -> None:
    assert [attack for attack in ATTACKS if attack in screen_text] == []


@pytest.mark.parametrize("entry", [SERVER, UNTRUSTED_SERVER], ids=["trusted", "untrusted"])
def test_no_text_of_a_server_controls_the_terminal(cli: Cli, terminal: Any, entry: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"evil": entry}})
    screen = ""
    for command in COMMANDS:
        here = terminal(*command.split())
        here.end()
        check(here.seen)
        screen += here.plain
    # The commands did reach the server and show its texts. Tools of untrusted servers are only for models.
    for text in ("says", "text", "Error:", "error ") if entry is SERVER else ("TITLE",):
        assert text in screen


@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
def test_no_text_of_a_server_or_model_controls_the_terminal_of_a_chat(
    cli_with_chat: CliWithChat, terminal: Any, trust: str
) -> None:
    cli_with_chat.write({"mcpServers": {"evil": SERVER if trust == "trusted" else UNTRUSTED_SERVER}})
    attack = "\x1b]0;TITLE\x07\x1b[2J\u202e\x9b"
    for tool in ("say", "fail", "error", "die", "write"):
        name, arguments = f"evil_{tool}", {"a": attack}
        if trust == "untrusted":
            name, arguments = "tools_call", {"name": name, "arguments": arguments}
        script = f"call {name} {json.dumps(arguments)}\nthen\nsay Done {attack}"
        here = terminal("chat", "-p", script, TOOLYARD_WRITE_TOOLS="ask")
        here.until(lambda here=here: "Done" in here.plain or "[y/" in here.plain or "approv" in here.plain)
        here.type("n\n")
        here.end()
        check(here.seen)
