"""Work on long lists and large results is split into short steps of the event loop, or done in threads."""

from __future__ import annotations

import json
import sys
import threading
import time
from asyncio import selector_events
from collections import Counter
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from tests.gateway.conftest import LARGE, LONG_LIST_DEADLINE, LegacyClient, ModernClient
from tests.loop_watch import LoopWatch
from tests.web.scriptless_browser import ScriptlessBrowser

from toolyard.agents.chat import turn
from toolyard.catalog.lock import registry_lock
from toolyard.clients.call_path import CallPath
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.core import call_approvals
from toolyard.gateway import endpoint, gateway
from toolyard.gateway.surface import listing_cache, prompts, resources, result_limits, tools
from toolyard.gateway.surface.resources import ResourceMap
from toolyard.store.repositories import approvals, chats
from toolyard.store.sql.tables import chat_events, grants
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.agent import Agent
from toolyard.types.server import HttpSpec, Server
from toolyard.web import approval_review, routes
from toolyard.web.api import base as api_base
from toolyard.web.api import chat_stream
from toolyard.web.api import servers as api_servers
from toolyard.web.gateway_mount import GatewayMount
from toolyard.web.servers import previews, tool_acceptance
from toolyard.web.ui.components import responses
from toolyard.web.ui.tools import results as tool_results

