"""A server in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from toolyard.errors import Unreachable
from toolyard.protocol.jsonrpc import Message
from toolyard.transports.memory import MemoryTransport

if TYPE_CHECKING:
    from tests.transports.conftest import RecordingReceiver


async def test_both_sides_see_copies_and_a_close_ends_running_requests(recorder: RecordingReceiver) -> None:
    messages: list[Message] = []
    ended = asyncio.Event()

    async def server(message: Message, reply: Callable[[Message], None]) -> None:
        messages.append(message)
        answer = {"id": message["id"], "result": {"list": [1]}}
        reply(answer)
        answer["result"]["list"].append(2)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    transport = MemoryTransport(server)
    with pytest.raises(Unreachable):
        await transport.send({"id": 1})
    await transport.open(recorder)
    message: Message = {"id": 1, "params": {"deep": {}}}
    await transport.send(message)
    await recorder.next()
    assert messages == [message]
    assert messages[0]["params"]["deep"] is not message["params"]["deep"]
    assert recorder.messages == [{"id": 1, "result": {"list": [1]}}]
    await transport.close()
    assert ended.is_set()
    with pytest.raises(Unreachable):
        await transport.send(message)
