"""One process of a stdio server for all clients of a person, and questions that reach the right one."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.gateway.conftest import LONG_LIST_DEADLINE, META, LegacyClient, ModernClient, http, next_message
from tests.web.conftest import InProcessApp, open_site
from tests.web.scriptless_browser import ScriptlessBrowser, ScriptlessPage

from toolyard.clients import ConnectionManager
from toolyard.clients.connector import ConnectionManagerLimits
from toolyard.types.account import Right, TokenScope
from toolyard.types.call import Caller, McpRequest, RequestClient
from toolyard.types.server import Server, StdioSpec
from toolyard.web.gateway_mount import GatewayMount

__all__ = ["http", "open_site"]

SERVER = str(Path(__file__).parent.parent / "servers/counting_server.py")
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
FLOOD = "elicitation_flood_server.py"
PEOPLE = (("ann", "user"), ("bob", "user"), ("root", "admin"))
PAGE = "/ui/admin/mcp/files/one"
ANN = {"action": "accept", "content": {"name": "Ann"}}

Until = Callable[..., Awaitable[None]]


def entry(marker: str, *more: str, **keys: Any) -> dict[str, Any]:
    """The entry of a server whose process can be found by the marker."""
    return {"command": sys.executable, "args": ["-I", "-S", SERVER, marker, *more], **keys}


def processes(marker: str) -> list[int]:
    """The ids of the processes that were started with this marker."""
    pids: list[int] = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        if marker.encode() in words:
            pids.append(int(folder.name))
    return pids


@pytest.fixture
def marker(tmp_path: Path) -> str:
    return f"marker-{tmp_path}"


@pytest.fixture
async def site(open_site: Any, marker: str) -> InProcessApp:
    return await open_site({"one": entry(marker)}, list_deadline=LONG_LIST_DEADLINE)


@pytest.fixture
async def browser(site: InProcessApp) -> ScriptlessBrowser:
    return ScriptlessBrowser(site.client())


async def begin(
    http: aiohttp.ClientSession, site: InProcessApp, capabilities: dict[str, Any]
) -> LegacyClient:
    client = LegacyClient(http, f"{site.url}/mcp", capabilities)
    await client.begin()
    return client


@asynccontextmanager
async def start_held_call(
    site: InProcessApp, client: ModernClient, wait_until: Until
) -> AsyncIterator[asyncio.Task[Any]]:
    """A call of this client that the server does not answer until it is told to."""
    manager = site.services.core.manager
    # The first call lists the tools, which counts as well.
    await client.call("one_count")
    before = manager.status("one").in_flight
    call = asyncio.create_task(client.call("one_hold"))
    await wait_until(lambda: manager.status("one").in_flight == before + 1)
    yield call
    if not call.done():
        await client.call("one_release")
        assert json.loads((await call).text) == "released"


async def question_on_page(browser: ScriptlessBrowser) -> ScriptlessPage:
    """The page, once there is a question on it."""
    async with asyncio.timeout(30):
        while True:
            page = await browser.get("/ui/approvals")
            if "is asking" in page.text:
                return page
            await asyncio.sleep(0.02)


async def reply(browser: ScriptlessBrowser, page: ScriptlessPage, action: str = "accept") -> ScriptlessPage:
    form = page.form_with("reply")
    field = next(name for name, _ in page.fields(form) if name.startswith("q-"))
    return await browser.send(page, form, {field: "Ann"}, ("reply", action))


# One process.


async def test_clients_of_both_eras_and_of_all_capabilities_share_one_process(
    site: InProcessApp, http: aiohttp.ClientSession, marker: str, browser: ScriptlessBrowser
) -> None:
    url = f"{site.url}/mcp"
    all_of_them = {**FORMS, "sampling": {}, "roots": {}}
    clients = [ModernClient(http, url, each) for each in ({}, FORMS, all_of_them)]
    clients += [await begin(http, site, each) for each in ({}, FORMS, all_of_them)]
    counts = [json.loads((await client.call("one_count")).text) for client in clients]
    answer = await site.client().post("/api/v1/tools/one_count/call", {"arguments": {}})
    counts.append(json.loads(answer.json["text"]))
    assert [each["count"] for each in counts] == list(range(1, 8))
    (pid,) = processes(marker)
    assert {each["pid"] for each in counts} == {pid}
    # Status, page and command show the process with its users.
    (status,) = (await site.client().get("/api/v1/status")).json["items"]
    # Clients without a session cannot be told apart: each name is shown once.
    assert status["processes"] == [{"pid": pid, "users": ["a client", *["old 1"] * 3], "launch": None}]
    assert f"{pid}, used by a client, old 1, old 1, old 1" in (await browser.get(PAGE)).text
    # They leave, and nothing of them is left.
    for client in clients[3:]:
        async with http.delete(client.url, headers=client.head("")) as response:
            assert response.status == 204
    assert processes(marker) == [pid]
    assert site.services.core.manager.connection("one").clients.names_by_key == {}


async def test_clients_without_a_session_are_users_by_the_names_in_their_requests(
    site: InProcessApp, http: aiohttp.ClientSession, wait_until: Until, browser: ScriptlessBrowser
) -> None:
    quiet, asking_clients = [ModernClient(http, f"{site.url}/mcp", each) for each in ({}, FORMS)]
    for client, name in ((quiet, "quiet"), (asking_clients, "asking\u202e<b>"), (quiet, "quiet")):
        info = {f"{META}/clientInfo": {"name": name, "version": "2"}}
        assert (await client.ask("tools/call", {"name": "one_count", "arguments": {}}, **info)).result
    info = {f"{META}/clientInfo": {"name": "waiting", "version": "3"}}
    task = asyncio.create_task(quiet.ask("tools/call", {"name": "one_hold", "arguments": {}}, **info))
    connection = site.services.core.manager.connection("one")
    await wait_until(lambda: "waiting 3" in connection.list_client_names())
    (status,) = (await site.client().get("/api/v1/status")).json["items"]
    assert status["processes"][0]["users"] == ["asking\\u202e<b> 2", "quiet 2", "waiting 3"]
    assert "used by asking\\u202e<b> 2, quiet 2, waiting 3" in (await browser.get(PAGE)).text
    await quiet.call("one_release")
    assert json.loads((await task).text) == "released"


@pytest.mark.parametrize(
    ("limits", "users"),
    [
        (ConnectionManagerLimits(recent_clients=2), ["c2", "c3"]),
        (ConnectionManagerLimits(recent_client_seconds=0.0), []),
    ],
)
async def test_users_without_a_session_are_limited_in_number_and_time(
    marker: str, limits: ConnectionManagerLimits, users: list[str]
) -> None:
    server = Server("one", StdioSpec(sys.executable, ("-I", "-S", SERVER, marker)))
    async with ConnectionManager([server], limits=limits) as manager:
        for name in ("c1", "c2", "c3"):
            request = McpRequest("tools/list", client=RequestClient(None, name))
            assert (await manager.send("one", Caller(), request))["tools"]
        assert manager.connection("one").list_client_names() == users


async def test_other_people_do_not_see_the_clients_of_a_process(
    open_site: Any, http: aiohttp.ClientSession, marker: str
) -> None:
    site = await open_site({"one": entry(marker)}, people_mode="password", list_deadline=LONG_LIST_DEADLINE)
    ann, bob, root = [await site.person(name, role) for name, role in PEOPLE]
    client = ModernClient(http, f"{site.url}/mcp", {}, {"Authorization": f"Bearer {ann.secret}"})
    assert (await client.call("one_count")).result
    for person in (ann, bob, root):
        (status,) = (await person.token.get("/api/v1/status")).json["items"]
        assert status["processes"] == []


async def test_a_server_that_people_share_has_one_process(
    open_site: Any, http: aiohttp.ClientSession, marker: str
) -> None:
    site = await open_site({"one": entry(marker, shared=True)}, people_mode="password")
    notifications: list[Any] = []
    for name in ("ann", "bob"):
        person = await site.person(name)
        head = {"Authorization": f"Bearer {person.secret}"}
        client = ModernClient(http, f"{site.url}/mcp", FORMS, head)
        assert (await client.call("one_count")).result
        notifications.append(json.loads((await client.call("one_told")).text))
    assert notifications == [{}, {}]
    assert len(processes(marker)) == 1


async def test_per_client_gives_each_client_its_own_process(
    open_site: Any, http: aiohttp.ClientSession, marker: str
) -> None:
    site = await open_site({"one": entry(marker, sessions="per-client")}, list_deadline=LONG_LIST_DEADLINE)
    roots, plain = await begin(http, site, {"roots": {}}), await begin(http, site, {})
    counts: list[Any] = []
    for client, can in ((roots, {"roots": {}}), (plain, {})):
        counts += [json.loads((await client.call("one_count")).text)["count"] for _ in range(2)]
        assert json.loads((await client.call("one_told")).text) == can
    assert counts == [1, 2, 1, 2]
    before = len(processes(marker))
    async with http.delete(roots.url, headers=roots.head("")) as response:
        assert response.status == 204
    assert len(processes(marker)) == before - 1


# Whose question.


async def test_a_question_of_one_call_goes_to_its_caller(
    site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    other = await begin(http, site, FORMS)
    await other.call("one_count")
    modern = ModernClient(http, f"{site.url}/mcp", FORMS)
    result = (await modern.call("one_ask")).result
    retry_params = {"inputResponses": {"input-1": ANN}, "requestState": result["requestState"]}
    assert json.loads((await modern.call("one_ask", **retry_params)).text) == ANN
    async with _open_asking_call(http, other) as (response, question):
        assert question["method"] == "elicitation/create"
        await other.send({"jsonrpc": "2.0", "id": question["id"], "result": ANN}, other.head(""))
        answer = await next_message(response)
    assert json.loads(answer["result"]["content"][0]["text"]) == ANN
    assert "is asking" not in (await ScriptlessBrowser(site.client()).get("/ui/approvals")).text


async def test_a_question_during_two_calls_goes_to_the_page_and_to_no_client(
    site: InProcessApp, http: aiohttp.ClientSession, wait_until: Until, browser: ScriptlessBrowser
) -> None:
    other = await begin(http, site, FORMS)
    modern = ModernClient(http, f"{site.url}/mcp", FORMS)
    async with (
        start_held_call(site, modern, wait_until),
        _open_asking_call(http, other, progressToken="p") as (response, first),
    ):
        # The client learns where the question is, and does not get it.
        assert first["method"] == "notifications/progress"
        assert first["params"]["progressToken"] == "p"
        page = await question_on_page(browser)
        (key,) = [each.attrs["id"] for each in page.root.all("section", class_="question")]
        assert f"{site.url}/ui/approvals#{key}" in first["params"]["message"]
        assert "Who?" in page.text
        assert "hold (a client)" in page.text
        assert "ask (old 1)" in page.text
        after = await reply(browser, page)
        assert "Answer sent." in after.flash
        answer = await next_message(response)
        assert json.loads(answer["result"]["content"][0]["text"]) == ANN
        # It is answered once.
        assert (await reply(browser, page)).status == 404


async def test_a_question_to_a_client_that_cannot_answer_goes_to_the_page(
    site: InProcessApp, http: aiohttp.ClientSession, browser: ScriptlessBrowser
) -> None:
    call = asyncio.create_task(ModernClient(http, f"{site.url}/mcp").call("one_ask"))
    await reply(browser, await question_on_page(browser), "decline")
    assert json.loads((await call).text) == {"action": "decline"}


async def test_a_cancelled_call_counts_until_the_server_has_answered_it(
    site: InProcessApp, http: aiohttp.ClientSession, wait_until: Until, browser: ScriptlessBrowser
) -> None:
    closed_client, modern = await begin(http, site, FORMS), ModernClient(http, f"{site.url}/mcp", FORMS)
    async with start_held_call(site, closed_client, wait_until) as call:
        call.cancel()
        await wait_until(lambda: site.services.core.manager.status("one").in_flight == 0)
    task = asyncio.create_task(modern.call("one_ask"))
    page = await question_on_page(browser)
    assert "hold (old 1)" in page.text
    await reply(browser, page)
    assert json.loads((await task).text) == ANN
    # The server answers it late, and from now on there is one call.
    await modern.call("one_release")
    assert (await modern.call("one_ask")).result["resultType"] == "input_required"


async def test_a_client_that_leaves_with_a_question_does_not_leave_the_server_waiting(
    site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    modern = ModernClient(http, f"{site.url}/mcp", FORMS)
    assert (await modern.call("one_ask")).result["resultType"] == "input_required"
    await site.part(GatewayMount).gateway.suspended_calls.close()
    # The server gets an answer and ends the call, so that the next question has one origin again.
    assert (await modern.call("one_ask")).result["resultType"] == "input_required"


async def test_a_model_is_not_used_for_a_call_of_unknown_origin(
    open_site: Any, http: aiohttp.ClientSession, marker: str, wait_until: Until
) -> None:
    models = {"m": {"model": "openai:gpt-5-mini"}}
    site = await open_site(
        {"one": entry(marker)}, list_deadline=LONG_LIST_DEADLINE, openai_api_key="k", models=models
    )
    modern = ModernClient(http, f"{site.url}/mcp", {"sampling": {}})
    assert (await modern.call("one_sample")).result["resultType"] == "input_required"
    async with start_held_call(site, ModernClient(http, f"{site.url}/mcp"), wait_until):
        answer = json.loads((await modern.call("one_sample")).text)
    assert "the client that made the call is unknown" in answer["message"]


async def test_a_call_ends_with_the_link_without_an_answer(
    open_site: Any, http: aiohttp.ClientSession, marker: str
) -> None:
    site = await open_site({"one": entry(marker)}, list_deadline=LONG_LIST_DEADLINE, ask_wait=0.2)
    error = (await ModernClient(http, f"{site.url}/mcp").call("one_ask")).error
    assert f"{site.url}/ui/approvals#q-" in error["message"]
    assert "answer the question on that page" in error["data"]["hint"]
    assert "is asking" not in (await ScriptlessBrowser(site.client()).get("/ui/approvals")).text


async def test_questions_that_a_server_asks_at_once_are_limited_on_the_page(
    open_site: Any, http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    flood = {"command": sys.executable, "args": ["-I", "-S", str(Path(SERVER).with_name(FLOOD))]}
    site = await open_site({"one": flood}, list_deadline=LONG_LIST_DEADLINE)
    client = ModernClient(http, f"{site.url}/mcp")
    call = asyncio.create_task(client.call("one_flood", {"times": 50, "at_once": True}))
    questions = site.services.database.questions
    async with asyncio.timeout(30):
        while True:
            open_questions = await questions.list_open("local", 0.0)
            if len(open_questions) + caplog.text.count("too many questions are open") == 50:
                break
            await asyncio.sleep(0.02)
    assert len(open_questions) == 20
    for question in open_questions:
        assert await questions.answer(question.owner, question.id, {"action": "decline"})
    assert (await call).text == "50"


async def test_a_question_is_on_the_page_of_its_person_only(
    open_site: Any, http: aiohttp.ClientSession, marker: str
) -> None:
    site = await open_site({"one": entry(marker)}, people_mode="password", list_deadline=LONG_LIST_DEADLINE)
    ann, bob = await site.person("ann"), await site.person("bob")
    client = ModernClient(http, f"{site.url}/mcp", {}, {"Authorization": f"Bearer {ann.secret}"})
    call = asyncio.create_task(client.call("one_ask"))
    browser = ScriptlessBrowser(ann.browser)
    page = await question_on_page(browser)
    assert "is asking" not in (await ScriptlessBrowser(bob.browser).get("/ui/approvals")).text
    form = page.form_with("reply")
    # With a form of his own page, Bob cannot answer it either.
    (question,) = await site.services.database.questions.list_open(ann.user.id, 0.0)
    assert not await site.services.database.questions.answer(bob.user.id, question.id, ANN)
    await browser.send(page, form, {}, ("reply", "cancel"))
    assert json.loads((await call).text) == {"action": "cancel"}


async def test_a_question_is_answered_through_the_api_by_its_person_once(
    open_site: Any, http: aiohttp.ClientSession, marker: str
) -> None:
    site = await open_site({"one": entry(marker)}, people_mode="password", list_deadline=LONG_LIST_DEADLINE)
    ann, bob, admin = [await site.person(name, role) for name, role in PEOPLE]
    client = ModernClient(http, f"{site.url}/mcp", {}, {"Authorization": f"Bearer {ann.secret}"})
    call = asyncio.create_task(client.call("one_ask"))
    await question_on_page(ScriptlessBrowser(ann.browser))
    (question,) = (await ann.token.get("/api/v1/questions")).json["items"]
    assert (question["server"], question["kind"], question["url"]) == ("one", "form", None)
    assert question["calls"][0].startswith("ask (")
    path = f"/api/v1/questions/{question['id']}"
    for other in (bob, admin):
        assert (await other.token.get("/api/v1/questions")).json == {"items": []}
        assert (await other.token.post(path, ANN)).status == 404
    # A token that calls tools does not answer their questions.
    calling = await site.services.people.create_token(
        ann.user, "calls", TokenScope(frozenset({Right.READ, Right.CALL})), None
    )
    caller = site.client(Authorization=f"Bearer {calling[1]}")
    assert (await caller.post(path, ANN)).status == 403
    assert (await ann.token.post(path, {"action": "accept", "content": {"a": "x" * 70_000}})).status == 422
    assert (await ann.token.post(path, ANN)).status == 204
    assert json.loads((await call).text) == ANN
    assert (await ann.token.post(path, ANN)).status == 404


async def test_a_question_is_answered_on_another_replica(
    open_site: Any, http: aiohttp.ClientSession, marker: str, postgres_url: str
) -> None:
    shared_settings: dict[str, Any] = {
        "database_url": postgres_url,
        "secret_key": "a key that both replicas have",
    }
    shared_settings |= {"list_deadline": LONG_LIST_DEADLINE}
    site = await open_site({"one": entry(marker)}, **shared_settings)
    other = await open_site({"one": entry(f"{marker}-other")}, **shared_settings)
    call = asyncio.create_task(ModernClient(http, f"{site.url}/mcp").call("one_ask"))
    browser = ScriptlessBrowser(other.client())
    page = await question_on_page(browser)
    await browser.send(page, page.form_with("reply"), {}, ("reply", "cancel"))
    assert json.loads((await call).text) == {"action": "cancel"}
    call = asyncio.create_task(ModernClient(http, f"{site.url}/mcp").call("one_ask"))
    await question_on_page(browser)
    (question,) = (await other.client().get("/api/v1/questions")).json["items"]
    assert (await other.client().post(f"/api/v1/questions/{question['id']}", ANN)).status == 204
    assert json.loads((await call).text) == ANN
    assert processes(f"{marker}-other") == []


# Log messages.


async def test_each_client_gets_the_log_messages_that_it_asked_for(
    site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    quiet, errors, everything = [await begin(http, site, {}) for _ in range(3)]
    for client, level in ((errors, "error"), (everything, "debug")):
        await client.ask("logging/setLevel", {"level": level})
        await client.call("one_count")

    async def list_log_levels(client: LegacyClient) -> list[str]:
        messages = (await client.call("one_log")).messages
        return [each["params"]["level"] for each in messages if each.get("method") == "notifications/message"]

    assert await list_log_levels(quiet) == []
    assert await list_log_levels(errors) == ["error"]
    assert await list_log_levels(everything) == ["debug", "error"]
    # The finest level of all clients is set, and set once.
    assert json.loads((await quiet.call("one_count")).text)["levels"] == ["error", "debug"]


# Roots.


async def test_a_server_that_needs_roots_gets_a_hint(
    open_site: Any, http: aiohttp.ClientSession, marker: str
) -> None:
    site = await open_site(
        {"one": entry(marker), "two": entry(marker, "--roots")}, list_deadline=LONG_LIST_DEADLINE
    )
    client = await begin(http, site, {"roots": {}})
    assert json.loads((await client.call("one_roots")).text)["code"] == -32601
    await client.call("two_count")
    for id in ("one", "two"):
        assert '"sessions": "per-client"' in (site.services.core.manager.status(id).hint or "")


@asynccontextmanager
async def _open_asking_call(
    http: aiohttp.ClientSession, client: LegacyClient, **meta: Any
) -> AsyncIterator[tuple[aiohttp.ClientResponse, Any]]:
    """A call that asks, with its first message."""
    message = client.message("tools/call", {"name": "one_ask", "arguments": {}}, **meta)
    async with http.post(client.url, json=message, headers=client.head("")) as response:
        yield response, await next_message(response)
