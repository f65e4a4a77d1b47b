"""``toolyard chat``: chat with a model that uses your tools."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from toolyard.cli.app import COMMAND_SUMMARIES
from toolyard.cli.error_exit import Usage
from toolyard.cli.input.completion import complete_agents, complete_bundles, complete_models
from toolyard.cli.input.options import Command, Options
from toolyard.cli.output.terminal import is_interactive, is_terminal
from toolyard.cli.runner import run_async

if TYPE_CHECKING:
    from toolyard.cli.chat.chat_app import ChatApp
    from toolyard.cli.chat.current_chat import CurrentChat

__all__ = ["command"]

_MAX_PROMPT_CHARACTERS = 4_000_000
"""Maximum length of a prompt that is read; a chat accepts less, and reports that."""


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Options of the command."""

    agent: str | None
    model: str | None
    bundles: tuple[str, ...]
    prompt: str | None
    resume: str | None
    """The id of a chat, or its beginning; empty for the last chat."""


@click.command("chat", cls=Command, short_help=COMMAND_SUMMARIES["chat"])
@click.option("--agent", metavar="A", shell_complete=complete_agents, help="As this agent of AGENTS.md.")
@click.option(
    "--model",
    metavar="M",
    shell_complete=complete_models,
    help="With this model: a name of the settings, or provider:name.",
)
@click.option(
    "--bundle",
    "bundles",
    metavar="B",
    multiple=True,
    shell_complete=complete_bundles,
    help="Select this bundle. May be repeated.",
)
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
        from toolyard.cli.chat.chat_list import list_chats  # only to list them

        return run_async(list_chats(options))
    wanted = ChatOptions(agent, model, bundles, _read_prompt(prompt), resume)
    if wanted.prompt is None and options.json:
        raise Usage("--json needs -p or --list", hint="a conversation is for people")
    if wanted.prompt is None and not is_terminal(sys.stdin):
        raise Usage("a conversation needs a terminal", hint="-p TEXT says one thing; -p - reads it from here")
    return run_async(_run_chat(options, wanted, may_ask=prompt != "-" and not options.json))


def _read_prompt(prompt: str | None) -> str | None:
    text = sys.stdin.read(_MAX_PROMPT_CHARACTERS) if prompt == "-" else prompt
    if text is not None and not text.strip():
        raise Usage("the prompt is empty", hint="say something")
    return text


async def _run_chat(options: Options, chat_options: ChatOptions, *, may_ask: bool) -> int:
    from toolyard.cli.chat.chat_app import no_model_error, open_chat_app  # slow to load, as the whole core is

    async with open_chat_app(options, chat_options.bundles, model=chat_options.model) as room:
        seat = await _open_current_chat(room, chat_options)
        if seat.model is None:
            raise no_model_error(options)
        if chat_options.prompt is not None:
            from toolyard.cli.chat.single_turn import run_single_turn  # only for one turn

            asks = may_ask and is_interactive()
            return await run_single_turn(room, seat, chat_options.prompt, can_ask=asks, json=options.json)
        from toolyard.cli.chat.conversation import TerminalConversation  # only for people
        from toolyard.cli.chat.interrupts import Interrupts
        from toolyard.cli.chat.line_editor import LineEditor

        with Interrupts() as interrupts, LineEditor() as prompt:
            return await TerminalConversation(room.chats, seat, prompt, interrupts).run()


async def _open_current_chat(chat_app: ChatApp, chat_options: ChatOptions) -> CurrentChat:
    """Open or create the chat with the requested agent and model. Raises Usage."""
    from toolyard.agents.chat.errors import ChatError  # slow to load, as the whole core is
    from toolyard.agents.models.errors import NoSuchModel
    from toolyard.cli.chat.current_chat import CurrentChat, find_chat, find_last_chat

    try:
        if chat_options.resume is None:
            return CurrentChat(chat_app, agent=chat_options.agent, model=chat_options.model)
        seat = CurrentChat(
            chat_app,
            await (
                find_chat(chat_app, chat_options.resume) if chat_options.resume else find_last_chat(chat_app)
            ),
        )
        if chat_options.agent is not None:
            await seat.choose(agent=chat_options.agent)
        if chat_options.model is not None:
            await seat.choose(model=chat_options.model)
        return seat
    except (ChatError, NoSuchModel) as error:
        raise Usage(error.cause, hint=error.hint) from None