LISTS = """
import json, sys
entries = {
    "tools": [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(4_000)],
    "prompts": [{"name": f"p{n}"} for n in range(10)],
    "resources": [{"uri": f"x://r{n}", "name": "r"} for n in range(10)],
    "resourceTemplates": [],
}
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        capabilities = {"tools": {}, "prompts": {}, "resources": {}}
        info = {"name": "lists", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
    elif message["method"].endswith("list"):
        key = "resourceTemplates" if "templates" in message["method"] else message["method"].split("/")[0]
        result = {key: entries[key]}
    elif "read" in message["method"]:
        result = {"contents": []}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
TEMPLATES = [{"uriTemplate": "x://" + "{a}" * 1_000, "name": "long"}, {"uriTemplate": "y://{a}", "name": "y"}]
LONG_LISTS = f"""
entries["prompts"] = [{{"name": "p"}}, {{"name": "p" * 3_000}}]
times = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00." + "0" * 3_000 + "Z")
entries["resources"] = [
    {{"uri": f"x://r{{n}}", "name": "r", "annotations": {{"lastModified": time}}}}
    for n, time in enumerate(times)
]
entries["resourceTemplates"] = {TEMPLATES!r}
for line"""
LONG_TEXTS = {"command": sys.executable, "args": ["-c", LISTS.replace("\nfor line", LONG_LISTS)]}
WRITING = LISTS.replace('"object"}}', '"object"}, "annotations": {"readOnlyHint": False}}')
LISTING = {"command": sys.executable, "args": ["-c", LISTS]}
StepOwners = list[tuple[str, bool]]


def note_threads(monkeypatch: pytest.MonkeyPatch, *functions: tuple[object, str]) -> StepOwners:
    """Record each call of these functions, and whether it was made on the thread of the event loop."""
    calls: StepOwners = []

    def watch(owner: object, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            calls.append((name, threading.current_thread() is threading.main_thread()))
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    for owner, name in functions:
        watch(owner, name)
    return calls


@pytest.mark.parametrize("mode", ["", "?mode=meta"])
async def test_a_list_that_has_not_changed_is_not_put_together_again(
    open_site: Any, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    local = await open_site({"one": LISTING}, list_deadline=LONG_LIST_DEADLINE)
    client = ModernClient(http, f"{local.url}/mcp{mode}")
    calls = note_threads(monkeypatch, (local.part(GatewayMount).gateway, "encode_tool"))
    first = (await client.ask("tools/list")).result
    assert calls
    calls.clear()
    assert (await client.ask("tools/list")).result["tools"] == first["tools"] != []
    assert calls == []


@pytest.mark.parametrize("interface", ["gateway", "api", "agent", "chat"])
async def test_thousands_of_tools_are_encoded_a_few_at_a_time(
    open_site: Any, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, interface: str
) -> None:
    agent = Agent("all", "All", tools=("*",))
    local = await open_site({"one": LISTING}, agents=[agent], list_deadline=LONG_LIST_DEADLINE)
    client = local.client()
    chat = (await client.post("/api/v1/chats", {})).json["id"]
    encoded_by_turn: Counter[int] = Counter()
    owner: Any = gateway if interface == "gateway" else api_base
    real = owner.encode_fragment
    async with LoopWatch() as watch:

        def count_and_encode(value: object) -> Any:
            encoded_by_turn[watch.turns] += 1
            return real(value)

        monkeypatch.setattr(owner, "encode_fragment", count_and_encode)
        if interface == "gateway":
            tools = (await ModernClient(http, f"{local.url}/mcp").ask("tools/list")).result["tools"]
            assert len(tools) == 1_000
        else:
            paths = {"api": "tools", "agent": "agents/all/tools", "chat": f"chats/{chat}/tools"}
            items = (await client.get(f"/api/v1/{paths[interface]}")).json["items"]
            assert sum(each["server"] == "one" for each in items) == 4_000
    assert encoded_by_turn.total() >= 4_000
    assert max(encoded_by_turn.values()) <= 500


async def test_prompts_and_resources_are_prepared_in_threads(
    open_site: Any, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = await open_site({"one": LISTING}, list_deadline=LONG_LIST_DEADLINE)
    client = ModernClient(http, f"{local.url}/mcp")
    calls = note_threads(
        monkeypatch,
        (listing_cache, "repair_list"),
        (prompts, "build_prompt_names"),
        (ResourceMap, "from_listings"),
    )
    assert len((await client.ask("prompts/list")).result["prompts"]) == 10
    assert len((await client.ask("resources/list")).result["resources"]) == 10
    assert {name for name, _ in calls} == {"repair_list", "build_prompt_names", "from_listings"}
    assert not any(on_loop for _, on_loop in calls)


async def test_long_names_templates_and_timestamps_of_a_server_are_left_out_unprocessed(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    local = await open_site({"one": LONG_TEXTS}, list_deadline=LONG_LIST_DEADLINE)
    client = ModernClient(http, f"{local.url}/mcp")
    prompts = (await client.ask("prompts/list")).result["prompts"]
    assert [each["name"] for each in prompts] == ["one_p"]
    prompts = (await client.ask("resources/list")).result["resources"]
    assert [each["annotations"] for each in prompts] == [{"lastModified": "2026-01-01T00:00:00Z"}, {}]
    resource_map = ResourceMap.from_listings([], [(Server("s", HttpSpec("http://s")), TEMPLATES)])
    assert resource_map.find("x://aa") is None
    assert resource_map.find("y://a") == ("s", "y://a")


async def test_uris_are_compared_with_templates_in_a_thread(
    open_site: Any, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = await open_site({"one": LONG_TEXTS}, list_deadline=LONG_LIST_DEADLINE)
    calls = note_threads(monkeypatch, (resources, "_matches_template"))
    client = ModernClient(http, f"{local.url}/mcp")
    for uri in ("x://r0", "y://a"):
        await client.ask("resources/read", {"uri": uri})
    assert len(calls) == 2
    assert not any(on_loop for _, on_loop in calls)


async def test_previews_of_servers_are_read_compared_and_encoded_in_threads(
    open_site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await open_site({"one": LISTING}, list_deadline=LONG_LIST_DEADLINE)
    client = (await open_site()).client()
    calls = note_threads(
        monkeypatch,
        (previews, "validate_tools"),
        (previews, "estimate_definition_tokens"),
        (tool_acceptance, "build_pins"),
        (api_servers.PreviewTool, "of"),
        (registry_lock, "unpack_or_empty"),
    )
    draft = {
        "name": "A",
        "url": f"{site.url}/mcp",
        "private_addresses": True,
        "choices": [{"kind": "public"}],
    }
    server = (await client.post("/api/v1/servers?preview=true", draft)).json
    preview = (await client.get(f"/api/v1/servers/{server['id']}/preview")).json
    assert len(server["preview"]["tools"]) == len(preview["tools"]) == 4_000
    assert (await client.get(f"/ui/admin/mcp/{server['id']}/contents")).status == 200
    server = (await client.post("/api/v1/instances", {"server_id": server["id"]})).json
    assert (await client.get(f"/api/v1/instances/{server['id']}/tools")).status == 200
    assert (await client.get(f"/ui/admin/mcp/{server['server_id']}/changes")).status == 200
    assert len({name for name, _ in calls}) == 5
    assert not any(on_loop for _, on_loop in calls)


async def test_long_events_of_a_chat_are_decoded_and_encoded_one_at_a_time(
    open_site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = await open_site()
    client = local.client()
    chat = (await client.post("/api/v1/chats", {})).json["id"]
    event = {"chat_id": chat, "turn": 1, "kind": "user", "at": 0.0, "part": ""}
    rows = [{**event, "seq": seq, "body": json.dumps({"text": "x" * 20_000})} for seq in range(1, 51)]
    executor = local.services.database.executor
    await executor.write(lambda connection: connection.execute(chat_events.insert(), rows))
    steps: Counter[tuple[str, int]] = Counter()
    async with LoopWatch() as watch:

        def count_calls(owner: Any, name: str) -> None:
            real = getattr(owner, name)

            def count(value: Any) -> Any:
                steps[name, watch.turns] += 1
                return real(value)

            monkeypatch.setattr(owner, name, count)

        count_calls(chats, "event_from_row")
        count_calls(chat_stream.EventResponse, "of")
        page = (await client.get(f"/api/v1/chats/{chat}/events?limit=40")).json
    assert [each["seq"] for each in page["items"]] == list(range(1, 41))
    assert page["next_after"] == 40
    assert steps.total() == 81
    assert max(steps.values()) <= 2


async def test_large_results_are_shortened_converted_and_encoded_in_threads(
    open_site: Any, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = await open_site({"large": LARGE}, list_deadline=LONG_LIST_DEADLINE)
    calls = note_threads(
        monkeypatch,
        (result_limits, "parse_block"),
        (result_limits, "to_readable_json"),
        (result_limits, "make_handle"),
        (result_limits, "truncate_structured"),
        (tools, "downgrade_result"),
    )
    # A client of a revision to which results are converted.
    client = LegacyClient(http, f"{local.url}/mcp", version="2025-03-26")
    await client.begin()
    for name in ("text", "picture", "rows", "loose", "promised"):
        assert "result" in (await client.call(f"large_{name}", {"size": 120_000})).answer
    on_loop = {name for name, on_loop in calls if on_loop}
    assert {name for name, _ in calls} >= {"parse_block", "to_readable_json", "make_handle"}
    # A result with few values is converted at once.
    assert on_loop <= {"downgrade_result"}
    assert ("downgrade_result", False) in calls


async def test_a_large_result_reaches_the_client_unchanged_and_its_parts_are_encoded_in_a_thread(
    open_site: Any, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = await open_site({"large": LARGE}, list_deadline=LONG_LIST_DEADLINE)
    step_sizes: list[int] = []
    write = selector_events._SelectorSocketTransport.write  # type: ignore[attr-defined]

    def note_write(transport: Any, data: Any) -> None:
        step_sizes.append(len(data))
        write(transport, data)

    monkeypatch.setattr(selector_events._SelectorSocketTransport, "write", note_write)  # type: ignore[attr-defined]
    encoded: list[bool] = []
    real = endpoint.encode_large_members

    async def encode(members: Any) -> Any:
        created_members = await real(members)
        encoded.append(any(type(value).__name__ == "Fragment" for value in created_members.values()))
        return created_members

    monkeypatch.setattr(endpoint, "encode_large_members", encode)
    # The structure cannot be shortened without violating its schema, so that it is sent in full.
    reply = await ModernClient(http, f"{local.url}/mcp").call("large_rows", {"size": 150_000})
    assert reply.result["structuredContent"] == {"rows": list(range(150_000))}
    assert encoded == [True]
    response = await local.client().post(
        "/api/v1/tools/large_text/call",
        {"arguments": {"size": 3_000_000}},
        headers={"Accept-Encoding": "identity"},
    )
    assert len(response.json["raw"]["content"][0]["text"]) == 3_000_000
    assert sum(step_sizes) > 3_000_000
    assert max(step_sizes) <= 1_000_000


async def test_pages_with_texts_of_servers_are_rendered_in_threads(
    open_site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent("all", "All", tools=("*",))
    local = await open_site({"one": LISTING}, agents=[agent])
    chat = (await local.client().post("/api/v1/chats", {})).json["id"]
    calls = note_threads(monkeypatch, (responses, "render_page"))
    server = "/ui/admin/mcp/files/one"
    paths = (f"{server}/contents", f"{server}/changes", "/ui/approvals", "/ui/budget", "/ui/agents/all/tools")
    for path in (*paths, "/ui/chat/console", f"/ui/chat/{chat}/tools", f"/ui/chat/{chat}/console"):
        assert (await local.client().get(path)).status == 200
    assert calls == [("render_page", False)] * 8


async def test_a_large_result_is_encoded_stored_and_shown_by_threads_on_the_page_of_a_tool(
    open_site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = await open_site({"large": LARGE})
    browser, path = ScriptlessBrowser(local.client()), "/ui/admin/mcp/files/large/tool?name=rows"
    page = await browser.get(path)
    calls = note_threads(
        monkeypatch,
        (tool_results, "iter_encoded_pieces"),
        (tool_results, "make_handle"),
        (responses, "render_page"),
    )
    [form] = [each for each in page.root.all("form") if each.attrs.get("data-swap") == "#try"]
    shown_page = await browser.send(page, form, {"json": '{"size": 20000}'})
    assert "rows" in shown_page.text
    assert calls == [(name, False) for name in ("iter_encoded_pieces", "make_handle", "render_page")]


async def test_rows_of_thousands_of_tools_are_built_a_few_at_a_time(
    open_site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent("all", "All", tools=("*",))
    local = await open_site({"one": LISTING}, agents=[agent], list_deadline=LONG_LIST_DEADLINE)
    client = local.client()
    chat = (await client.post("/api/v1/chats", {})).json["id"]
    counts: Counter[int] = Counter()
    async with LoopWatch() as watch:

        def count_calls(owner: type, name: str) -> None:
            real = getattr(owner, name)

            def call(*arguments: Any) -> Any:
                counts[watch.turns] += 1
                return real(*arguments)

            monkeypatch.setattr(owner, name, call)

        count_calls(CallPath, "explain")
        count_calls(CallPath, "find_visible_tool")
        for path in ("/ui/admin/mcp/files/one/contents", "/ui/agents/all/tools", f"/ui/chat/{chat}/tools"):
            assert (await client.get(path)).status == 200
    assert counts.total() >= 3 * 4_000
    assert max(counts.values()) <= 500
    # Tokens are estimated with the listing, which is validated in a thread.
    listing = local.part(ToolDirectory).known_listing(LOCAL_PRINCIPAL)
    assert all(each.tokens for each in listing.tools.values() if each.server_id == "one")


async def test_arguments_that_need_approval_are_decoded_compared_and_shown_in_threads(
    open_site: Any, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = {**LISTING, "args": ["-c", WRITING]}
    local = await open_site({"one": writing}, write_tools="ask", list_deadline=LONG_LIST_DEADLINE)
    calls = note_threads(
        monkeypatch,
        (approvals, "_approval_from_row"),
        (call_approvals, "_is_same_call"),
        (approval_review, "_build_review"),
    )
    client = ModernClient(http, f"{local.url}/mcp")
    for number in range(2):
        await client.ask("tools/call", {"name": "one_t0", "arguments": {"a": number}})
    assert (await local.client().get("/ui/approvals")).status == 200
    assert {name for name, _ in calls} == {"_approval_from_row", "_is_same_call", "_build_review"}
    assert not any(on_loop for _, on_loop in calls)


async def test_a_call_of_a_chat_is_compared_with_one_standing_approval_at_a_time(
    open_site: Any, monkeypatch: pytest.MonkeyPatch, wait_until: Any
) -> None:
    writing = {**LISTING, "args": ["-c", WRITING]}
    local = await open_site({"one": writing}, write_tools="ask", list_deadline=LONG_LIST_DEADLINE)
    client = local.client()
    columns = {
        "owner": "local",
        "tool": "one/t0",
        "name": "one_t0",
        "definition_hash": "x",
        "predicate": "{}",
    }
    rows = [{**columns, "id": f"g{n}", "created_at": time.time(), "expires_at": 1e11} for n in range(20)]
    executor = local.services.database.executor
    await executor.write(lambda connection: connection.execute(grants.insert(), rows))
    chat = (await client.post("/api/v1/chats", {})).json["id"]
    counts: Counter[int] = Counter()
    real = turn.grant_covers
    async with LoopWatch() as watch:

        def count(*arguments: Any) -> bool:
            counts[watch.turns] += 1
            return real(*arguments)

        monkeypatch.setattr(turn, "grant_covers", count)
        await client.post(f"/api/v1/chats/{chat}/runs", {"name": "one_t0", "arguments": {}})
        await wait_until(lambda: counts.total() == 20)
    assert max(counts.values()) <= 2


async def test_routes_are_built_in_a_thread_when_a_request_first_reaches_them(
    open_site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = note_threads(monkeypatch, (routes, "APIRoute"))
    local = await open_site({})
    for path in ("/ui/", "/api/v1/openapi.json"):  # The document needs all routes.
        before = len(calls)
        assert (await local.client().get(path)).status == 200
        count = len(calls)
        assert count > before
        assert (await local.client().get(path)).status == 200
        assert len(calls) == count
    assert not any(on_loop for _, on_loop in calls)
