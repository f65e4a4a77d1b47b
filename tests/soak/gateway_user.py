"""One person's clients of the modern era at the gateway: any replica answers."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import Any

from tests.soak.balanced_requests import BalancedClient
from tests.soak.gateway_messages import INFO, MODERN, WAIT, ExpectedReply, request, send

META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": INFO,
}
NAME_PARAMS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
TOOLS = frozenset({"desk_look", "every_echo", "own_echo"})
_CALL_ABORT_SECONDS = 0.3
"""Seconds after which a client gives its call up."""


class GatewayUser:
    """What these clients do."""

    def __init__(self, line: BalancedClient) -> None:
        self._line = line
        self._ids = itertools.count(1)
        self.instance: str | None = None
        """The slug of an instance that stays, where they have one."""

    async def one(self) -> None:
        """One of those things."""
        does = (self._list, self._call, self._count, self._give_up, self._read, self._put)
        await self._line.random.choices(does, (1, 3, 1, 1, 1, 1))[0]()

    async def _list(self) -> None:
        await self._ask("gateway: tools/list", "tools/list", {}, ExpectedReply(tools=TOOLS))

    async def _call(self) -> None:
        """A quick call: of a shared server, of a process of their own, of an instance."""
        mark = f"{self._line.person.name}-{self._line.random.randrange(10**9)}"
        choices = [
            ("every_echo", {"message": mark}, f"Echo: {mark}"),
            ("desk_look", {"text": mark}, f"look: {mark}"),
            ("own_echo", {"needed": 1, "extra": mark}, f'{{"needed": 1, "extra": "{mark}"}}'),
        ]
        if self.instance is not None:
            choices.append((f"mcp_{self.instance}__echo", {"text": mark}, mark))
        name, arguments, expected = self._line.random.choice(choices)
        params = {"name": name, "arguments": arguments}
        await self._ask("gateway: tools/call", "tools/call", params, ExpectedReply(expected))

    async def _count(self) -> None:
        """A call that tells how far it is."""
        params = {"name": "desk_count", "arguments": {"to": 10, "pause": 0.1}}
        await self._ask("gateway: long call", "tools/call", params, ExpectedReply("counted", progress=True))

    async def _read(self) -> None:
        """Resources: the list, and one of them."""
        resource_list = await self._ask("gateway: resources/list", "resources/list", {}, ExpectedReply())
        # Servers that are slow are left out of a list.
        if resource_list["resources"]:
            uri = self._line.random.choice(resource_list["resources"])["uri"]
            await self._ask("gateway: resources/read", "resources/read", {"uri": uri}, ExpectedReply())

    async def _put(self) -> None:
        """Something that writes needs somebody's yes."""
        params = {"name": "desk_put", "arguments": {"text": "x"}}
        await self._ask("gateway: needs a yes", "tools/call", params, ExpectedReply(refused="approv"))

    async def _give_up(self) -> None:
        """Hang up in the middle of a call."""

        async def wait() -> None:
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    send(self._line, *self._request("tools/call", WAIT)), _CALL_ABORT_SECONDS
                )

        await self._line.tally.counted("gateway: given up", wait())

    async def _ask(self, kind: str, method: str, params: dict[str, Any], expected: ExpectedReply) -> Any:
        message, head = self._request(method, params, expected.progress)

        async def work() -> Any:
            return expected.check((await send(self._line, message, head))[0])

        return await self._line.tally.counted(kind, work())

    def _request(
        self, method: str, params: dict[str, Any], progress: bool = False
    ) -> tuple[dict[str, Any], dict[str, str]]:
        id = next(self._ids)
        meta = {**META, "progressToken": id} if progress else META
        head = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if method in NAME_PARAMS:
            head["Mcp-Name"] = str(params[NAME_PARAMS[method]])
        return request(id, method, {**params, "_meta": meta}), head
