"""What was cancelled or refused, or is over, is freed at once. What leads back to itself would stay until the
collector looks for it, which is rare in a process that serves many."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.agents.chat.chat_harness import chat_server, fake_model
from tests.gateway.conftest import LegacyClient, ModernClient

from toolyard.agents.chat.turn import Turn
from toolyard.agents.chat.turn_log import TurnLog
from toolyard.clients.session import McpSession, PendingCall
from toolyard.core.services import Services
from toolyard.errors import ApprovalNeeded
from toolyard.gateway.http.exchange import DisconnectWatcher
from toolyard.gateway.http.sessions import HttpSession
from toolyard.gateway.incoming_request import LegacySession

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram

pytestmark = pytest.mark.both_loops

Until = Callable[..., Awaitable[None]]
OURS = (
    ApprovalNeeded,
    HttpSession,
    McpSession,
    TurnLog,
    LegacySession,
    Turn,
    DisconnectWatcher,
    PendingCall,
)
ROUND_COUNT = 3
WAITS = "s_wait"
"""A call that never ends by itself."""


@dataclass
class WaitingCallSite:
    """A Toolyard with a server whose calls wait, and a model that calls it."""

    url: str
    services: Services
    journal: Path
    http: aiohttp.ClientSession
    until: Until
    began: int = 0

    async def waiting(self) -> None:
        """Until one more call of the server waits."""
        self.began += 1
        await self.until(lambda: self.calls("wait {}") == self.began)

    async def cancelled(self) -> None:
        """Until the server was told so of all of them."""
        await self.until(lambda: self.calls("cancelled wait") == self.began)

    def calls(self, line: str) -> int:
        text = self.journal.read_text() if self.journal.exists() else ""
        return text.splitlines().count(line)


@pytest.fixture
async def site(
    open_site: Any,
    http: aiohttp.ClientSession,
    model_program: ListeningProgram,
    wait_until: Until,
    tmp_path: Path,
) -> WaitingCallSite:
    journal = tmp_path / "journal"
    models = {"fake": fake_model(model_program.url)}
    local = await open_site({"s": chat_server(journal)}, models=models, write_tools="ask")
    return WaitingCallSite(local.url, local.services, journal, http, wait_until)


@pytest.fixture
def collector() -> Iterator[GarbageCollector]:
    """It looks for nothing unless it is asked to."""
    gc.collect()
    gc.disable()
    # What others left is kept, and so it is not found.
    others = [each for each in gc.get_objects() if isinstance(each, OURS)]
    try:
        yield GarbageCollector()
    finally:
        gc.set_debug(0)
        gc.enable()
        others.clear()


class GarbageCollector:
    """The one of this process."""

    def finds(self) -> Counter[str]:
        """What there is of ours that nobody has any more, and that still is not freed."""
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        counts = Counter(type(each).__name__ for each in gc.garbage if isinstance(each, OURS))
        gc.garbage.clear()
        return counts


def watches_clients() -> bool:
    """Whether somebody looks if a client is still there."""
    return any(
        getattr(task.get_coro(), "__qualname__", "") == "DisconnectWatcher._watch_disconnect"
        for task in asyncio.all_tasks()
    )


async def test_an_aborted_request_leaves_no_cycles(
    site: WaitingCallSite, collector: GarbageCollector
) -> None:
    client = ModernClient(site.http, f"{site.url}/mcp")
    for _ in range(ROUND_COUNT):
        call = asyncio.create_task(client.call(WAITS))
        await site.waiting()
        await site.until(watches_clients)
        call.cancel()
        await asyncio.wait([call])
        await site.cancelled()
    assert collector.finds() == {}


async def test_a_session_that_is_over(site: WaitingCallSite, collector: GarbageCollector) -> None:
    for _ in range(ROUND_COUNT):
        client = LegacyClient(site.http, f"{site.url}/mcp")
        await client.begin()
        assert (await client.call("s_look", {"text": "x"})).text == "look: x"
        async with site.http.delete(client.url, headers=client.head("")) as response:
            assert response.status == 204
    assert collector.finds() == {}


async def test_a_call_refused_without_elicitation_leaves_no_cycles(
    site: WaitingCallSite, collector: GarbageCollector
) -> None:
    client = ModernClient(site.http, f"{site.url}/mcp")
    for _ in range(ROUND_COUNT):
        assert "needs an approval" in (await client.call("s_put", {"text": "x"})).text
    assert collector.finds() == {}


async def test_a_turn_that_was_stopped(site: WaitingCallSite, collector: GarbageCollector) -> None:
    chats = site.services.chats
    for _ in range(ROUND_COUNT):
        chat = await chats.create("local")
        await chats.send("local", chat.id, f"say Well.\ncall {WAITS} {{}}")
        await site.waiting()
        await chats.stop_turn("local", chat.id)
        await chats.delete("local", chat.id)
    assert collector.finds() == {}


async def test_a_connection_that_was_closed(site: WaitingCallSite, collector: GarbageCollector) -> None:
    client = ModernClient(site.http, f"{site.url}/mcp")
    for _ in range(ROUND_COUNT):
        assert (await client.call("s_look", {"text": "x"})).text == "look: x"
        await site.services.core.manager.restart("s")
    assert collector.finds() == {}
