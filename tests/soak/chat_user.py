"""Chats of one person: turns, one after the other, and in the end no event is missing."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.soak.balanced_requests import BalancedClient
from tests.soak.chat_listener import Chat, TurnListener
from tests.soak.request_outcomes import RequestFailure
from tests.soak.turn_scripts import Turn, some_turn

_MAX_OPEN_CHATS = 3
"""Chats that somebody has at the same time."""
_MAX_TURNS = 6
_MAX_TURN_DEADLINES = 5
"""Deadlines, one after the other, that a whole turn may take."""


class ChatUser:
    """What one person does in chats."""

    def __init__(self, line: BalancedClient) -> None:
        self._line = line
        self._chats: list[Chat] = []
        self.instance: str | None = None
        """The slug of an instance that stays, where they have one."""

    @property
    def page(self) -> str:
        """The page of a chat."""
        return f"/ui/chat/{self._chats[0].id}" if self._chats else "/ui/chat"

    async def one(self) -> None:
        """A turn, in a chat that is there or in a new one."""
        draw = self._line.random
        if not self._chats or (len(self._chats) < _MAX_OPEN_CHATS and draw.random() < 0.3):
            self._chats.append(await self._begin())
        chat = draw.choice(self._chats)
        if chat.turns <= 0:
            self._chats.remove(chat)
            await self._end(chat)
            return
        chat.turns -= 1
        instance = None if chat.agent else self.instance
        await self._take(chat, some_turn(draw, self._line.person.name, instance))

    async def leave(self) -> None:
        """Check and delete what is left."""
        chats, self._chats = self._chats, []
        for chat in chats:
            await self._end(chat)

    async def _begin(self) -> Chat:
        draw = self._line.random
        agent = draw.random() < 0.3
        agent_choice = {"agent": "clerk"} if agent else {}
        answer = await self._line.ask("chat: begin", "POST", "/api/v1/chats", agent_choice, good=(201,))
        return Chat(answer.json["id"], draw.randint(1, _MAX_TURNS), agent)

    async def _take(self, chat: Chat, turn: Turn) -> None:
        if chat.unsure:
            await self._settle(chat)
        chat.unsure = True
        await self._line.ask(
            "chat: send", "POST", f"{chat.path}/messages", {"text": turn.script}, good=(202,)
        )
        tally = self._line.tally
        await tally.counted(
            "chat: turn", TurnListener(self._line, chat, turn).listen(), _MAX_TURN_DEADLINES * tally.deadline
        )
        chat.unsure = False

    async def _settle(self, chat: Chat) -> None:
        """After a request that was not answered nobody knows whether a turn runs: end it, and hear it all."""
        tally, line = self._line.tally, self._line
        while True:
            now = (await line.ask("chat: look", "GET", chat.path)).json
            if now["state"] != "idle":
                await line.ask("chat: stop", "POST", f"{chat.path}/stop", good=(202,))
                await asyncio.sleep(0.1)
            elif now["last"] <= chat.heard.last:
                chat.unsure = False
                return
            else:
                for event in await self._stored(chat, chat.heard.last):
                    chat.heard.hear(event, tally)

    async def _stored(self, chat: Chat, since: int) -> list[Any]:
        stored_events, after = list[Any](), since
        while after is not None:
            page = (
                await self._line.ask("chat: events", "GET", f"{chat.path}/events?after={after}&limit=500")
            ).json
            stored_events += page["items"]
            after = page["next_after"]
        return stored_events

    async def _end(self, chat: Chat) -> None:
        if chat.unsure:
            await self._settle(chat)
        chat.heard.compare(await self._stored(chat, 0), self._line.tally, chat.id)
        try:
            await self._line.ask("chat: delete", "DELETE", chat.path, good=(204,), refused_statuses=(404,))
        except RequestFailure:
            # It may be gone all the same; whoever asks again is refused.
            await self._line.ask("chat: delete", "DELETE", chat.path, good=(204,), refused_statuses=(404,))
