"""Where people in chats can answer servers, a gateway's client that cannot is not taken for one that can."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp.web
import pytest

from toolyard.clients import Callbacks
from toolyard.config.settings.table import Settings
from toolyard.core.composition import Core, build_core
from toolyard.gateway.endpoint import Endpoint
from toolyard.gateway.gateway import Gateway
from toolyard.gateway.incoming_request import ClientRequest, LegacySession
from toolyard.protocol.eras import LEGACY, MODERN
from toolyard.protocol.jsonrpc import RpcFailure
from toolyard.types.account import Principal
from toolyard.types.call import Caller, McpRequest, RequestClient, Surface, ToolCall, WriteTools
from toolyard.types.server import Configuration, HttpSpec, Server, StdioSpec, Trust

ODD = str(Path(__file__).parent / "passthrough_server.py")
META = "io.modelcontextprotocol"
FORMS = {"elicitation": {"form": {}}}
ANN, BOB = (Caller(Principal(name), Surface.MODEL_DIRECT) for name in ("ann", "bob"))


async def cancel(server: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"action": "cancel"}


def in_chats(principal: Principal, chat: str | None) -> Callbacks:
    return Callbacks(elicitation=cancel)


async def modern(request: aiohttp.web.Request) -> aiohttp.web.Response:
    """A server of the modern era: ``told`` says what it is told of its client, ``ask`` wants input."""
    message = await request.json()
    params = message.get("params") or {}
    result: dict[str, Any] = {"resultType": "complete"}
    match message["method"]:
        case "server/discover":
            result |= {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "modern", "version": "1"},
            }
        case "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("told", "ask")]
            result |= {"tools": tools, "ttlMs": 60_000, "cacheScope": "private"}
        case "tools/call" if params["name"] == "ask":
            form = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
            input_requests = {"who": {"method": "elicitation/create", "params": form}}
            result = {"resultType": "input_required", "inputRequests": input_requests, "requestState": "s"}
        case _:
            capabilities = params["_meta"][f"{META}/clientCapabilities"]
            result["content"] = [{"type": "text", "text": json.dumps(capabilities, sort_keys=True)}]
    return aiohttp.web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    app = aiohttp.web.Application()
    app.router.add_post("/mcp", modern)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    servers = [
        Server("new", HttpSpec(f"http://127.0.0.1:{port}/mcp")),
        Server("wary", HttpSpec(f"http://127.0.0.1:{port}/mcp"), trust=Trust.UNTRUSTED),
        Server("old", StdioSpec(sys.executable, ("-I", "-S", ODD, "old"))),
        Server("common", StdioSpec(sys.executable, ("-I", "-S", ODD, "common")), shared=True),
    ]
    settings = Settings(write_tools=WriteTools.ALLOW)
    configuration = Configuration({server.id: server for server in servers})
    core = build_core(configuration, settings, data_dir=tmp_path, callbacks_for=in_chats)
    yield core
    await core.close()
    await runner.cleanup()


def request(name: str, *, modern: bool, capabilities: Mapping[str, Any]) -> ClientRequest:
    params = {"name": name, "arguments": {}}
    session = None
    if not modern and capabilities:
        session = LegacySession("2025-11-25", capabilities, {}, send_to_client=lambda message: None)
    return ClientRequest(
        "tools/call",
        params,
        MODERN if modern else LEGACY,
        lambda message: None,
        capabilities,
        session=session,
    )


async def call_for_json(
    gateway: Gateway, name: str, caller: Caller = ANN, *, modern: bool, capabilities: Mapping[str, Any]
) -> Any:
    front = Endpoint(gateway, caller)
    answer = await front.handle(request(name, modern=modern, capabilities=capabilities))
    assert not isinstance(answer, RpcFailure), answer
    return json.loads(answer["content"][0]["text"])


def gateway_of(core: Core) -> Gateway:
    return Gateway(
        core.manager,
        core.tool_directory,
        core.call_path,
        core.meta_tools,
        core.name_assigner,
        core.locks,
    )


@pytest.mark.parametrize("server", ["new", "old", "common"])
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_server_gets_the_capabilities_of_clients(core: Core, server: str, era: str) -> None:
    gateway = gateway_of(core)
    # A stdio server is told once what Toolyard can do: nothing, if it is shared between people.
    once = {"old": FORMS, "common": {}}.get(server)
    for capabilities in ({}, FORMS, {}):
        capabilities_reply = await call_for_json(
            gateway, f"{server}_told", modern=era == "modern", capabilities=capabilities
        )
        assert capabilities_reply == (capabilities if once is None else once)
    # While a chat's call, over the usual connection, tells of its person.
    result = await core.call_path.call(ToolCall(f"{server}_told"), Caller(ANN.principal, chat="one"))
    assert json.loads(result.text) == (FORMS if once is None else once)
    await gateway.close()


@pytest.mark.parametrize("key", [None, "session"])
async def test_an_untrusted_server_gets_no_capabilities_of_clients(core: Core, key: str | None) -> None:
    client = RequestClient(key, "client", FORMS)
    for server, expected in {"new": FORMS, "wary": {}}.items():
        call = McpRequest("tools/call", {"name": "told", "arguments": {}}, client=client)
        result = await core.manager.send(server, ANN, call)
        assert json.loads(result["content"][0]["text"]) == expected


async def test_a_shared_server_is_not_started_for_each_client(core: Core) -> None:
    gateway = gateway_of(core)
    for caller in (ANN, BOB):
        assert await call_for_json(gateway, "common_told", caller, modern=True, capabilities={}) == {}
    assert core.manager.status("common").connects == 1
    await gateway.close()


async def test_a_server_that_asks_an_incapable_client_gets_an_error(core: Core) -> None:
    gateway = gateway_of(core)
    for modern in (True, False):
        answer = await Endpoint(gateway, ANN).handle(request("new_ask", modern=modern, capabilities={}))
        assert isinstance(answer, RpcFailure)
        assert "which this client does not support" in answer.message
    await gateway.close()
