"""``toolyard chat`` on a terminal: a conversation, questions in it, Ctrl-C, and continuation."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.processes import is_running

if TYPE_CHECKING:
    from tests.cli.conftest import CliWithChat

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ASK = {"TOOLYARD_WRITE_TOOLS": "ask"}


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {seconds:g} s"
        time.sleep(0.02)


class TerminalSession:
    """A conversation. Expected output must follow the output that was matched before."""

    def __init__(self, terminal: Any) -> None:
        self.terminal = terminal
        self.at = 0

    def sees(self, words: str) -> None:
        terminal = self.terminal
        terminal.until(lambda: words in terminal.plain[self.at :], 60.0)
        assert words in terminal.plain[self.at :], terminal.plain[self.at :]
        self.at = terminal.plain.index(words, self.at) + len(words)

    def says(self, *lines: str) -> None:
        self.sees("> ")
        self.terminal.type("\\\n".join(lines) + "\n")

    def answers(self, question: str, answer: str) -> None:
        self.sees(question)
        self.terminal.type(answer)

    @property
    def rest(self) -> str:
        return self.terminal.plain[self.at :]


@pytest.fixture
def open_chat(cli_with_chat: CliWithChat, terminal: Any) -> Callable[..., TerminalSession]:
    return lambda *words, **env: TerminalSession(terminal("chat", *words, **env))


# Conversation.


def test_a_conversation(cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]) -> None:
    cli_with_chat.agents("## Looker\n---\ndescription: only looks\ntools: [chat_look]\n---\nLook.\n")
    here = open_chat()
    here.sees("a new chat with fake  (/help; Ctrl-C stops a turn, Ctrl-D quits)")
    here.says("think so", 'call chat_count {"to": 3, "pause": 0.05}', "then", "say Counted.")
    here.sees("so\n")
    here.sees('● chat_count (chat) {"to": 3, "pause": 0.05}\n')
    here.sees("… chat_count ")
    here.sees("counted\nCounted.\n")
    here.sees("tokens in, ")
    here.says("call chat_fail {}", "then", "say Oh.")
    here.sees("✗ ")
    here.sees("it failed\nOh.\n")
    here.says("/tools")
    here.sees("● chat_look ")
    here.sees("1 tool hidden:")
    here.sees("● chat_put  this tool can change data")
    here.says("/agent")
    here.sees("* -")
    here.sees("looker  only looks")
    here.says("/agent Looker")
    here.sees("with fake, agent looker")
    here.says("tools?")
    here.sees("chat_look\n")
    here.says("/agent -")
    here.says("/model nonsense")
    here.sees("error: unknown model 'nonsense'")
    here.says("/model")
    here.sees("* fake")
    here.says("/nonsense")
    here.sees("error: unknown command /nonsense")
    here.says("/export out.md")
    here.sees("wrote out.md")
    here.says("/new")
    here.sees("a new chat with fake")
    here.says("say Anew.")
    here.sees("Anew.\n")
    here.says("/quit")
    here.sees("`toolyard chat --resume ")
    assert here.terminal.end() == 0
    text = (cli_with_chat.home / "out.md").read_text()
    assert text.count("## You") == 3
    assert "it failed" in text
    assert len(cli_with_chat.chats) == 2
    assert [one["content"] for one in cli_with_chat.asked[-1]["messages"]] == ["say Anew."]


def test_files_are_attached_to_the_next_message(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    (cli_with_chat.home / "notes.txt").write_text("Oslo\nBergen\n")
    (cli_with_chat.home / "blob.bin").write_bytes(b"\0\1")
    here = open_chat()
    here.says("/attach blob.bin")
    here.sees("error: “blob.bin” is neither a picture nor a text file")
    here.says("/attach missing.txt")
    here.sees("error: missing.txt cannot be read: No such file or directory")
    here.says("/attach notes.txt")
    here.sees("the next message has notes.txt")
    here.says("say Read.")
    here.sees("Read.\n")
    here.says("say Again.")
    here.sees("Again.\n")
    here.says("/quit")
    assert here.terminal.end() == 0
    first, second = (
        [one["content"] for one in model_request["messages"]][-1]
        for model_request in cli_with_chat.asked[-2:]
    )
    assert 'Attached file "notes.txt" (text/plain, 12 bytes)' in str(first)
    assert second == "say Again."


def test_the_last_message_is_edited_and_both_versions_are_kept(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    here = open_chat()
    here.says("/edit say Too early.")
    here.sees("error: the chat has no message yet")
    here.says("say One.")
    here.sees("One.\n")
    here.says("say Two.")
    here.sees("Two.\n")
    here.says("/edit")
    here.sees("error: ")
    here.says("/edit say Other.")
    here.sees("Other.\n")
    here.says("/quit")
    assert here.terminal.end() == 0
    last = [one["content"] for one in cli_with_chat.asked[-1]["messages"]]
    assert last == ["say One.", "One.", "say Other."]


def test_the_first_lines_of_help_and_the_end_of_input(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    here = open_chat()
    here.says("/help")
    for name in ("/help", "/agent", "/model", "/tools", "/attach", "/new", "/retry", "/export", "/quit"):
        here.sees(f"  {name}")
    here.says("/retry")
    here.sees("error: the chat has no message yet")
    here.sees("> ")
    here.terminal.type("\x04")
    assert here.terminal.end() == 0
    assert "--resume" not in here.rest, "a chat without a word is nothing to come back to"


def test_a_model_that_fails_leaves_the_conversation_as_it_is(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    here = open_chat()
    here.says("fault 500")
    here.sees("error: ")
    here.says("say Better now.")
    here.sees("Better now.\n")
    here.says("/quit")
    assert here.terminal.end() == 0


def test_words_of_others_cannot_move_the_cursor(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    here = open_chat("-p", "say a\x1b[2Jb\x07c")
    assert here.terminal.end() == 0
    assert "\x1b[2J" not in here.terminal.seen
    assert "a\ufffd[2Jb\ufffdc" in here.terminal.plain


# Questions.


def test_a_call_that_writes_asks_first(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    here = open_chat(**ASK)
    here.says('call chat_put {"text": "one"}', "then", "say Asked.")
    here.sees("chat_put of chat needs your approval: ")
    here.sees('"text": "one"')
    question = "Allow this call? [y] once, [a] these arguments in this chat for 1 hour, [n] no: "
    here.answers(question, "what?\n")
    here.answers(question, "n\n")
    here.sees("Asked.\n")
    assert cli_with_chat.noted == []
    here.says('call chat_put {"text": "two"}', "then", "say Asked.")
    here.answers(question, "y\n")
    here.sees("Asked.\n")
    here.says('call chat_put {"text": "two"}', "then", "say Asked.")
    here.answers(question, "a\n")
    here.sees("Asked.\n")
    here.says('call chat_put {"text": "two"}', "then", "say Not asked.")
    here.sees("Not asked.\n")
    here.says('call chat_put {"text": "three"}', 'call chat_put {"text": "four"}', "then", "say Both.")
    here.answers(question, "y\n")
    here.answers(question, "n\n")
    here.sees("Both.\n")
    assert cli_with_chat.noted == ['put {"text": "two"}'] * 3 + ['put {"text": "three"}']
    here.says("/quit")
    assert here.terminal.end() == 0


def test_nothing_is_agreed_to_unseen(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    hidden = "x\\u200b\\u202ey\\udb40\\udc41\\udb40\\udd00z"
    here = open_chat("-p", f'call chat_put {{"text": "{hidden}"}}\nthen\nsay Put.', **ASK)
    here.sees("chat_put of chat needs your approval: ")
    here.sees(r'"text": "x\u200b\u202ey\U000e0041\U000e0100z"')
    here.answers("[n] no: ", "n\n")
    assert here.terminal.end() == 0
    assert cli_with_chat.noted == []


def test_in_one_turn_with_a_person_there_they_are_asked_too(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    here = open_chat("-p", 'call chat_put {"text": "x"}\nthen\nsay Put.', **ASK)
    here.answers("[n] no: ", "y\n")
    assert here.terminal.end() == 0
    assert here.rest.rstrip().splitlines()[-2] == "Put."
    assert cli_with_chat.noted == ['put {"text": "x"}']


def test_an_approval_waits_for_another_day(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    here = open_chat(**ASK)
    here.says('call chat_put {"text": "x"}', "then", "say At last.")
    here.answers("[n] no: ", "\x04")
    here.sees("`toolyard chat --resume ")
    assert here.terminal.end() == 0
    assert [state for _, state in cli_with_chat.chats] == ["waiting"]
    again = open_chat("--resume", **ASK)
    again.sees("> call chat_put")
    again.sees("chat_put of chat needs your approval: ")
    again.answers("[n] no: ", "y\n")
    again.sees("At last.\n")
    assert cli_with_chat.noted == ['put {"text": "x"}']
    again.says("/quit")
    assert again.terminal.end() == 0


def test_a_server_asks_a_form_a_page_and_for_the_model(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    here = open_chat()
    here.says("call chat_ask {}", "then", "results?")
    here.sees("chat asks: Who are you?")
    here.answers("Answer it? [y/n]: ", "y\n")
    here.answers("name: ", "\n")
    here.sees("error: name: must be filled in")
    here.answers("name: ", "Ann\n")
    here.answers("Send this? [y/n]: ", "y\n")
    here.sees('{"action": "accept", "content": {"name": "Ann"}}')
    here.says("call chat_ask {}", "then", "results?")
    here.answers("Answer it? [y/n]: ", "n\n")
    here.sees('{"action": "decline"}')
    here.says("call chat_ask {}", "then", "results?")
    here.answers("Answer it? [y/n]: ", "\x04")
    here.sees('{"action": "cancel"}')
    here.says('call chat_ask {"url": "https://example.org/pay"}', "then", "results?")
    here.sees("chat asks: Go there\n\nhttps://example.org/pay\n")
    here.answers("Done? [y/n]: ", "y\n")
    here.sees('{"action": "accept"}')
    here.says('call chat_think {"text": "say Thought."}', "then", "results?")
    here.sees("say Thought.")
    here.answers("Send this request to your model? [y/n]: ", "y\n")
    here.sees('"text": "Thought."')
    here.says("/quit")
    assert here.terminal.end() == 0


def test_a_form_of_a_real_server_is_asked_field_by_field(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession], everything_server: str
) -> None:
    cli_with_chat.write({"mcpServers": {"all": {"command": everything_server}}})
    here = open_chat(TOOLYARD_WRITE_TOOLS="allow")
    here.says("call all_trigger-elicitation-request {}", "then", "results?")
    here.answers("Answer it? [y/n]: ", "y\n")
    for question, answer in (
        ("String: ", "Ann"),
        ("Boolean (y/n, optional): ", "maybe"),
        ("error: Boolean: must be yes or no\nBoolean (y/n, optional): ", "y"),
        ("String with default (optional) [It was a dark and stormy night.]: ", ""),
        ("String with email format (optional): ", "nobody"),
        ("error: String with email format: must be an email address\n", "ann@example.org"),
        ("String with uri format (optional): ", ""),
        ("String with date format (optional): ", "tomorrow"),
        ("such as 2026-07-28\nString with date format (optional): ", "2026-07-28"),
        ("Integer (a whole number, optional) [42]: ", "x"),
        ("error: Integer: must be a whole number\nInteger (a whole number, optional) [42]: ", "200"),
        ("error: Integer: must be at most 100\nInteger (a whole number, optional) [42]: ", "7"),
        ("Number in range 1-1000 (a number, optional) [3.14]: ", "2.5"),
        ("Untitled Single Select Enum (choose one, optional) [Monica]: ", "Ross"),
        ("Untitled Multiple Select Enum (some, comma-separated, optional) [Guitar]: ", "1, Bass"),
        ("Titled Single Select Enum (choose one, optional) [Superman]: ", "Wonder Woman"),
        ("Titled Multiple Select Enum (some, comma-separated, optional) [Tuna]: ", "9"),
        (
            "one of the choices\nTitled Multiple Select Enum (some, comma-separated, optional) [Tuna]: ",
            "2,3",
        ),
        ("Legacy Titled Single Select Enum (choose one, optional) [Cats]: ", "2"),
        ("Send this? [y/n]: ", "y"),
    ):
        here.answers(question, f"{answer}\n")
    here.sees("✓ ")
    here.sees("tokens in, ")
    raw = here.terminal.plain[: here.at].rpartition("Raw result: ")[2].rpartition("}")[0] + "}"
    assert json.loads(raw)["content"] == {
        "name": "Ann",
        "check": True,
        "firstLine": "It was a dark and stormy night.",
        "email": "ann@example.org",
        "birthdate": "2026-07-28",
        "integer": 7,
        "number": 2.5,
        "untitledSingleSelectEnum": "Ross",
        "untitledMultipleSelectEnum": ["Guitar", "Bass"],
        "titledSingleSelectEnum": "hero-3",
        "titledMultipleSelectEnum": ["fish-2", "fish-3"],
        "legacyTitledEnum": "pet-2",
    }
    here.says("/quit")
    assert here.terminal.end() == 0


def test_a_question_answered_elsewhere_disappears(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    here = open_chat(**ASK)
    here.says('call chat_put {"text": "x"}', "then", "say Done.")
    here.sees("[n] no: ")
    # Another process, like the web app, continues the turn, and both see it.
    other = open_chat("--resume", **ASK)
    other.answers("[n] no: ", "y\n")
    for one in (other, here):
        if one is here:
            one.sees("note: it was already answered elsewhere")
        one.sees("Done.\n")
        one.says("/quit")
        assert one.terminal.end() == 0
    assert cli_with_chat.noted == ['put {"text": "x"}']


# Interruption.


def test_ctrl_c_stops_the_model_and_the_conversation_goes_on(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    here = open_chat()
    here.says("say Begun", "hold")
    here.sees("hold\n")
    here.sees("Begun")
    here.terminal.type("\x03")
    here.sees("stopped")
    until(lambda: cli_with_chat.asked[0]["ended"] == "aborted")
    here.says("say Still here.")
    here.sees("Still here.\n")
    here.says("/quit")
    assert here.terminal.end() == 0


def test_ctrl_c_stops_the_tools_and_once_more_leaves(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    here = open_chat()
    here.says("call chat_wait {}", "call chat_wait {}")
    until(lambda: cli_with_chat.noted == ["wait {}"] * 2)
    child = _server_of(here.terminal.process.pid)
    here.terminal.type("\x03")
    here.sees("■ stopped by the user")
    here.sees("stopped")
    until(lambda: cli_with_chat.noted[2:] == ["cancelled wait"] * 2)
    here.sees("> ")
    here.terminal.type("\x03")
    assert here.terminal.end() == 130
    until(lambda: not is_running(child))


def test_ctrl_c_at_a_question_stops_the_turn(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    here = open_chat(**ASK)
    here.says('call chat_put {"text": "x"}', "then", "say Never.")
    here.sees("[n] no: ")
    here.terminal.type("\x03")
    here.sees("stopped")
    here.says("/quit")
    assert here.terminal.end() == 0
    assert cli_with_chat.noted == []
    assert [state for _, state in cli_with_chat.chats] == ["idle"]


def test_a_killed_program_leaves_nothing_behind_and_the_turn_can_be_run_again(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    here = open_chat()
    here.says("say Half of it", "call chat_wait {}", "then", "say All of it.")
    here.sees("All of it.\n")
    here.sees("Half of it")
    until(lambda: cli_with_chat.noted == ["wait {}"])
    child = _server_of(here.terminal.process.pid)
    os.kill(here.terminal.process.pid, signal.SIGKILL)
    here.terminal.process.wait(30)
    until(lambda: not is_running(child))
    again = open_chat("--resume")
    again.sees("> say Half of it")
    again.sees("Half of it\n")
    again.sees("● chat_wait")
    again.sees("the process that ran this turn has ended")
    again.says("/retry")
    again.sees("Half of it\n")
    until(lambda: cli_with_chat.noted[1:] == ["wait {}"])
    again.terminal.type("\x03")
    again.sees("stopped")
    again.says("say Something else.")
    again.sees("Something else.\n")
    again.says("/quit")
    assert again.terminal.end() == 0


def test_the_terminal_is_left_as_it_was(
    cli_with_chat: CliWithChat, open_chat: Callable[..., TerminalSession]
) -> None:
    import termios

    here = open_chat()
    before = termios.tcgetattr(here.terminal.side)
    here.sees("> ")
    here.terminal.type("half a line")
    here.sees("half a line")
    here.terminal.type("\x03")
    here.terminal.until(lambda: here.terminal.process.poll() is not None)
    assert termios.tcgetattr(here.terminal.side)[:4] == before[:4]
    assert here.terminal.end() == 130


def _server_of(pid: int) -> int:
    (child,) = [
        child.pid for child in psutil.Process(pid).children() if "chat_server" in " ".join(child.cmdline())
    ]
    return child
