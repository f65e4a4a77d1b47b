"""One person's clients of the legacy era at the gateway: a session belongs to the replica that began it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.soak.balanced_requests import BalancedClient
from tests.soak.gateway_messages import INFO, LEGACY, WAIT, ExpectedReply, request, send
from tests.soak.replicas import SoakReplica
from tests.soak.request_outcomes import ExpectedFailure, Wrong


@dataclass(frozen=True)
class _Session:
    """A session that was begun, before a replica was restarted so many times."""

    line: BalancedClient
    replica: SoakReplica
    generation: int
    head: Mapping[str, str]

    async def send(self, message: Mapping[str, Any], under_way: asyncio.Event | None = None) -> list[Any]:
        try:
            return (await send(self.line, message, self.head, self.replica, under_way))[0]
        except Wrong:
            raise self._over() from None

    async def end(self) -> None:
        request = self.line.opened("DELETE", "/mcp", at=self.replica, headers=dict(self.head))
        async with request as (response, where, exchange):
            if response.status == 404:
                raise self._over()
            if response.status != 204:
                raise self.line.odd(response.status, await response.text(), where, exchange)

    def _over(self) -> Exception:
        if self.replica.generation != self.generation:
            return ExpectedFailure("the session ended with its replica")
        return Wrong("the session is not known any more")


class Sessions:
    """What these clients do."""

    def __init__(self, line: BalancedClient) -> None:
        self._line = line
        self._ids = itertools.count(1)

    async def one(self) -> None:
        """A session, from its beginning to its end."""
        counter, name = self._line.tally.counted, self._line.person.name
        session = await counter("gateway, legacy: initialize", self._begin())
        await counter("gateway, legacy: tools/list", self._ask(session, "tools/list", {}, ExpectedReply()))
        look = {"name": "desk_look", "arguments": {"text": name}}
        for _ in range(self._line.random.randint(1, 3)):
            call = self._ask(session, "tools/call", look, ExpectedReply(f"look: {name}"))
            await counter("gateway, legacy: tools/call", call)
        count = {"name": "desk_count", "arguments": {"to": 5, "pause": 0.1}, "_meta": {"progressToken": 1}}
        call = self._ask(session, "tools/call", count, ExpectedReply("counted", progress=True))
        await counter("gateway, legacy: long call", call)
        await counter("gateway, legacy: cancel", self._cancel(session))
        await counter("gateway, legacy: end", session.end())

    async def _begin(self) -> _Session:
        replica = self._line.environment.following()
        params = {"protocolVersion": LEGACY, "clientInfo": INFO, "capabilities": {}}
        generation, message = replica.generation, request(next(self._ids), "initialize", params)
        _, headers = await send(self._line, message, {}, replica)
        head = {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": headers["Mcp-Session-Id"]}
        session = _Session(self._line, replica, generation, head)
        await session.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return session

    async def _ask(
        self, session: _Session, method: str, params: dict[str, Any], expected: ExpectedReply
    ) -> Any:
        return expected.check(await session.send(request(next(self._ids), method, params)))

    async def _cancel(self, session: _Session) -> None:
        """A call that is cancelled has no answer, and its stream ends. The two travel on connections of their
        own, and what nobody has heard of yet cannot be cancelled."""
        id, under_way = next(self._ids), asyncio.Event()
        response_task = asyncio.create_task(session.send(request(id, "tools/call", WAIT), under_way))
        response_task.add_done_callback(lambda _: under_way.set())
        try:
            await under_way.wait()
            cancellation = {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": id},
            }
            await session.send(cancellation)
            messages = await response_task
        finally:
            response_task.cancel()
        if messages:
            raise Wrong(f"a cancelled call was answered: {messages}")
