"""``toolyard chat``: chat with a model that uses your tools.

``--list`` lists the chats; ``-p`` runs one turn, for scripts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from toolyard.cli.database import open_existing_database
from toolyard.cli.input.completion import agent_option, bundles_option, complete_models
from toolyard.cli.invocation import Command, Options, Usage, run_async
from toolyard.cli.output.console import (
    Column,
    format_age,
    is_interactive,
    is_terminal,
    one_line,
    print_json,
    show_note,
    show_notices,
    show_table,
)
from toolyard.cli.output.notices import agent_problem_notices
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.chat import Chat, ChatEvent, TurnOutcome

if TYPE_CHECKING:
    from toolyard.cli.chat.chat_services import LocalChats
    from toolyard.cli.chat.current_chat import CurrentChat
    from toolyard.cli.chat.turn_follower import TurnResult

__all__ = ["EXIT_CODES", "JsonLinesDisplay", "command", "list_chats", "run_single_turn"]


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
        return run_async(list_chats(options))
    wanted = ChatOptions(agent, model, bundles, _read_prompt(prompt), resume)
    if wanted.prompt is None and options.json:
        raise Usage("--json requires -p or --list", hint="a conversation has no JSON output")
    if wanted.prompt is None and not is_terminal(sys.stdin):
        raise Usage(
            "a conversation requires a terminal",
            hint="send one message with -p TEXT; -p - reads it from standard input",
        )
    return run_async(_run_chat(options, wanted, may_ask=prompt != "-" and not options.json))


def _read_prompt(prompt: str | None) -> str | None:
    text = sys.stdin.read(_MAX_PROMPT_CHARACTERS) if prompt == "-" else prompt
    if text is not None and not text.strip():
        raise Usage("the prompt is empty", hint="pass the text after -p, or pipe it with -p -")
    return text


async def _run_chat(options: Options, chat_options: ChatOptions, *, may_ask: bool) -> int:
    from toolyard.cli.chat.chat_services import (  # slow to load, as the whole core is
        no_model_error,
        open_chat_app,
    )

    async with open_chat_app(options, chat_options.bundles, model=chat_options.model) as room:
        seat = await _open_current_chat(room, chat_options)
        if seat.model is None:
            raise no_model_error(options)
        if seat.agent is not None and not options.json:
            show_notices(agent_problem_notices(await room.find_agent_problems(seat.agent)))
        if chat_options.prompt is not None:
            asks = may_ask and is_interactive()
            return await run_single_turn(room, seat, chat_options.prompt, can_ask=asks, json=options.json)
        from toolyard.cli.chat.interactive_chat import (
            LineEditor,
            TerminalConversation,  # only for people
        )
        from toolyard.cli.chat.turn_follower import Interrupts

        with Interrupts() as interrupts, LineEditor() as prompt:
            return await TerminalConversation(room.chats, seat, prompt, interrupts).run()


async def _open_current_chat(chat_app: LocalChats, chat_options: ChatOptions) -> CurrentChat:
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


_MAX_LISTED_CHATS = 100
_COLUMNS = (
    Column("chat", style="cyan", never_truncate=True),
    Column("title", wraps=True),
    Column("agent"),
    Column("model"),
    Column("state"),
    Column("changed", style="dim"),
)


async def list_chats(options: Options) -> int:
    """Print the chats, the last changed first. No server is connected."""
    async with open_existing_database(options) as database:
        storage = None if database is None else database.chats
        chats = (
            () if storage is None else await storage.list_chats(LOCAL_PRINCIPAL.id, limit=_MAX_LISTED_CHATS)
        )
    if options.json:
        print_json([chat_json(chat) for chat in chats])
        return 0
    _show_chats(chats)
    return 0


def chat_json(chat: Chat) -> dict[str, Any]:
    """Return a chat as in the API."""
    times = {"created_at": _format_time(chat.created_at), "updated_at": _format_time(chat.updated_at)}
    names = ("id", "title", "agent", "model", "choice", "state", "turn", "last")
    return {name: getattr(chat, name) for name in names} | times


def event_json(event: ChatEvent) -> dict[str, Any]:
    """Return an event as in the API."""
    return {
        "seq": event.seq,
        "turn": event.turn,
        "kind": event.kind.value,
        "at": _format_time(event.at),
        "part": event.part,
        "parent": event.parent,
        "body": dict(event.body),
    }


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _show_chats(chats: Sequence[Chat]) -> None:
    now = time.time()
    rows = [
        (
            chat.id,
            one_line(chat.title, 60),
            chat.agent or "",
            chat.model or "",
            chat.state.value,
            format_age(max(0.0, now - chat.updated_at)),
        )
        for chat in chats
    ]
    if rows:
        show_table(_COLUMNS, rows)
    else:
        show_note("no chats yet", "start one with `toolyard chat`")


EXIT_CODES: Mapping[str, int] = {
    TurnOutcome.DONE: 0,
    TurnOutcome.FAILED: 3,
    TurnOutcome.INTERRUPTED: 3,
    TurnOutcome.LIMIT: 6,
    TurnOutcome.STOPPED: 130,
}
"""Exit codes by the outcome of the turn; 4 if something was refused because nobody could be asked."""
_REFUSED_EXIT_CODE = 4
_INTERRUPTED_EXIT_CODE = 130


@dataclass(slots=True)
class JsonLinesDisplay:
    """Prints events as JSON lines, as in the API."""

    def show(self, event: ChatEvent) -> None:
        """Print one event."""
        sys.stdout.write(json.dumps(event_json(event), ensure_ascii=False, separators=(",", ":")) + "\n")
        sys.stdout.flush()

    def end_line(self) -> None:
        """Do nothing: every line is complete."""


async def run_single_turn(
    chat_app: LocalChats, current_chat: CurrentChat, text: str, *, can_ask: bool, json: bool
) -> int:
    """Send a message, follow the turn to its end, and return the exit code. Raises ToolyardError."""
    from toolyard.cli.chat.chat_services import LOCAL_OWNER_ID  # slow to load, as the whole core is
    from toolyard.cli.chat.screen import Screen
    from toolyard.cli.chat.turn_follower import Interrupts, TurnFollower, UserExited

    chat = await current_chat.get_or_create()
    with Interrupts() as interrupts:
        begun = await chat_app.chats.send(LOCAL_OWNER_ID, chat.id, text)
        screen = JsonLinesDisplay() if json else Screen()
        if json:
            for event in await chat_app.chats.list_events(LOCAL_OWNER_ID, chat.id, after=begun - 1, limit=1):
                screen.show(event)
        turn = TurnFollower(chat_app.chats, await current_chat.refresh(), screen, interrupts, can_ask=can_ask)
        try:
            return _choose_exit_code(await turn.follow(begun))
        except UserExited as left:
            return _INTERRUPTED_EXIT_CODE if left.by_interrupt else _REFUSED_EXIT_CODE


def _choose_exit_code(turn_result: TurnResult) -> int:
    code = EXIT_CODES.get(turn_result.outcome, EXIT_CODES[TurnOutcome.FAILED])
    return _REFUSED_EXIT_CODE if turn_result.has_refusals and code == 0 else code
