"""One run of the chat in a terminal: a conversation, or a single turn for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.errors import ChatError
from toolyard.agents.models.errors import NoSuchModel
from toolyard.cli.chat.chat_services import no_model_error, open_chat_app
from toolyard.cli.chat.current_chat import CurrentChat, find_chat, find_last_chat
from toolyard.cli.chat.screen import Screen
from toolyard.cli.chat.turn_follower import Interrupts, TurnFollower, TurnResult, UserExited
from toolyard.cli.invocation import INTERRUPT_EXIT_CODE, Options, Usage
from toolyard.cli.output.console import (
    format_count,
    format_timestamp,
    is_interactive,
    show_note,
    show_notices,
)
from toolyard.cli.output.notices import NoticeMemory, agent_problem_notices
from toolyard.types.account import LOCAL_OWNER_ID
from toolyard.types.agent import Agent
from toolyard.types.chat import ChatEvent, Note, TurnEnd, TurnOutcome

__all__ = ["EXIT_CODES", "ChatOptions", "event_json", "run_chat"]


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Options of the command."""

    agent: str | None
    model: str | None
    bundles: tuple[str, ...]
    prompt: str | None
    resume: str | None
    """The id of a chat, or its beginning; empty for the last chat."""


async def run_chat(options: Options, chat_options: ChatOptions, *, may_ask: bool) -> int:
    """Run one turn, or a conversation, and return the exit code. Raises ToolyardError."""
    async with open_chat_app(options, chat_options.bundles, model=chat_options.model) as chat_app:
        chats = chat_app.chats
        current_chat = await _open_current_chat(chats, chat_app.agents, chat_options)
        if current_chat.model is None:
            raise no_model_error(options)
        if current_chat.agent is not None and not options.json:
            show_notices(agent_problem_notices(await chat_app.find_agent_problems(current_chat.agent)))
        if chat_options.prompt is not None:
            asks = may_ask and is_interactive()
            memory = NoticeMemory(options.resolved_data_dir, options.load_config().file)
            return await _run_single_turn(
                chats, current_chat, chat_options.prompt, memory, can_ask=asks, as_json=options.json
            )
        from toolyard.cli.chat.interactive_chat import LineEditor, TerminalConversation  # only for people

        with Interrupts() as interrupts, LineEditor() as prompt:
            return await TerminalConversation(chats, current_chat, prompt, interrupts).run()


async def _open_current_chat(
    chats: ChatService, agents: Mapping[str, Agent], chat_options: ChatOptions
) -> CurrentChat:
    """Open or create the chat with the requested agent and model. Raises Usage."""
    try:
        if chat_options.resume is None:
            return CurrentChat(chats, agents, agent=chat_options.agent, model=chat_options.model)
        current_chat = CurrentChat(
            chats,
            agents,
            await (find_chat(chats, chat_options.resume) if chat_options.resume else find_last_chat(chats)),
        )
        if chat_options.agent is not None:
            await current_chat.choose(agent=chat_options.agent)
        if chat_options.model is not None:
            await current_chat.choose(model=chat_options.model)
        return current_chat
    except (ChatError, NoSuchModel) as error:
        raise Usage(error.cause, hint=error.hint) from None


def event_json(event: ChatEvent) -> dict[str, Any]:
    """Return an event as in the API."""
    return {
        "seq": event.seq,
        "turn": event.turn,
        "kind": event.kind.value,
        "at": format_timestamp(event.at),
        "part": event.part,
        "parent": event.parent,
        "body": dict(event.body),
    }


EXIT_CODES: Mapping[str, int] = {
    TurnOutcome.DONE: 0,
    TurnOutcome.FAILED: 3,
    TurnOutcome.INTERRUPTED: 3,
    TurnOutcome.LIMIT: 6,
    TurnOutcome.STOPPED: INTERRUPT_EXIT_CODE,
}
"""Exit codes by the outcome of the turn; 4 if something was refused because nobody could be asked."""
_REFUSED_EXIT_CODE = 4
_NOTICE_KIND = "chat"


@dataclass(slots=True)
class _JsonLinesDisplay:
    """Prints events as JSON lines, as in the API."""

    def show(self, event: ChatEvent) -> None:
        """Print one event."""
        sys.stdout.write(json.dumps(event_json(event), ensure_ascii=False, separators=(",", ":")) + "\n")
        sys.stdout.flush()

    def end_line(self) -> None:
        """Do nothing: every line is complete."""


class _SingleTurnDisplay(Screen):
    """Prints the events of a turn. Notes that the last turn of this kind had, too, are only counted."""

    def __init__(self, memory: NoticeMemory) -> None:
        super().__init__()
        self._memory = memory
        self._notes: list[str] = []
        self._repeated_count = 0

    def show(self, event: ChatEvent) -> None:
        """Print an event."""
        if isinstance(event.data, Note):
            self._notes.append(event.data.text)
            if self._memory.contains(_NOTICE_KIND, event.data.text):
                self._repeated_count += 1
                return
        elif self._repeated_count:
            repeated, self._repeated_count = format_count(self._repeated_count, "earlier note"), 0
            self.end_line()
            verb = "applies" if repeated.startswith("1 ") else "apply"
            show_note(f"{repeated} still {verb}", "`toolyard servers` shows the servers that fail")
        if isinstance(event.data, TurnEnd):
            self._memory.take_new(_NOTICE_KIND, self._notes)
        super().show(event)


async def _run_single_turn(
    chats: ChatService,
    current_chat: CurrentChat,
    text: str,
    memory: NoticeMemory,
    *,
    can_ask: bool,
    as_json: bool,
) -> int:
    """Send a message, follow the turn to its end, and return the exit code. Raises ToolyardError."""
    chat = await current_chat.get_or_create()
    with Interrupts() as interrupts:
        begun = await chats.send(LOCAL_OWNER_ID, chat.id, text)
        screen = _JsonLinesDisplay() if as_json else _SingleTurnDisplay(memory)
        if as_json:
            for event in await chats.list_events(LOCAL_OWNER_ID, chat.id, after=begun - 1, limit=1):
                screen.show(event)
        turn = TurnFollower(chats, await current_chat.refresh(), screen, interrupts, can_ask=can_ask)
        try:
            return _choose_exit_code(await turn.follow(begun))
        except UserExited as left:
            return INTERRUPT_EXIT_CODE if left.by_interrupt else _REFUSED_EXIT_CODE


def _choose_exit_code(turn_result: TurnResult) -> int:
    code = EXIT_CODES.get(turn_result.outcome, EXIT_CODES[TurnOutcome.FAILED])
    return _REFUSED_EXIT_CODE if turn_result.has_refusals and code == 0 else code
