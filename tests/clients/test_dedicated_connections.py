"""Dedicated connections of chats: one per instance, fresh, closed with the chat."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.tool_calls import call_tool

from toolyard.clients import Callbacks, ConnectionManager
from toolyard.clients.connector import ConnectionManagerLimits
from toolyard.config.settings.table import Settings
from toolyard.core.composition import Core, build_core
from toolyard.errors import SignInNeeded
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.call import Caller, McpRequest, ToolCall, WriteTools
from toolyard.types.server import Configuration, Server, State, StdioSpec

if TYPE_CHECKING:
    from tests.clients.conftest import Accounts

ANN = Principal("ann")
USUAL = Caller(ANN)
ONE, TWO = Caller(ANN, chat="one"), Caller(ANN, chat="two")
DESK, WHOAMI = "@ann/desk", "mcp_desk__whoami"
RESULTS_SERVER = str(Path(__file__).parent.parent / "servers/results_server.py")

Until = Callable[..., Awaitable[None]]
Core = Callable[..., AbstractAsyncContextManager[Core]]


@pytest.fixture
def core(tmp_path: Path) -> Core:
    """``async with core(*config servers, **options) as parts``."""

    @asynccontextmanager
    async def make(*servers: Server, **options: Any) -> AsyncIterator[Core]:
        configuration = Configuration({server.id: server for server in servers})
        core = build_core(configuration, Settings(write_tools=WriteTools.ALLOW), data_dir=tmp_path, **options)
        try:
            yield core
        finally:
            await core.close()

    return make


async def call(core: Core, caller: Caller, name: str = WHOAMI) -> str:
    return (await core.call_path.call(ToolCall(name), caller)).text


# Ownership of connections.


async def test_each_chat_has_a_connection_of_its_own_to_an_instance(accounts: Accounts, core: Core) -> None:
    async with core() as core:
        await core.updates.sync_instances("ann", [accounts.instance("ann")])
        sessions: list[list[str]] = []
        for caller in (USUAL, ONE, TWO):
            assert await call(core, caller) == "ann whoami"
            sessions.append(accounts.opened("ann"))
        assert [len(each) for each in sessions] == [1, 2, 3]
        # The next turn of a chat continues on the same connection.
        assert await call(core, ONE) == "ann whoami"
        assert accounts.opened("ann") == sessions[-1]


async def test_a_listing_for_a_chat_goes_over_its_own_connection_each_time(
    accounts: Accounts, core: Core
) -> None:
    async with core() as core:
        await core.updates.sync_instances("ann", [accounts.instance("ann")])
        await asyncio.gather(*(core.tool_directory.refresh(ANN, chat=chat) for chat in ("one", "two")))
        assert len(accounts.opened("ann")) == 2
        accounts.more.append({"name": "later", "inputSchema": {"type": "object"}})
        roster = await core.tool_directory.refresh(ANN, chat="one")
        assert "mcp_desk__later" in core.call_path.visible_tools(roster, ONE)
        assert accounts.count("ann", "tools/list") == 3
        assert len(accounts.opened("ann")) == 2


async def test_a_server_of_the_configuration_keeps_its_usual_connection(
    accounts: Accounts, core: Core
) -> None:
    async with core(accounts.server("one", shared=True)) as core:
        for caller in (USUAL, ONE, TWO):
            await core.tool_directory.refresh(ANN, chat=caller.chat)
            assert await call(core, caller, "one_whoami") == "common whoami"
        assert len(accounts.opened("common")) == 1


async def test_the_chat_of_one_never_reaches_the_instance_of_another(accounts: Accounts, core: Core) -> None:
    async with core() as core:
        await core.updates.sync_instances("ann", [accounts.instance("ann")])
        await core.updates.sync_instances("bob", [accounts.instance("bob")])
        # Ids of chats are not secret; here another user uses the same one.
        assert await call(core, ONE) == "ann whoami"
        assert await call(core, Caller(Principal("bob"), chat="one")) == "bob whoami"


# End of connections.


async def test_ending_a_chat_closes_its_connections_and_no_others(
    accounts: Accounts, core: Core, wait_until: Until
) -> None:
    async with core() as core:
        await core.updates.sync_instances("ann", [accounts.instance("ann")])
        await call(core, TWO)
        staying = accounts.opened("ann")
        await call(core, ONE)
        await core.manager.release_connections("one")
        await wait_until(lambda: accounts.opened("ann") == staying)
        assert core.manager.list_dedicated_connections("one") == []
        assert await call(core, ONE) == "ann whoami"


async def test_a_connection_that_its_chat_does_not_use_is_closed(
    accounts: Accounts, core: Core, wait_until: Until
) -> None:
    async with core() as core:
        await core.updates.sync_instances("ann", [accounts.instance("ann", stop_when_idle=0.05)])
        await call(core, ONE)
        await wait_until(lambda: accounts.opened("ann") == [])
        assert await call(core, ONE) == "ann whoami"


async def test_unused_chats_leave_nothing_behind(accounts: Accounts, wait_until: Until) -> None:
    instance = accounts.instance("ann", stop_when_idle=0.01)
    async with ConnectionManager([instance], limits=ConnectionManagerLimits(chat_connections=4)) as manager:
        for number in range(12):
            request = McpRequest("tools/call", {"name": "whoami", "arguments": {}})
            await manager.send(DESK, Caller(ANN, chat=f"chat-{number}"), request)
            await wait_until(lambda: accounts.opened("ann") == [])
        open_numbers = [
            number for number in range(12) if manager.list_dedicated_connections(f"chat-{number}")
        ]
        assert len(open_numbers) <= 5
        assert open_numbers[-1] == 11


async def test_another_filter_leaves_the_connection_of_a_chat_and_another_key_closes_it(
    accounts: Accounts, core: Core, wait_until: Until
) -> None:
    async with core() as core:
        desk = accounts.instance("ann")
        await core.updates.sync_instances("ann", [desk])
        await call(core, ONE)
        session_count = accounts.opened("ann")
        assert desk.instance is not None
        await core.updates.sync_instances(
            "ann", [replace(desk, instance=replace(desk.instance, tool_filter=("whoami",)))]
        )
        assert await call(core, ONE) == "ann whoami"
        assert accounts.opened("ann") == session_count
        await core.updates.sync_instances("ann", [accounts.instance("ann")])
        await wait_until(lambda: accounts.opened("ann") == [])
        assert await call(core, ONE) == "ann whoami"


# Listings over dedicated connections.


async def test_a_sign_in_that_ended_in_a_chat_is_the_state_of_the_instance(
    accounts: Accounts, core: Core
) -> None:
    async with core() as core:
        desk = accounts.instance("ann")
        await core.updates.sync_instances("ann", [desk])
        await call(core, USUAL)
        await call(core, ONE)
        assert core.manager.state(DESK, ANN) is State.READY
        accounts.users.clear()
        with pytest.raises(SignInNeeded):
            await call(core, ONE)
        assert core.manager.state(DESK, ANN) is State.NEEDS_AUTH
        status = core.manager.status(DESK, principal=ANN)
        assert status.state is State.NEEDS_AUTH
        assert status.cause
        # A new sign-in leaves nothing of the old one.
        accounts.users.update({desk.transport.headers["X-Key"]: "ann"})
        await core.updates.reconnect(DESK, ANN)
        assert core.manager.state(DESK, ANN) is State.IDLE
        assert await call(core, ONE) == "ann whoami"
        assert core.manager.state(DESK, ANN) is State.READY


async def test_the_latest_of_several_connections_says_how_an_instance_is(
    accounts: Accounts, core: Core
) -> None:
    async with core() as core:
        desk = accounts.instance("ann")
        await core.updates.sync_instances("ann", [desk])
        accounts.users.clear()
        with pytest.raises(SignInNeeded):
            await call(core, ONE)
        assert core.manager.state(DESK, ANN) is State.NEEDS_AUTH
        accounts.users.update({desk.transport.headers["X-Key"]: "ann"})
        await call(core, TWO)
        assert core.manager.state(DESK, ANN) is State.READY
        assert [status.state for status in core.manager.statuses(ANN)] == [State.READY]


# Handlers of server requests.


async def test_callbacks_are_those_of_the_principal_and_the_chat(accounts: Accounts, core: Core) -> None:
    list_requests: list[tuple[str, str | None]] = []

    def callbacks_for(principal: Principal, chat: str | None) -> Callbacks:
        list_requests.append((principal.id, chat))
        return Callbacks()

    async with core(
        accounts.server("one", shared=True), accounts.server("own"), callbacks_for=callbacks_for
    ) as core:
        await core.updates.sync_instances("ann", [accounts.instance("ann")])
        for name in (WHOAMI, "one_whoami", "own_whoami"):
            await call(core, ONE, name)
        # The shared connection has no owner.
        assert sorted(list_requests, key=str) == [("ann", "one"), ("ann", None), ("local", None)]


CURRENT_USER: ContextVar[str | None] = ContextVar("who", default=None)


@pytest.mark.parametrize("first", [None, "somebody else"])
async def test_a_question_over_one_channel_for_all_is_heard_in_nobodys_context(first: str | None) -> None:
    """On stdio a question does not name its call. It must not be attributed to the first user."""
    principals_heard: list[str | None] = []

    async def answer(server: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        principals_heard.append(CURRENT_USER.get())
        return {"action": "cancel"}

    def callbacks_for(principal: Principal, chat: str | None) -> Callbacks:
        return Callbacks(elicitation=answer)

    server = Server("asking", StdioSpec(sys.executable, ("-I", "-S", RESULTS_SERVER)))
    async with ConnectionManager([server], callbacks_for=callbacks_for) as manager:
        CURRENT_USER.set(first)
        await manager.ensure_connected("asking", principal=LOCAL_PRINCIPAL)
        CURRENT_USER.set("me")
        result = await call_tool(manager, "asking", "ask", {})
        assert result["content"][0]["text"] == '{"action": "cancel"}'
        assert principals_heard == [None]


async def test_what_a_chat_can_answer_is_found_out_once_and_again_after_a_change() -> None:
    asked: list[str | None] = []

    def callbacks_for(principal: Principal, chat: str | None) -> Callbacks:
        asked.append(chat)
        return Callbacks()

    server = Server("asking", StdioSpec(sys.executable, ("-I", "-S", RESULTS_SERVER)))
    async with ConnectionManager([server], callbacks_for=callbacks_for) as manager:

        async def call_twice() -> int:
            for _ in range(2):
                await manager.send("asking", Caller(chat="one"), McpRequest("tools/list", {}))
            return asked.count("one")

        assert await call_twice() == 1
        manager.forget_chat_capabilities()
        assert await call_twice() == 2
        await manager.release_connections("one")
        assert await call_twice() == 3
