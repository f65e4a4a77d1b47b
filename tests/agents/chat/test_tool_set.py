"""The tools of a chat: what a failure says, who must sign in again, and what is ours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web
from tests.agents.chat.chat_harness import ME, ChatProcess, Model, bodies_of_kind

from toolyard.types.agent import Agent
from toolyard.types.chat import Kind
from toolyard.types.server import HttpSpec, InstanceRef, Server

Opening = Callable[..., Awaitable[ChatProcess]]


@dataclass
class SignInServer:
    """A server that starts to require a sign-in during a test."""

    url: str = ""
    shut: bool = False

    async def answer(self, request: web.Request) -> web.Response:
        message: dict[str, Any] = await request.json()
        if self.shut:
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        params = message.get("params") or {}
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "read", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "read it"}]},
        }
        if "id" not in message:
            return web.Response(status=202)
        message_result = results.get(message["method"])
        error = {"code": -32601, "message": "Method not found"}
        body = {"error": error} if message_result is None else {"result": message_result}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], **body})


@pytest.fixture
async def sign_in_server() -> AsyncIterator[SignInServer]:
    server = SignInServer()
    app = web.Application()
    app.router.add_post("/mcp", server.answer)
    async with contextlib.AsyncExitStack() as stack:
        runner = web.AppRunner(app)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        services = web.TCPSite(runner, "127.0.0.1", 0)
        await services.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        yield server


async def with_instance(process: ChatProcess, sign_in_server: SignInServer) -> None:
    spec = InstanceRef(ME, "work", id="instance-1")
    server = Server(
        spec.server_id,
        HttpSpec(sign_in_server.url),
        label="My work",
        cache_ttl=0.0,
        instance=spec,
        private_addresses=True,
    )
    await process.core.updates.sync_instances(ME, [server])


@pytest.mark.parametrize("agent", [None, "far"])
async def test_a_sign_in_that_ends_in_the_middle_is_told_to_model_and_person(
    open_chats: Opening, sign_in_server: SignInServer, model: Model, agent: str | None
) -> None:
    process = await open_chats(agents=[Agent("far", "Far", mode="meta")], servers={})
    await with_instance(process, sign_in_server)
    chat = await process.chat(agent=agent)
    call = "call mcp_work__read {}" if agent is None else 'call tools_call {"name": "mcp_work__read"}'
    turn = await process.chats.send(ME, chat.id, f"{call}\nthen\nsay Now.\nhold\n{call}\nthen\nresults?")
    await process.until(
        chat, turn, lambda chat_events: "Now." in "".join(str(e.body.get("delta", "")) for e in chat_events)
    )
    sign_in_server.shut = True
    await model.release()
    events = await process.over(chat, turn)
    good, bad = bodies_of_kind(events, Kind.RESULT)
    assert (good["ok"], good["reconnect"], bad["ok"], bad["reconnect"]) == (True, None, False, "instance-1")
    assert bodies_of_kind(events, Kind.END)[0]["why"] == "done"
    if agent is None:
        assert bodies_of_kind(events, Kind.CALL)[0]["server"] == "My work"


async def test_a_chat_has_connections_of_its_own_to_instances(
    open_chats: Opening, sign_in_server: SignInServer
) -> None:
    process = await open_chats(servers={})
    await with_instance(process, sign_in_server)
    one, two = await process.chat(), await process.chat()
    for chat in (one, two):
        events = await process.say(chat, "call mcp_work__read {}", "then")
        assert bodies_of_kind(events, Kind.RESULT)[0]["text"] == "read it"
    assert len(process.core.manager.list_dedicated_connections(one.id)) == 1
    await process.chats.delete(ME, one.id)
    assert process.core.manager.list_dedicated_connections(one.id) == []
    assert len(process.core.manager.list_dedicated_connections(two.id)) == 1


async def test_our_own_tools_are_called_like_all_others(open_chats: Opening, tmp_path: Any) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "a.txt").write_text("hello")
    process = await open_chats(workspace_root=str(workspace))
    events = await process.say(await process.chat(), 'call view_file {"path": "a.txt"}', "then", "tools?")
    [call] = bodies_of_kind(events, Kind.CALL)
    assert (call["tool"], call["native"], call["server"]) == ("@native/view_file", True, "Toolyard")
    [result] = bodies_of_kind(events, Kind.RESULT)
    assert (result["ok"], "hello" in result["text"]) == (True, True)
    names = bodies_of_kind(events, Kind.MODEL_MESSAGE)[-1]["text"].split()
    assert names == sorted(names)
    assert {"view_file", "s_look"} <= set(names)


async def test_a_dead_server_is_not_waited_for_in_every_turn(open_chats: Opening) -> None:
    writers: list[asyncio.StreamWriter] = []
    dead = asyncio.Event()

    async def count_connection(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if not dead.is_set():
            writer.close()

    async with await asyncio.start_server(count_connection, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
        limits = {"connect": 300, "silence": 300, "call": 300}
        process = await open_chats(servers={"hole": {"url": url, "timeouts": limits}}, list_deadline=0.2)
        chat = await process.chat()
        async with asyncio.timeout(60):
            # It closes every connection, which is noticed at once. Later it accepts connections and never
            # answers.
            await process.say(chat, "hello")
            dead.set()
            before = len(writers)
            for _ in range(2):
                events = await process.say(chat, "hello")
                assert bodies_of_kind(events, Kind.MODEL_MESSAGE)
            assert len(writers) > before
        for writer in writers:
            writer.close()
