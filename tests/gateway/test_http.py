"""The HTTP door: who gets in, what is refused and how, sessions and streams of the legacy era."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Sequence
from typing import Any

import aiohttp
import pytest
from tests.gateway.conftest import LONG_LIST_DEADLINE, META, LegacyClient, ModernClient, passthrough_entry
from tests.web.conftest import InProcessApp

from toolyard.types.account import Right, TokenScope
from toolyard.types.agent import Agent
from toolyard.types.audit import AuditEntry

CALL = frozenset({Right.CALL})


@pytest.fixture
async def password_site(open_site: Any) -> InProcessApp:
    return await open_site(
        {"one": passthrough_entry("one"), "two": passthrough_entry("two")},
        people_mode="password",
        list_deadline=LONG_LIST_DEADLINE,
    )


# Bad input.


async def test_malformed_messages_are_refused(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{two_server_site.url}/mcp")
    head = client.head("tools/list")
    for body, code in (
        (b"{", -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}', -32600),
    ):
        reply = await client.send(body, head)
        assert (reply.status, reply.error["code"]) == (400, code), body


async def test_headers_must_match_the_body(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{two_server_site.url}/mcp")
    params = {"name": "one_told", "arguments": {}}
    good = client.head("tools/call", params)
    for wrong in (
        {"Mcp-Name": "one_secret"},
        {"Mcp-Method": "tools/list"},
        {"MCP-Protocol-Version": "2025-11-25"},
        {"Mcp-Name": None},
        {"Mcp-Method": None},
    ):
        head = {key: value for key, value in {**good, **wrong}.items() if value is not None}
        reply = await client.send(client.message("tools/call", params), head)
        assert (reply.status, reply.error["code"]) == (400, -32020), wrong


async def test_the_rest_of_bad_input_has_its_status(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{two_server_site.url}/mcp")
    head, message = client.head("tools/list"), client.message("tools/list")
    assert (await client.send(message, {**head, "Content-Type": "text/plain"})).status == 415
    assert (await client.send(message, {**head, "Accept": "text/html"})).status == 406
    assert (await client.send(message, {**head, "Origin": "http://elsewhere.example"})).status == 403
    assert (await client.send(message, {**head, "Host": "elsewhere.example"})).status == 421
    async with http.post(client.url, data=io.BytesIO(b" " * 9_000_000), headers=head) as response:
        assert response.status == 413
    unknown = await client.ask("no/such")
    assert (unknown.status, unknown.error["code"]) == (404, -32601)
    removed_response = await client.ask("ping")
    assert (removed_response.status, removed_response.error["code"]) == (404, -32601)
    async with http.put(client.url) as response:
        assert response.status == 405
    for path in (
        "/mcp/servers/none",
        "/mcp/agents/none",
        "/mcp/bundles/none",
        "/mcp/x",
        "/mcp/servers/one/x",
    ):
        assert (await ModernClient(http, two_server_site.url + path).ask("tools/list")).status == 404


async def test_another_version_is_told_which_there_are(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{two_server_site.url}/mcp")
    message = client.message("tools/list", **{f"{META}/protocolVersion": "2031-01-01"})
    reply = await client.send(message, {**client.head("tools/list"), "MCP-Protocol-Version": "2031-01-01"})
    assert (reply.status, reply.error["code"]) == (400, -32022)
    assert reply.error["data"]["supported"] == ["2026-07-28"]


# Who gets in.


async def test_without_a_token_access_is_refused(
    password_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    for headers in ({}, {"Authorization": "Bearer ty_wrong"}):
        for url in (f"{password_site.url}/mcp", f"{password_site.url}/mcp/servers/none"):
            reply = await ModernClient(http, url, headers=headers).ask("tools/list")
            assert reply.status == 401
            assert reply.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_token_reaches_the_tools_of_its_scope(
    password_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    ann = await password_site.person("ann", scope=TokenScope(CALL, servers=("one",), tools=("one_t*",)))
    head = {"Authorization": f"Bearer {ann.secret}"}
    tool_page = await ModernClient(http, f"{password_site.url}/mcp", headers=head).ask("tools/list")
    assert [tool["name"] for tool in tool_page.result["tools"]] == ["one_told"]
    assert (
        await ModernClient(http, f"{password_site.url}/mcp/servers/two", headers=head).ask("tools/list")
    ).status == 404
    call_error = await ModernClient(http, f"{password_site.url}/mcp", headers=head).call("two_told")
    assert call_error.error["code"] == -32602
    resources = await ModernClient(http, f"{password_site.url}/mcp", headers=head).ask("resources/list")
    assert [each["uri"] for each in resources.result["resources"]] == ["odd://same", "odd://one"]
    ben = await password_site.person("ben", scope=TokenScope(frozenset({Right.READ})))
    head = {"Authorization": f"Bearer {ben.secret}"}
    assert (
        await ModernClient(http, f"{password_site.url}/mcp", headers=head).ask("tools/list")
    ).status == 403


@pytest.mark.parametrize("by", ["token", "agent"])
async def test_a_scope_of_tools_does_not_reach_resources_of_other_servers(
    open_site: Any, http: aiohttp.ClientSession, by: str
) -> None:
    agent = Agent("reader", "Reader", tools=("*", "!two_*"))
    servers = {"one": passthrough_entry("one"), "two": passthrough_entry("two")}
    services = await open_site(
        servers, people_mode="password", agents=[agent], list_deadline=LONG_LIST_DEADLINE
    )
    tools = ("one_told",) if by == "token" else None
    ann = await services.person("ann", scope=TokenScope(CALL, tools=tools))
    url = f"{services.url}/mcp" if by == "token" else f"{services.url}/mcp/agents/reader"
    client = ModernClient(http, url, headers={"Authorization": f"Bearer {ann.secret}"})
    response = await client.ask("resources/list")
    assert [each["uri"] for each in response.result["resources"]] == ["odd://same", "odd://one"]
    prompts = await client.ask("prompts/list")
    assert [each["name"] for each in prompts.result["prompts"]] == ["one_hello"]
    assert (await client.ask("prompts/get", {"name": "two_hello"})).error["code"] == -32602
    for uri in ("toolyard://two/odd://two", "odd://two"):
        reply = await client.ask("resources/read", {"uri": uri})
        assert "of two" not in reply.body.decode()
    assert (await client.ask("resources/read", {"uri": "odd://one"})).result["contents"]


async def test_callers_do_not_share_sessions_or_results(
    password_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    ann, ben = await password_site.person("ann"), await password_site.person("ben")
    url, can = f"{password_site.url}/mcp", {"elicitation": {"form": {}}}
    hers = LegacyClient(http, url, can, {"Authorization": f"Bearer {ann.secret}"})
    await hers.begin()
    his = LegacyClient(http, url, can, {**hers.headers, "Authorization": f"Bearer {ben.secret}"})
    assert (await his.ask("tools/list")).status == 404
    input_required = await ModernClient(http, url, can, {"Authorization": f"Bearer {ann.secret}"}).call(
        "one_ask"
    )
    retry_params = {
        "inputResponses": {"input-1": {"action": "accept"}},
        "requestState": input_required.result["requestState"],
    }
    stolen = await ModernClient(http, url, can, {"Authorization": f"Bearer {ben.secret}"}).call(
        "one_ask", **retry_params
    )
    assert stolen.error["code"] == -32602


async def test_a_token_takes_no_session_over_that_was_begun_with_a_wider_one(
    password_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    ann = await password_site.person("ann")
    narrow = TokenScope(CALL, servers=("two",))
    _, secret = await password_site.services.people.create_token(ann.user, "narrow", narrow, None)
    wide = LegacyClient(
        http, f"{password_site.url}/mcp", {"elicitation": {}}, {"Authorization": f"Bearer {ann.secret}"}
    )
    await wide.begin()
    legacy_client = LegacyClient(http, wide.url, {}, {**wide.headers, "Authorization": f"Bearer {secret}"})
    assert (await legacy_client.ask("tools/list")).status == 404
    async with http.get(
        legacy_client.url, headers={**legacy_client.head(""), "Accept": "text/event-stream"}
    ) as response:
        assert response.status == 404
    assert (await wide.ask("tools/list")).status == 200


async def test_calls_are_written_down(password_site: InProcessApp, http: aiohttp.ClientSession) -> None:
    ann = await password_site.person("ann")
    client = ModernClient(http, f"{password_site.url}/mcp", headers={"Authorization": f"Bearer {ann.secret}"})
    await client.call("one_told")
    await client.call("one_nothing")
    call_kinds: set[tuple[str, str, str]] = set()
    async with asyncio.timeout(30):
        while len(call_kinds) < 2:
            page = {"before": None, "limit": 10, "actor": None}
            entries = await password_site.services.database.audit.entries(action="tool.call", **page)
            call_kinds = {(entry.actor_name, entry.target, entry.outcome) for entry in entries}
            await asyncio.sleep(0.05)
    assert call_kinds == {("ann", "one/told", "ok"), ("ann", "one_nothing", "ToolRefused")}


# Remembered admissions.


@pytest.mark.parametrize("authorization", ["", "Basic eDp5", "Bearer", "Negotiate abc"])
async def test_a_caller_without_the_cookie_is_not_taken_for_the_one_before(
    password_site: InProcessApp, http: aiohttp.ClientSession, authorization: str
) -> None:
    ann, ben = await password_site.person("ann"), await password_site.person("ben")
    url, same = f"{password_site.url}/mcp", {"Authorization": authorization}
    signed_in = [ModernClient(http, url, headers={**each.browser.headers, **same}) for each in (ann, ben)]
    stranger = ModernClient(http, url, headers=same)
    modern_client = ModernClient(http, url, headers={"Cookie": "toolyard=" + "x" * 43, **same})
    expected = 200 if authorization != "Bearer" else 401
    for client in signed_in:
        assert (await client.ask("tools/list")).status == expected
        assert (await stranger.ask("tools/list")).status == 401
        assert (await modern_client.ask("tools/list")).status == 401
    for client in signed_in:
        await client.call("one_told")
    if expected == 200:
        assert await _callers_in_audit(password_site, 2) == {"ann", "ben"}


@pytest.mark.parametrize(
    "same",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Basic eDp5"},
        # A cookie without a name, as any site of the same domain can set it.
        {"Cookie": "Bearer ty_" + "x" * 43},
    ],
)
async def test_the_proxys_header_is_checked_for_each_request(
    open_site: Any, http: aiohttp.ClientSession, same: dict[str, str]
) -> None:
    services: InProcessApp = await open_site(
        {"one": passthrough_entry("one")},
        people_mode="proxy",
        trusted_proxies=("127.0.0.1",),
        proxy_header="Remote-User",
        list_deadline=LONG_LIST_DEADLINE,
    )
    url = f"{services.url}/mcp"
    for name in ("ann", "ben"):
        assert (
            await ModernClient(http, url, headers={"Remote-User": name, **same}).call("one_told")
        ).status == 200
    assert await _callers_in_audit(services, 2) == {"ann", "ben"}
    assert (await ModernClient(http, url, headers=same).ask("tools/list")).status == 401


async def test_each_call_is_audited_with_the_address_of_its_own_request(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    site: InProcessApp = await open_site(
        {"one": passthrough_entry("one")},
        people_mode="password",
        trusted_proxies=("127.0.0.1",),
        list_deadline=LONG_LIST_DEADLINE,
    )
    ann = await site.person("ann")
    addresses = {"192.0.2.1", "192.0.2.2"}
    for address in addresses:
        headers = {"Authorization": f"Bearer {ann.secret}", "X-Forwarded-For": address}
        client = ModernClient(http, f"{site.url}/mcp", headers=headers)
        assert (await client.call("one_told")).status == 200
    assert {each.address for each in await _wait_for_audited_calls(site, 2)} == addresses


async def _callers_in_audit(services: InProcessApp, count: int) -> set[str]:
    return {entry.actor_name for entry in await _wait_for_audited_calls(services, count)}


async def _wait_for_audited_calls(services: InProcessApp, count: int) -> Sequence[AuditEntry]:
    """At least ``count`` audited tool calls."""
    async with asyncio.timeout(30):
        while True:
            entries = await services.services.database.audit.entries(
                action="tool.call", before=None, limit=50, actor=None
            )
            if len(entries) >= count:
                return entries
            await asyncio.sleep(0.05)


# Sessions.


async def test_a_session_ends_with_delete(two_server_site: InProcessApp, http: aiohttp.ClientSession) -> None:
    client = LegacyClient(http, f"{two_server_site.url}/mcp", {"elicitation": {}})
    initialize_result = await client.begin()
    assert initialize_result.result["protocolVersion"] == "2025-11-25"
    await client.call("one_told")
    connection = two_server_site.services.core.manager.connection("one")
    assert list(connection.clients.names_by_key.values()) == ["old 1"]
    async with http.delete(client.url, headers=client.head("")) as response:
        assert response.status == 204
    assert not connection.clients.names_by_key
    over = await client.ask("tools/list")
    # Status and code by which clients know that they must begin again.
    assert (over.status, over.error["code"], over.error["message"]) == (404, -32001, "Session not found")


async def test_a_legacy_request_needs_no_session(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = LegacyClient(http, f"{two_server_site.url}/mcp")
    assert (await client.call("one_told")).text == '{"elicitation": {"form": {}, "url": {}}}'
    async with http.get(client.url, headers=client.head("")) as response:
        assert response.status == 405


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26", "2024-11-05"])
async def test_an_older_client_gets_its_revision(
    two_server_site: InProcessApp, http: aiohttp.ClientSession, version: str
) -> None:
    client = LegacyClient(http, f"{two_server_site.url}/mcp", version=version)
    assert (await client.begin()).result["protocolVersion"] == version
    assert (await client.call("one_told")).text == '{"elicitation": {"form": {}, "url": {}}}'


async def test_a_client_that_lost_its_stream_comes_back_for_the_answer(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = LegacyClient(http, f"{two_server_site.url}/mcp", {"elicitation": {}})
    await client.begin()
    message = client.message("tools/call", {"name": "one_ask", "arguments": {}})
    async with http.post(client.url, json=message, headers=client.head("")) as response:
        first = (await response.content.readuntil(b"\n\n")).decode()
        assert first.startswith("id: ")
        question = await response.content.readuntil(b"\n\n")
    event, _, data = question.decode().partition("\n")
    document = json.loads(data.removeprefix("data: "))
    answer = {"jsonrpc": "2.0", "id": document["id"], "result": {"action": "accept"}}
    assert (await client.send(answer, client.head(""))).status == 202
    head = {**client.head(""), "Accept": "text/event-stream", "Last-Event-ID": event.removeprefix("id: ")}
    async with asyncio.timeout(30), http.get(client.url, headers=head) as response:
        rest = await response.read()
    assert b"accept" in rest
    assert f'"id":{message["id"]}'.encode() in rest


# Meta mode.


async def test_meta_mode_offers_a_few_tools_that_reach_all(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{two_server_site.url}/mcp?mode=meta")
    tools = (await client.ask("tools/list")).result["tools"]
    names = [tool["name"] for tool in tools]
    assert names == ["result_read", "tools_call", "tools_describe", "tools_list", "tools_search"]
    assert all(tool["description"] and tool["inputSchema"]["type"] == "object" for tool in tools)
    reply = await client.call("tools_call", {"name": "two_told", "arguments": {}})
    assert json.loads(reply.text)["ok"] is True
    hidden = await client.call("tools_call", {"name": "two_secret", "arguments": {}})
    assert json.loads(hidden.text)["ok"] is False
    direct = ModernClient(http, f"{two_server_site.url}/mcp?mode=direct")
    assert (await direct.call("tools_call", {"name": "two_told"})).error["code"] == -32602
    assert (await ModernClient(http, f"{two_server_site.url}/mcp?mode=else").ask("tools/list")).status == 400


async def test_meta_mode_of_one_server_reaches_no_other(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{two_server_site.url}/mcp/servers/one?mode=meta")
    call_text = await client.call("tools_call", {"name": "one_told", "arguments": {}})
    assert json.loads(call_text.text)["ok"] is True
    other = await client.call("tools_call", {"name": "two_told", "arguments": {}})
    assert json.loads(other.text)["ok"] is False


async def test_the_mode_of_the_address_counts_before_that_of_the_agent(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    agent = Agent("reader", "Reader", mode="meta", tools=("*_told",))
    services = await open_site({"one": passthrough_entry("one")}, agents=[agent])
    client = ModernClient(http, f"{services.url}/mcp/agents/reader")
    assert len((await client.ask("tools/list")).result["tools"]) == 5
    assert (await client.call("one_told")).error["code"] == -32602
    direct = ModernClient(http, f"{services.url}/mcp/agents/reader?mode=direct")
    assert [tool["name"] for tool in (await direct.ask("tools/list")).result["tools"]] == ["one_told"]
    assert (await direct.call("one_told")).result["content"]


async def test_an_untrusted_server_is_reached_through_the_meta_tools_only(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    entry = passthrough_entry("one", trust="untrusted", allowTools=["told"])
    services = await open_site({"one": entry}, write_tools="allow", list_deadline=LONG_LIST_DEADLINE)
    client = ModernClient(http, f"{services.url}/mcp")
    names = {tool["name"] for tool in (await client.ask("tools/list")).result["tools"]}
    assert "tools_call" in names
    assert "one_told" not in names
    assert (await client.call("one_told")).error["code"] == -32602
    assert (await client.ask("resources/list")).result["resources"] == []
    reply = await client.call("tools_call", {"name": "one_told", "arguments": {}})
    assert json.loads(reply.text)["ok"] is True
