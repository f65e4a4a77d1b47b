"""What the gateway carries, in both eras: unaltered, under names that mean one thing, and to nobody else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.gateway.conftest import (
    LONG_LIST_DEADLINE,
    META,
    ODD_RESULT,
    ODD_TOOL,
    LegacyClient,
    ModernClient,
    events,
    next_message,
    passthrough_entry,
)
from tests.web.conftest import InProcessApp

from toolyard.web.gateway_mount import GatewayMount

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ELICITATION = {"elicitation": {"form": {}}}


def in_flight(services: Any) -> int:
    """Calls that are under way."""
    return services.services.core.manager.status("one").in_flight


# Tools.


async def test_a_definition_passes_as_the_same_json(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    for client in (
        ModernClient(http, f"{two_server_site.url}/mcp/servers/one"),
        LegacyClient(http, f"{two_server_site.url}/mcp/servers/one"),
    ):
        reply = await client.ask("tools/list")
        assert ODD_TOOL.encode() in reply.body


async def test_many_servers_rename_a_tool_and_alter_nothing_else(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    reply = await ModernClient(http, f"{two_server_site.url}/mcp").ask("tools/list")
    assert ODD_TOOL.replace('"name":"odd"', '"name":"one_odd"').encode() in reply.body
    names = [tool["name"] for tool in reply.result["tools"]]
    assert names == sorted(names)
    assert {"one_secret", "one_odd", "two_odd"} <= set(names)
    assert "two_secret" not in names
    assert reply.result["ttlMs"] > 0
    assert reply.result["cacheScope"] == "private"


async def test_a_listing_is_the_same_bytes_each_time(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = LegacyClient(http, f"{two_server_site.url}/mcp")
    first = await client.ask("tools/list")
    client.last = 0
    assert (await client.ask("tools/list")).body == first.body


async def test_a_result_passes_as_the_same_json(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    old = await LegacyClient(http, f"{two_server_site.url}/mcp/servers/one").call("odd")
    assert ODD_RESULT.encode() in old.body
    new = await ModernClient(http, f"{two_server_site.url}/mcp").call("one_odd")
    inner = ODD_RESULT.removesuffix(',"_meta":{"x/y":1}}').encode()
    assert inner in new.body
    assert new.result["resultType"] == "complete"
    assert new.result["_meta"]["x/y"] == 1


async def test_a_hidden_tool_answers_like_one_that_there_is_not(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    for url, hidden, missing in (
        (f"{two_server_site.url}/mcp", "two_secret", "two_nothin"),
        (f"{two_server_site.url}/mcp/servers/two", "secret", "nothin"),
    ):
        for client in (ModernClient(http, url), LegacyClient(http, url)):
            one, other = await client.call(hidden), await client.call(missing)
            assert one.status == other.status
            assert one.error["code"] == other.error["code"] == -32602
            # The hint names what the caller does see, by how near the name is.
            error_lines = (reply.error["message"].partition("\n")[0] for reply in (one, other))
            assert next(error_lines).replace(hidden, "X") == next(error_lines).replace(missing, "X")


async def test_a_call_that_needs_an_approval_says_so_to_the_model(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    services = await open_site({"one": passthrough_entry("one")}, write_tools="ask")
    for url, name in ((f"{services.url}/mcp", "one_write"), (f"{services.url}/mcp/servers/one", "write")):
        reply = await ModernClient(http, url).call(name)
        assert reply.result["isError"] is True
        assert "needs an approval" in reply.text


async def test_the_clients_meta_reaches_the_server(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    params = {"name": "meta", "arguments": {}}
    for client in (
        ModernClient(http, f"{two_server_site.url}/mcp/servers/one"),
        LegacyClient(http, f"{two_server_site.url}/mcp/servers/one"),
    ):
        reply = await client.ask("tools/call", params, traceparent=trace)
        assert json.loads(reply.text)["traceparent"] == trace


async def test_a_server_that_exits_fails_its_call_and_no_other(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{two_server_site.url}/mcp")
    reply = await client.call("one_exit")
    assert reply.status == 200
    assert reply.error["code"] == -32603
    assert reply.error["data"]["server"] == "one"
    assert (await client.call("two_meta")).result


# Prompts, resources, completion.


async def test_prompts_are_named_like_tools(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{two_server_site.url}/mcp")
    response = await client.ask("prompts/list")
    assert [each["name"] for each in response.result["prompts"]] == ["one_hello", "two_hello"]
    prompt_response = await client.ask("prompts/get", {"name": "two_hello"})
    assert prompt_response.result["messages"][0]["content"]["text"] == "hello from two"
    alone = ModernClient(http, f"{two_server_site.url}/mcp/servers/two")
    assert (await alone.ask("prompts/get", {"name": "hello"})).result["messages"]
    assert (await client.ask("prompts/get", {"name": "hello"})).error["code"] == -32602


async def test_a_uri_that_two_servers_have_means_one_of_them(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{two_server_site.url}/mcp")
    response = await client.ask("resources/list")
    uris = [each["uri"] for each in response.result["resources"]]
    assert uris == ["toolyard://one/odd://same", "odd://one", "toolyard://two/odd://same", "odd://two"]
    for uri, words in (
        ("toolyard://one/odd://same", "odd://same of one"),
        ("toolyard://two/odd://same", "odd://same of two"),
        ("odd://two", "odd://two of two"),
        ("odd://two/17", "odd://two/17 of two"),
        ("toolyard://one/odd://unlisted", "odd://unlisted of one"),
    ):
        reply = await client.ask("resources/read", {"uri": uri})
        assert reply.result["contents"][0]["text"] == words
    for uri in ("odd://same", "odd://nobody", "toolyard://three/odd://same"):
        missing = await client.ask("resources/read", {"uri": uri})
        assert missing.error["code"] == -32602
        assert missing.error["data"] == {"uri": uri}


async def test_one_server_keeps_its_own_uris(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{two_server_site.url}/mcp/servers/one")
    response = await client.ask("resources/list")
    assert [each["uri"] for each in response.result["resources"]] == ["odd://same", "odd://one"]
    missing = await client.ask("resources/read", {"uri": "none://here"})
    assert missing.error == {"code": -32602, "message": "Resource not found", "data": {"uri": "none://here"}}
    legacy = await LegacyClient(http, f"{two_server_site.url}/mcp/servers/one").ask(
        "resources/read", {"uri": "none://here"}
    )
    assert legacy.error["code"] == -32002


async def test_completion_reaches_the_server_by_its_own_name(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{two_server_site.url}/mcp")
    argument = {"argument": {"name": "a", "value": ""}}
    prompt = await client.ask(
        "completion/complete", {"ref": {"type": "ref/prompt", "name": "two_hello"}, **argument}
    )
    assert prompt.result["completion"]["values"] == ["{'type': 'ref/prompt', 'name': 'hello'} of two"]
    ref = {"type": "ref/resource", "uri": "odd://one/{id}"}
    template = await client.ask("completion/complete", {"ref": ref, **argument})
    assert template.result["completion"]["values"][0].endswith("of one")


# What a client can do for servers.


async def test_a_shared_server_gets_the_capabilities_of_toolyard(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    url = f"{two_server_site.url}/mcp/servers/one"
    for client in (
        ModernClient(http, url, {"sampling": {}, "roots": {}}),
        ModernClient(http, url),
        LegacyClient(http, url),
    ):
        document = json.loads((await client.call("told")).text)
        assert document == {"elicitation": {"form": {}, "url": {}}}


async def test_a_dedicated_server_gets_only_the_capabilities_of_its_client(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    site = await open_site({"one": passthrough_entry("one", sessions="per-client")})
    url = f"{site.url}/mcp/servers/one"
    can = {"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}, "extensions": {"a/b": {}}}
    capabilities = {"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}
    assert json.loads((await ModernClient(http, url, can).call("told")).text) == capabilities
    assert json.loads((await ModernClient(http, url).call("told")).text) == {}
    old = LegacyClient(http, url, {"sampling": {}})
    await old.begin()
    assert json.loads((await old.call("told")).text) == {"sampling": {}}
    nothing = LegacyClient(http, url)
    await nothing.begin()
    assert json.loads((await nothing.call("told")).text) == {}


async def test_a_legacy_question_takes_a_modern_client_two_rounds(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{two_server_site.url}/mcp", ELICITATION)
    first = await client.call("one_ask")
    assert first.result["resultType"] == "input_required"
    ((name, question),) = first.result["inputRequests"].items()
    assert question["method"] == "elicitation/create"
    assert question["params"]["message"] == "Who?"
    answer = {"action": "accept", "content": {"name": "Ann"}}
    state = first.result["requestState"]
    again = await client.call("one_ask", inputResponses={}, requestState=state)
    assert again.result["inputRequests"] == first.result["inputRequests"]
    second = await client.call(
        "one_ask", inputResponses={name: answer}, requestState=again.result["requestState"]
    )
    assert json.loads(second.text) == answer


async def test_a_state_is_good_for_its_own_request_only(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{two_server_site.url}/mcp", ELICITATION)
    first = await client.call("one_ask")
    state = first.result["requestState"]
    answers = {"input-1": {"action": "decline"}}
    for other in (
        await client.call("one_ask", {"other": 1}, inputResponses=answers, requestState=state),
        await client.call("two_ask", inputResponses=answers, requestState=state),
        await client.call("one_ask", inputResponses=answers, requestState=state[:-2] + "AA"),
        await client.call("one_ask", inputResponses=answers, requestState=state + "."),
    ):
        assert other.error["code"] == -32602
    assert (await client.call("one_ask", inputResponses=answers, requestState=state)).result


async def test_a_legacy_question_reaches_a_legacy_client_within_its_call(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = LegacyClient(http, f"{two_server_site.url}/mcp", ELICITATION)
    await client.begin()
    message = client.message("tools/call", {"name": "one_ask", "arguments": {}})
    async with http.post(client.url, json=message, headers=client.head("tools/call")) as response:
        assert response.content_type == "text/event-stream"
        question = await _next(response)
        assert question["method"] == "elicitation/create"
        client_reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "cancel"}}
        assert (await client.send(client_reply, client.head(""))).status == 202
        answer = await _next(response)
    assert json.loads(answer["result"]["content"][0]["text"]) == {"action": "cancel"}


async def test_questions_of_two_calls_go_to_the_clients_that_made_them(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    site = await open_site({"one": passthrough_entry("one", sessions="per-client")})
    clients = [ModernClient(http, f"{site.url}/mcp", ELICITATION) for _ in range(5)]
    first = await asyncio.gather(*(client.call("one_ask") for client in clients))
    answers = [{"action": "accept", "content": {"name": f"number {n}"}} for n in range(5)]
    second = await asyncio.gather(
        *(
            client.call(
                "one_ask", inputResponses={"input-1": answer}, requestState=reply.result["requestState"]
            )
            for client, reply, answer in zip(clients, first, answers, strict=True)
        )
    )
    assert [json.loads(reply.text) for reply in second] == answers


async def test_a_client_that_leaves_cancels_its_call(
    open_site: Any, http: aiohttp.ClientSession, tmp_path: Path, wait_until: Callable[..., Awaitable[None]]
) -> None:
    marker = tmp_path / "marker"
    services = await open_site({"one": passthrough_entry("one", marker)})
    for client in (ModernClient(http, f"{services.url}/mcp"), LegacyClient(http, f"{services.url}/mcp")):
        await client.call("one_told")
        call = asyncio.create_task(client.call("one_wait"))
        await wait_until(lambda: in_flight(services) == 1)
        call.cancel()
        await wait_until(marker.exists)
        marker.unlink()


async def test_a_legacy_client_cancels_by_a_notification(
    open_site: Any, http: aiohttp.ClientSession, tmp_path: Path, wait_until: Callable[..., Awaitable[None]]
) -> None:
    marker = tmp_path / "marker"
    services = await open_site({"one": passthrough_entry("one", marker)})
    client = LegacyClient(http, f"{services.url}/mcp")
    await client.begin()
    await client.call("one_told")
    call = asyncio.create_task(client.call("one_wait"))
    await wait_until(lambda: in_flight(services) == 1)
    await client.tell("notifications/cancelled", {"requestId": client.last})
    await wait_until(marker.exists)
    assert (await call).messages == []


# What servers say unasked.


async def test_a_legacy_client_hears_that_the_person_is_done_at_a_url(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = LegacyClient(http, f"{two_server_site.url}/mcp", {"elicitation": {"url": {}}})
    await client.begin()
    messages, answer = (await client.call("one_completed")).messages
    assert messages["method"] == "notifications/elicitation/complete"
    assert messages["params"] == {"elicitationId": "e1"}
    assert answer["result"]["content"][0]["text"] == "completed"


async def test_a_subscription_sends_only_requested_notifications(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{two_server_site.url}/mcp")
    notification_filter = {
        "resourceSubscriptions": ["toolyard://two/odd://same", "nobody://s"],
        "toolsListChanged": True,
    }
    message = client.message("subscriptions/listen", {"notifications": notification_filter})
    async with http.post(client.url, json=message, headers=client.head("subscriptions/listen")) as response:
        assert response.content_type == "text/event-stream"
        acknowledgement = await _next(response)
        assert acknowledgement["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledgement["params"]["notifications"] == {
            "resourceSubscriptions": ["toolyard://two/odd://same"],
            "toolsListChanged": True,
        }
        assert acknowledgement["params"]["_meta"] == {f"{META}/subscriptionId": 1}
        two_server_site.part(GatewayMount).gateway.client_subscriptions.on_notification(
            "two", "local", "notifications/tools/list_changed", {}
        )
        list_changed = await _next(response)
        assert list_changed["method"] == "notifications/tools/list_changed"


async def test_a_legacy_session_hears_of_its_resource_under_its_name(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = LegacyClient(http, f"{two_server_site.url}/mcp")
    await client.begin()
    await client.ask("resources/subscribe", {"uri": "toolyard://one/odd://same"})
    async with http.get(client.url, headers={**client.head(""), "Accept": "text/event-stream"}) as response:
        resource_updated = await _next(response)
    assert resource_updated == {
        "jsonrpc": "2.0",
        "method": "notifications/resources/updated",
        "params": {"uri": "toolyard://one/odd://same"},
    }


async def _next(response: aiohttp.ClientResponse) -> Any:
    """The next message of a stream."""
    lines = b""
    async with asyncio.timeout(30):
        while True:
            line = await response.content.readline()
            assert line, "the stream ended"
            lines += line
            if line == b"\n":
                if sse_events := events(lines):
                    return sse_events[0]
                lines = b""


@pytest.mark.parametrize("can", [{}, {"elicitation": {"form": {}}}])
async def test_through_the_meta_tools_servers_get_the_capabilities_of_the_client(
    open_site: Any, http: aiohttp.ClientSession, can: dict[str, Any]
) -> None:
    two_server_site = await open_site(
        {"one": passthrough_entry("one", sessions="per-client")}, list_deadline=LONG_LIST_DEADLINE
    )
    call = {"name": "one_told", "arguments": {}}
    for client in (
        ModernClient(http, f"{two_server_site.url}/mcp?mode=meta", can),
        LegacyClient(http, f"{two_server_site.url}/mcp?mode=meta", can),
    ):
        if isinstance(client, LegacyClient):
            await client.begin()
        reply = await client.call("tools_call", call)
        assert json.loads(reply.result["structuredContent"]["result"]) == can


async def test_through_the_meta_tools_the_client_is_asked(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    can: dict[str, Any] = {"elicitation": {"form": {}}}
    call, elicitation_result = (
        {"name": "one_ask", "arguments": {}},
        {"action": "accept", "content": {"name": "Ann"}},
    )
    new = ModernClient(http, f"{two_server_site.url}/mcp?mode=meta", can)
    result = (await new.call("tools_call", call)).result
    assert result["inputRequests"]["input-1"]["params"]["message"] == "Who?"
    retry_params = {"inputResponses": {"input-1": elicitation_result}, "requestState": result["requestState"]}
    final_result = await new.call("tools_call", call, **retry_params)
    assert json.loads(final_result.result["structuredContent"]["result"]) == elicitation_result
    old = LegacyClient(http, f"{two_server_site.url}/mcp?mode=meta", can)
    await old.begin()
    message = old.message("tools/call", {"name": "tools_call", "arguments": call})
    async with http.post(old.url, data=json.dumps(message).encode(), headers=old.head("")) as response:
        question = await next_message(response)
        assert question["method"] == "elicitation/create"
        await old.send({"jsonrpc": "2.0", "id": question["id"], "result": elicitation_result}, old.head(""))
        answer = await next_message(response)
    assert json.loads(answer["result"]["structuredContent"]["result"]) == elicitation_result


async def test_an_untrusted_server_is_told_nothing(open_site: Any, http: aiohttp.ClientSession) -> None:
    services = await open_site(
        {"one": passthrough_entry("one", trust="untrusted", allowTools=["told"])},
        write_tools="allow",
        list_deadline=LONG_LIST_DEADLINE,
    )
    can: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
    for client in (
        ModernClient(http, f"{services.url}/mcp", can),
        LegacyClient(http, f"{services.url}/mcp", can),
    ):
        if isinstance(client, LegacyClient):
            await client.begin()
        reply = await client.call("tools_call", {"name": "one_told", "arguments": {}})
        result = reply.result["structuredContent"]["result"]
        assert "{}" in result
        assert "elicitation" not in result
