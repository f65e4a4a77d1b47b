"""``toolyard chat -p``: one turn, for scripts."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from toolyard.cli.chat.chat_app import LOCAL_OWNER_ID, ChatApp
from toolyard.cli.chat.current_chat import CurrentChat
from toolyard.cli.chat.interrupts import Interrupts
from toolyard.cli.chat.screen import Screen
from toolyard.cli.chat.turn_follower import TurnFollower, TurnResult, UserLeft
from toolyard.types.chat import ChatEvent, TurnOutcome

__all__ = ["EXIT_CODES", "JsonLinesDisplay", "run_single_turn"]

EXIT_CODES = {
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
        from toolyard.web.api.chat_models import build_event_model  # one shape for all who read events

        sys.stdout.write(build_event_model(event).model_dump_json() + "\n")
        sys.stdout.flush()

    def end_line(self) -> None:
        """Do nothing: every line is complete."""


async def run_single_turn(
    chat_app: ChatApp, current_chat: CurrentChat, text: str, *, can_ask: bool, json: bool
) -> int:
    """Send a message, follow the turn to its end, and return the exit code. Raises ToolyardError."""
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
        except UserLeft as left:
            return _INTERRUPTED_EXIT_CODE if left.by_interrupt else _REFUSED_EXIT_CODE


def _choose_exit_code(turn_result: TurnResult) -> int:
    code = EXIT_CODES[turn_result.why]
    return _REFUSED_EXIT_CODE if turn_result.has_refusals and code == 0 else code
