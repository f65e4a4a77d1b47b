"""Somebody who listens to a chat until its turn is over, and acts on what they hear."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from tests.soak.balanced_requests import BalancedClient, events
from tests.soak.received_events import ReceivedEvents
from tests.soak.request_outcomes import ExpectedFailure, RequestFailure, Wrong
from tests.soak.turn_scripts import Turn

_MAX_TRIES = 5


@dataclass
class Chat:
    """One chat, and how many turns it still gets. ``unsure``: it is not known what it is doing."""

    id: str
    turns: int
    agent: bool
    heard: ReceivedEvents = field(default_factory=ReceivedEvents)
    unsure: bool = False

    @property
    def path(self) -> str:
        return f"/api/v1/chats/{self.id}"


class TurnListener:
    """Listens to one turn."""

    def __init__(self, line: BalancedClient, chat: Chat, turn: Turn) -> None:
        self._line, self._chat, self._turn = line, chat, turn
        self._breaks = line.random.randint(1, 10) if turn.breaks else 0
        self._stopped = False
        self._said = ""
        self._end: Any = None
        self._doing: list[asyncio.Task[None]] = []

    async def listen(self) -> None:
        """Until the turn is over, however often the stream ends before. Raises Wrong or Told."""
        start = time.monotonic()
        try:
            while self._end is None:
                await self._stream()
            await asyncio.gather(*self._doing)
        finally:
            for each in self._doing:
                each.cancel()
        self._judge(start)

    async def _stream(self) -> None:
        path = f"{self._chat.path}/stream?after={self._chat.heard.last}"
        try:
            async with self._line.opened("GET", path) as (response, replica, exchange):
                if response.status != 200:
                    raise self._line.odd(response.status, await response.text(), replica, exchange)
                if await self._read(response):
                    return
            if not replica.disturbed(exchange):
                raise Wrong(f"chat {self._chat.id}: the stream ended before the turn did")
            raise ExpectedFailure("a stream ended and was resumed")
        except ExpectedFailure as told:
            self._line.tally.told[str(told)] += 1
            await asyncio.sleep(0.1)

    async def _read(self, response: aiohttp.ClientResponse) -> bool:
        """Whether it was the person who ended it."""
        count, coming = 0, events(response)
        while (event := await self._next(coming)) is not None:
            if "seq" not in event:
                raise Wrong(f"chat {self._chat.id} is gone")
            self._chat.heard.hear(event, self._line.tally)
            self._act(event["kind"], event["body"])
            count += 1
            if self._end is not None:
                return True
            if count == self._breaks:
                self._breaks = 0
                return True
        return False

    async def _next(self, coming: AsyncGenerator[Any]) -> Any:
        """The next event; None at the end. A turn has many requests in it: each event has the deadline."""
        try:
            async with asyncio.timeout(self._line.tally.deadline):
                return await anext(coming, None)
        except TimeoutError:
            chat = f"chat {self._chat.id}: silence after event {self._chat.heard.last}"
            raise TimeoutError(f"{chat}; script {self._turn.script!r}") from None

    def _act(self, kind: str, body: Any) -> None:
        if kind == "said":
            self._said = body["text"]
        elif kind == "end":
            self._end = body
        elif kind == "ask":
            decision = {"yes": bool(self._turn.approves)}
            path = f"/api/v1/approvals/{body['approval']}"
            self._do(self._again("chat: approve", path, decision, (204,), (404, 409)))
        if self._turn.stops and not self._stopped and kind in ("text", "call"):
            self._stopped = True
            self._do(self._again("chat: stop", f"{self._chat.path}/stop", None, (202,), ()))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self._doing.append(asyncio.create_task(work))

    async def _again(
        self, kind: str, path: str, body: Any, good: tuple[int, ...], refused_statuses: tuple[int, ...]
    ) -> None:
        """Ask until it is answered: without it the turn would wait. Only a restart makes it take more."""
        for _ in range(_MAX_TRIES):
            try:
                await self._line.ask(kind, "POST", path, body, good=good, refused_statuses=refused_statuses)
            except RequestFailure:
                await asyncio.sleep(0.2)
            else:
                return

    def _judge(self, start: float) -> None:
        why, chat, turn = self._end["why"], self._chat.id, self._turn
        if why == "interrupted" and any(each.disturbed(start) for each in self._line.environment.replicas):
            raise ExpectedFailure("the turn was interrupted")
        if why not in turn.ends:
            raise Wrong(f"chat {chat}: ended as {why}: {self._end.get('error')}; script {turn.script!r}")
        if why == "done" and turn.expected not in self._said:
            raise Wrong(f"chat {chat}: {turn.expected!r} is not in {self._said!r}")
