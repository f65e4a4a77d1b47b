"""``toolyard chat``: chat with a model that uses your tools.

``--list`` lists the chats; ``-p`` runs one turn, for scripts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from toolyard.cli.database import open_existing_database
from toolyard.cli.input.completion import agent_option, bundles_option, complete_models
from toolyard.cli.invocation import Command, Options, Usage, run_async
from toolyard.cli.output import console
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.chat import Chat

__all__ = ["chat_json", "command"]


_MAX_PROMPT_CHARACTERS = 4_000_000
"""Maximum length of a prompt that is read; a chat accepts less, and reports that."""


@click.command("chat", cls=Command)
@agent_option("Chat as this agent.")
@click.option(
    "--model",
    metavar="M",
    shell_complete=complete_models,
    help="Use this model: a name from the settings, or provider:name.",
)
@bundles_option
@click.option(
    "-p",
    "--prompt",
    metavar="TEXT",
    help="Send this message, print the answer and exit; - reads it from standard input.",
)
@click.option(
    "--resume",
    metavar="[CHAT]",
    is_flag=False,
    flag_value="",
    help="Resume a chat, by the beginning of its id. Default: the last one.",
)
@click.option("--list", "listed", is_flag=True, help="List the chats and exit.")
@click.pass_obj
def command(
    options: Options,
    agent: str | None,
    model: str | None,
    bundles: tuple[str, ...],
    prompt: str | None,
    resume: str | None,
    listed: bool,
) -> int:
    """Chat with a model that uses your tools. Chats are stored, and are the same as in the web app.

    Ctrl-C stops the answer; a second Ctrl-C, Ctrl-D or /quit leaves. /help lists the other commands.

    With -p the answer goes to standard output and everything else to standard error; --json prints the events
    of the turn, one per line. Calls that need approval are refused when nobody can be asked. Exit codes: 0
    answered; 1 the chat is busy; 2 usage error, or no model; 3 the model failed; 4 answered, but something
    was refused because nobody could be asked; 6 a limit was reached; 130 stopped.
    """
    if listed:
        return run_async(_list_chats(options))
    text = _read_prompt(prompt)
    if text is None and options.json:
        raise Usage("--json requires -p or --list", hint="a conversation has no JSON output")
    if text is None and not console.is_terminal(sys.stdin):
        raise Usage(
            "a conversation requires a terminal",
            hint="send one message with -p TEXT; -p - reads it from standard input",
        )
    from toolyard.cli.chat.chat_run import ChatOptions, run_chat  # slow to load, as the whole core is

    wanted = ChatOptions(agent, model, bundles, text, resume)
    return run_async(run_chat(options, wanted, may_ask=prompt != "-" and not options.json))


def _read_prompt(prompt: str | None) -> str | None:
    text = sys.stdin.read(_MAX_PROMPT_CHARACTERS) if prompt == "-" else prompt
    if text is not None and not text.strip():
        raise Usage("the prompt is empty", hint="pass the text after -p, or pipe it with -p -")
    return text


_MAX_LISTED_CHATS = 100
_COLUMNS = (
    console.Column("chat", style="cyan", never_truncate=True),
    console.Column("title", wraps=True),
    console.Column("agent"),
    console.Column("model"),
    console.Column("state"),
    console.Column("changed", style="dim"),
)


async def _list_chats(options: Options) -> int:
    """Print the chats, the last changed first. No server is connected."""
    async with open_existing_database(options) as database:
        storage = None if database is None else database.chats
        chats = (
            () if storage is None else await storage.list_chats(LOCAL_PRINCIPAL.id, limit=_MAX_LISTED_CHATS)
        )
    if options.json:
        console.print_json([chat_json(chat) for chat in chats])
        return 0
    _show_chats(chats)
    return 0


def chat_json(chat: Chat) -> dict[str, Any]:
    """Return a chat as in the API."""
    times = {name: console.format_timestamp(getattr(chat, name)) for name in ("created_at", "updated_at")}
    names = ("id", "title", "agent", "model", "choice", "state", "turn", "last")
    return {name: getattr(chat, name) for name in names} | times


def _show_chats(chats: Sequence[Chat]) -> None:
    now = time.time()
    rows = [
        (
            chat.id,
            console.one_line(chat.title, 60),
            chat.agent or "",
            chat.model or "",
            chat.state.value,
            console.format_age(max(0.0, now - chat.updated_at)),
        )
        for chat in chats
    ]
    if rows:
        console.show_table(_COLUMNS, rows)
    else:
        console.show_note("no chats yet", "start one with `toolyard chat`")
