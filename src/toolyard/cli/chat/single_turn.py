"""``toolyard chat -p``: one turn, for scripts and for those in a hurry."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from toolyard.cli.chat.chat_app import OWNER, Room
from toolyard.cli.chat.current_chat import Seat
from toolyard.cli.chat.interrupts import Interrupts
from toolyard.cli.chat.screen import Screen
from toolyard.cli.chat.turn_view import Ended, Left, Turn
from toolyard.types.chat import Ending, Event

__all__ = ["CODES", "Lines", "one_turn"]

CODES = {
    Ending.DONE: 0,
    Ending.FAILED: 3,
    Ending.INTERRUPTED: 3,
    Ending.LIMIT: 6,
    Ending.STOPPED: 130,
}
"""Exit codes by how a turn ended; where something was refused because nobody could be asked, 4."""
_REFUSED = 4
_INTERRUPTED = 130


@dataclass(slots=True)
class Lines:
    """Events as lines of JSON, exactly as the API gives them."""

    def show(self, event: Event) -> None:
        """Print one."""
        from toolyard.web.api.chat_models import event_shown  # one shape for all who read events

        sys.stdout.write(event_shown(event).model_dump_json() + "\n")
        sys.stdout.flush()

    def end_line(self) -> None:
        """Every line is whole."""


async def one_turn(room: Room, seat: Seat, text: str, *, asks: bool, json: bool) -> int:
    """Say something, follow the turn to its end, and give the exit code. Raises ToolyardError."""
    chat = await seat.taken()
    with Interrupts() as interrupts:
        begun = await room.chats.send(OWNER, chat.id, text)
        screen = Lines() if json else Screen()
        if json:
            for event in await room.chats.events(OWNER, chat.id, after=begun - 1, limit=1):
                screen.show(event)
        turn = Turn(room.chats, await seat.refreshed(), screen, interrupts, asks=asks)
        try:
            return _code(await turn.follow(begun))
        except Left as left:
            return _INTERRUPTED if left.by_interrupt else _REFUSED


def _code(ended: Ended) -> int:
    code = CODES[ended.why]
    return _REFUSED if ended.refused and code == 0 else code
