"""``toolyard chat``: talk to a model that uses your tools."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from toolyard.cli.app import COMMANDS
from toolyard.cli.error_exit import Usage
from toolyard.cli.input.completion import complete_agents, complete_bundles, complete_models
from toolyard.cli.input.options import Command, Options
from toolyard.cli.output.terminal import is_terminal, person_is_there
from toolyard.cli.runner import run_async

if TYPE_CHECKING:
    from toolyard.cli.chat.chat_app import Room
    from toolyard.cli.chat.current_chat import Seat

__all__ = ["command"]

_LONGEST = 4_000_000
"""Characters of a prompt that are read; a chat takes fewer, and says so."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was said on the command line."""

    agent: str | None
    model: str | None
    bundles: tuple[str, ...]
    prompt: str | None
    resume: str | None
    """The id of a chat, or its beginning; empty: the last one."""


@click.command("chat", cls=Command, short_help=COMMANDS["chat"])
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
    help="With this bundle selected. May be repeated.",
)
@click.option("-p", "--prompt", metavar="TEXT", help="Say this, print the answer and end; - reads it.")
@click.option(
    "--resume",
    metavar="[CHAT]",
    is_flag=False,
    flag_value="",
    help="Go on with a chat, by the beginning of its id. Default: the last one.",
)
@click.option("--list", "listed", is_flag=True, help="List the chats and end.")
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
    """Talk to a model that uses your tools. Chats are kept, and are the same as in the web app.

    Ctrl-C stops the answer; once more, Ctrl-D or /quit leaves. /help lists what else can be said.

    With -p the answer goes to standard output and everything else to standard error; --json prints the
    events of the turn, a line each. Calls that need an approval are refused where nobody can be asked. Exit
    codes: 0 answered; 1 the chat is busy; 2 usage, or no model; 3 the model failed; 4 answered, but something
    was refused because nobody could be asked; 6 a limit ended it; 130 stopped.
    """
    if listed:
        from toolyard.cli.chat.chat_list import list_chats  # only to list them

        return run_async(list_chats(options))
    wanted = Wanted(agent, model, bundles, _prompt(prompt), resume)
    if wanted.prompt is None and options.json:
        raise Usage("--json needs -p or --list", hint="a conversation is for people")
    if wanted.prompt is None and not is_terminal(sys.stdin):
        raise Usage("a conversation needs a terminal", hint="-p TEXT says one thing; -p - reads it from here")
    return run_async(_chat(options, wanted, may_ask=prompt != "-" and not options.json))


def _prompt(prompt: str | None) -> str | None:
    text = sys.stdin.read(_LONGEST) if prompt == "-" else prompt
    if text is not None and not text.strip():
        raise Usage("the prompt is empty", hint="say something")
    return text


async def _chat(options: Options, wanted: Wanted, *, may_ask: bool) -> int:
    from toolyard.cli.chat.chat_app import no_model, open_room  # slow to load, as the whole core is

    async with open_room(options, wanted.bundles, model=wanted.model) as room:
        seat = await _seat(room, wanted)
        if seat.model is None:
            raise no_model(options)
        if wanted.prompt is not None:
            from toolyard.cli.chat.single_turn import one_turn  # only for one turn

            asks = may_ask and person_is_there()
            return await one_turn(room, seat, wanted.prompt, asks=asks, json=options.json)
        from toolyard.cli.chat.conversation import Conversation  # only for people
        from toolyard.cli.chat.interrupts import Interrupts
        from toolyard.cli.chat.line_editor import Prompt

        with Interrupts() as interrupts, Prompt() as prompt:
            return await Conversation(room.chats, seat, prompt, interrupts).run()


async def _seat(room: Room, wanted: Wanted) -> Seat:
    """The chat that is meant, with the agent and the model that are wanted. Raises Usage."""
    from toolyard.agents.chat.errors import ChatError  # slow to load, as the whole core is
    from toolyard.agents.models.errors import NoSuchModel
    from toolyard.cli.chat.chat_choice import find_chat, last_chat
    from toolyard.cli.chat.current_chat import Seat

    try:
        if wanted.resume is None:
            return Seat(room, agent=wanted.agent, model=wanted.model)
        seat = Seat(room, await (find_chat(room, wanted.resume) if wanted.resume else last_chat(room)))
        if wanted.agent is not None:
            await seat.choose(agent=wanted.agent)
        if wanted.model is not None:
            await seat.choose(model=wanted.model)
        return seat
    except (ChatError, NoSuchModel) as error:
        raise Usage(error.cause, hint=error.hint) from None
