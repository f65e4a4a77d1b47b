"""Calls that need somebody's yes, at the doors without a chat: the gateway in both eras, and the API."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.web
import pytest
from tests.gateway.conftest import LegacyClient, ModernClient, Reply, passthrough_entry
from tests.web.conftest import HttpReply, InProcessApp

from toolyard.agents.chat.approval_grants import GrantScope, create_grant
from toolyard.core.call_approvals import MemoryApprovalStore
from toolyard.types.account import Right, TokenScope
from toolyard.types.approval import Approval
from toolyard.web.gateway_mount import GatewayMount

FORMS = {"elicitation": {"form": {}}}
WRITE = "one_write"
MAY_CALL = TokenScope(frozenset({Right.READ, Right.CALL}))
MAY_APPROVE = TokenScope(frozenset({Right.READ, Right.CALL, Right.APPROVE}))


@dataclass
class ApprovalSite:
    """A Toolyard that asks about write tools, and one person with a token."""

    local: InProcessApp
    person: Any
    http: aiohttp.ClientSession

    @property
    def owner(self) -> str:
        return self.person.user.id

    def modern(self, capabilities: dict[str, Any] = FORMS) -> ModernClient:
        return ModernClient(self.http, f"{self.local.url}/mcp", capabilities, self._head)

    async def old(self, capabilities: dict[str, Any] = FORMS) -> LegacyClient:
        client = LegacyClient(self.http, f"{self.local.url}/mcp", capabilities, self._head)
        await client.begin()
        return client

    @property
    def _head(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.person.secret}"}

    async def waiting(self) -> list[Approval]:
        return list(await self.local.services.database.approvals.list_pending(self.owner))

    async def say(self, approval: Approval, *, yes: bool, remember: GrantScope | None = None) -> None:
        """As the page does it."""
        services = self.local.services
        await services.chats.answer_approval(self.owner, approval.id, yes=yes, remember=remember)

    async def call(self, arguments: dict[str, Any] | None = None) -> Any:
        body = {"arguments": arguments or {}}
        return await self.person.token.post(f"/api/v1/tools/{WRITE}/call", body)


@pytest.fixture
async def open_approval_site(open_site: Any, http: aiohttp.ClientSession) -> Any:
    """``await open_approval_site(scope)``."""

    async def make(scope: TokenScope = MAY_APPROVE, **servers: Any) -> ApprovalSite:
        config = {"one": passthrough_entry("one"), **servers}
        local = await open_site(config, people_mode="password", write_tools="ask")
        return ApprovalSite(local, await local.person("ann", scope=scope), http)

    return make


def question(reply: Reply) -> tuple[str, dict[str, Any], str]:
    """What a modern client is asked: the name, the parameters, the state."""
    assert reply.result["resultType"] == "input_required", reply.answer
    ((name, request_pair),) = reply.result["inputRequests"].items()
    assert request_pair["method"] == "elicitation/create"
    return name, request_pair["params"], reply.result["requestState"]


# Nobody can be asked at once: the link.


@pytest.mark.parametrize(
    ("scope", "capabilities"),
    [(MAY_CALL, FORMS), (MAY_APPROVE, {}), (MAY_APPROVE, {"elicitation": {"url": {}}})],
    ids=["the token does not allow it", "the client cannot", "not by a form"],
)
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_is_answered_with_the_link_and_works_after_the_yes(
    open_approval_site: Any, scope: TokenScope, capabilities: dict[str, Any], era: str
) -> None:
    here: ApprovalSite = await open_approval_site(scope)
    client = here.modern(capabilities) if era == "modern" else await here.old(capabilities)
    reply = await client.call(WRITE, {"text": "a"})
    assert reply.result["isError"] is True
    (approval,) = await here.waiting()
    assert f"{here.local.url}/ui/approvals#{approval.id}" in reply.text
    assert "readOnlyHint is false" in reply.text
    assert (approval.tool, approval.name, approval.arguments) == ("one/write", WRITE, {"text": "a"})
    assert approval.chat_id is None
    # The same call does not ask twice, another one does.
    await client.call(WRITE, {"text": "a"})
    assert await here.waiting() == [approval]
    await client.call(WRITE, {"text": "b"})
    assert len(await here.waiting()) == 2
    await here.say(approval, yes=True)
    assert (await client.call(WRITE, {"text": "b"})).result["isError"] is True
    assert (await client.call(WRITE, {"text": "a"})).text == "plain"
    # It was for once.
    assert (await client.call(WRITE, {"text": "a"})).result["isError"] is True


async def test_the_api_answers_with_the_link_and_works_after_the_yes(open_approval_site: Any) -> None:
    here: ApprovalSite = await open_approval_site(MAY_CALL)
    answer = await here.call({"text": "a"})
    (approval,) = await here.waiting()
    link = f"{here.local.url}/ui/approvals#{approval.id}"
    assert (answer.status, answer.json["type"]) == (409, "urn:toolyard:problem:approval-needed")
    assert answer.json["approval"] == link
    assert link in answer.json["hint"]
    await here.call({"text": "a"})
    assert await here.waiting() == [approval]
    await here.say(approval, yes=True, remember=GrantScope(3600, "any", this_chat_only=False))
    for text in ("a", "b"):
        assert (await here.call({"text": text})).status == 200
    assert await here.waiting() == []


async def test_a_no_lets_nothing_through(open_approval_site: Any) -> None:
    here: ApprovalSite = await open_approval_site()
    await here.call()
    (approval,) = await here.waiting()
    await here.say(approval, yes=False)
    assert (await here.call()).status == 409
    assert [each.id for each in await here.waiting()] != [approval.id]


async def test_an_approval_counts_only_for_its_user(open_approval_site: Any) -> None:
    here: ApprovalSite = await open_approval_site()
    await here.call()
    (approval,) = await here.waiting()
    bob = await here.local.person("bob")
    store = here.local.services.database.approvals
    assert not await store.answer(bob.user.id, approval.id, yes=True, at=1.0, grant=None)
    await here.say(approval, yes=True, remember=GrantScope(3600, "any", this_chat_only=False))
    path = f"/api/v1/tools/{WRITE}/call"
    assert (await bob.token.post(path, {"arguments": {}})).status == 409
    assert (await here.call()).status == 200


async def test_the_form_of_an_approval_counts_in_its_own_session_only(open_approval_site: Any) -> None:
    here: ApprovalSite = await open_approval_site()
    await here.call({"text": "a"})
    await here.call({"text": "b"})
    one, other = await here.waiting()
    ann, bob = here.person.browser, (await here.local.person("bob")).browser

    async def proof(browser: Any, page: str) -> str:
        match = re.search(r'name="csrf" value="([^"]+)"', (await browser.get(page)).text)
        assert match is not None
        return match[1]

    async def approve(browser: Any, approval: Approval, csrf: str) -> HttpReply:
        head = {"Origin": here.local.url}
        form = {"csrf": csrf, "answer": "once"}
        return await browser.post(f"/ui/approvals/{approval.id}", data=form, headers=head)

    hers, his = await proof(ann, "/ui/approvals"), await proof(bob, "/ui/tokens")
    assert (await approve(bob, other, hers)).status == 403
    await approve(bob, other, his)
    assert await here.waiting() == [one, other]
    # Twice from two tabs: the second one is told so.
    await asyncio.gather(*(approve(ann, one, hers) for _ in range(2)))
    assert await here.waiting() == [other]
    await here.local.services.people.sign_out_everywhere(here.person.user)
    await approve(ann, other, hers)
    assert await here.waiting() == [other]
    assert (await here.call({"text": "a"})).status == 200
    assert (await here.call({"text": "a"})).status == 409
    assert (await here.call({"text": "b"})).status == 409


async def test_a_changed_definition_needs_a_new_approval(open_approval_site: Any) -> None:
    here: ApprovalSite = await open_approval_site()
    await here.call()
    (approval,) = await here.waiting()
    store = here.local.services.database.approvals
    grant = create_grant(approval, GrantScope(3600, "any", this_chat_only=False), time.time())
    other = "0" * len(grant.definition_hash)

    changed_grant = replace(grant, definition_hash=other)
    await store.answer(here.owner, approval.id, yes=True, at=1.0, grant=changed_grant)
    assert (await here.call()).status == 409


async def test_many_calls_do_not_flood_the_page(open_approval_site: Any) -> None:
    here: ApprovalSite = await open_approval_site(MAY_CALL)
    answers = await asyncio.gather(*(here.call({"text": str(number % 104)}) for number in range(120)))
    assert len(await here.waiting()) == 100
    assert {answer.status for answer in answers} == {409, 404}
    assert "are already waiting for approval" in "".join(answer.text for answer in answers)


async def test_calls_that_cannot_be_shown_are_refused_without_a_question(open_approval_site: Any) -> None:
    here: ApprovalSite = await open_approval_site(MAY_CALL)
    answer = await here.call({"text": "x" * 300_000})
    assert "too long to be shown" in answer.text
    assert await here.waiting() == []


# The client is asked.


async def test_a_modern_client_is_asked_and_its_yes_is_for_one_call(open_approval_site: Any) -> None:
    here: ApprovalSite = await open_approval_site()
    client = here.modern()
    first = await client.call(WRITE, {"text": "a"})
    name, params, state = question(first)
    assert '{"text": "a"}' in params["message"]
    assert params["requestedSchema"] == {"type": "object", "properties": {}}
    (approval,) = await here.waiting()
    answers = {name: {"action": "accept", "content": {}}}
    # Another call cannot use the answer.
    other = await client.call(WRITE, {"text": "b"}, inputResponses=answers, requestState=state)
    assert other.error["code"] == -32602
    second = await client.call(WRITE, {"text": "a"}, inputResponses=answers, requestState=state)
    assert second.text == "plain"
    assert await here.waiting() == []
    # Nor is it good a second time, however often the state is sent.
    again = await client.call(WRITE, {"text": "a"}, inputResponses=answers, requestState=state)
    question(again)
    (new,) = await here.waiting()
    assert new.id != approval.id


async def asks(client: ModernClient, http: aiohttp.ClientSession, arguments: dict[str, Any]) -> Any:
    """Make the call; return the parameters of the question, or the result where nobody was asked."""
    if not isinstance(client, LegacyClient):
        reply = await client.call(WRITE, arguments)
        is_input_required = reply.result["resultType"] == "input_required"
        return question(reply)[1] if is_input_required else reply.result
    message = client.message("tools/call", {"name": WRITE, "arguments": arguments})
    async with http.post(client.url, json=message, headers=client.head("tools/call")) as response:
        is_stream = response.content_type == "text/event-stream"
        answer = await _next(response) if is_stream else await response.json()
        return answer.get("params") or answer["result"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize(
    "arguments",
    [{"text": "x" * 2_500}, {"a": "x" * 1_900, "b": "y" * 1_900}, {"text": "\u200b" * 1_000}],
    ids=["one long value", "two long values", "long once hidden characters are shown"],
)
async def test_arguments_that_do_not_fit_are_approved_on_the_page_only(
    open_approval_site: Any, http: aiohttp.ClientSession, era: str, arguments: dict[str, Any]
) -> None:
    here: ApprovalSite = await open_approval_site()
    client = here.modern() if era == "modern" else await here.old()
    result = await asks(client, http, arguments)
    (approval,) = await here.waiting()
    assert approval.arguments == arguments
    assert result["isError"] is True, result
    assert f"{here.local.url}/ui/approvals#{approval.id}" in result["content"][0]["text"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_question_shows_all_keys_first_and_hidden_characters(
    open_approval_site: Any, http: aiohttp.ClientSession, era: str
) -> None:
    here: ApprovalSite = await open_approval_site()
    client = here.modern() if era == "modern" else await here.old()
    arguments = {
        "body": "x" * 900,
        "more": "y" * 500,
        "force": True,
        "to": "ann\u202emoc.live\U000e0041\u2003x",
    }
    message = (await asks(client, http, arguments))["message"]
    keys = '4 arguments: "body", "more", "force", "to"'
    short, long = '"force": true, "to": "ann\\u202emoc.live\\U000e0041\\u2003x"', '"body": "xxx'
    assert -1 < message.index(keys) < message.index(short) < message.index(long)
    assert message.replace("\n", "").isprintable()
    assert "x" * 900 in message
    assert "y" * 500 in message


async def test_a_modern_client_that_brings_no_answer_is_asked_again(open_approval_site: Any) -> None:
    here: ApprovalSite = await open_approval_site()
    client = here.modern()
    name, params, state = question(await client.call(WRITE))
    for nothing in ({}, {"other": {"action": "accept"}}, {name: "accept"}):
        reply = await client.call(WRITE, inputResponses=nothing, requestState=state)
        assert question(reply)[:2] == (name, params)
    assert len(await here.waiting()) == 1


@pytest.mark.parametrize(("action", "still"), [("decline", 0), ("cancel", 1), ("made up", 1)])
async def test_a_modern_client_that_says_no(open_approval_site: Any, action: str, still: int) -> None:
    here: ApprovalSite = await open_approval_site()
    client = here.modern()
    name, _, state = question(await client.call(WRITE))
    reply = await client.call(WRITE, inputResponses={name: {"action": action}}, requestState=state)
    assert reply.result["isError"] is True
    assert "was not approved" in reply.text
    # Who only closed the question may still answer on the page.
    assert len(await here.waiting()) == still


async def test_another_token_of_the_same_person_does_not_answer_in_its_place(open_approval_site: Any) -> None:
    here: ApprovalSite = await open_approval_site()
    name, _, state = question(await here.modern().call(WRITE))
    people = here.local.services.people
    _, secret = await people.create_token(here.person.user, "less", MAY_CALL, None)
    client = here.modern()
    client.headers = {"Authorization": f"Bearer {secret}"}
    reply = await client.call(WRITE, inputResponses={name: {"action": "accept"}}, requestState=state)
    assert "was not approved" in reply.text
    assert len(await here.waiting()) == 1


async def test_an_answer_needs_nothing_that_a_process_keeps(open_approval_site: Any) -> None:
    here: ApprovalSite = await open_approval_site()
    name, _, state = question(await here.modern().call(WRITE))
    # What one process keeps in memory is not needed: all of it is in the state and the database.
    await here.local.part(GatewayMount).gateway.suspended_calls.close()
    answers = {name: {"action": "accept"}}
    reply = await here.modern().call(WRITE, inputResponses=answers, requestState=state)
    assert reply.text == "plain"


async def answer_elicitation(
    client: LegacyClient,
    http: aiohttp.ClientSession,
    action: str,
    tool: str = WRITE,
    arguments: dict[str, Any] | None = None,
) -> Any:
    """Call, be asked, answer; what the call comes to."""
    message = client.message("tools/call", {"name": tool, "arguments": arguments or {}})
    async with http.post(client.url, json=message, headers=client.head("tools/call")) as response:
        question = await _next(response)
        assert question["method"] == "elicitation/create", question
        assert "needs an approval" in question["params"]["message"]
        client_reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": action}}
        assert (await client.send(client_reply, client.head(""))).status == 202
        return await _next(response)


async def _next(response: aiohttp.ClientResponse) -> Any:
    async for line in response.content:
        if line.startswith(b"data: {"):
            return json.loads(line.removeprefix(b"data: "))
    raise AssertionError("the stream ended")


async def test_a_legacy_client_is_asked_within_its_call(
    open_approval_site: Any, http: aiohttp.ClientSession
) -> None:
    here: ApprovalSite = await open_approval_site()
    for capabilities in (FORMS, {"elicitation": {}}):
        client = await here.old(capabilities)
        answer = await answer_elicitation(client, http, "accept")
        assert answer["result"]["content"][0]["text"] == "plain"
        assert await here.waiting() == []
    answer = await answer_elicitation(client, http, "decline")
    assert "was not approved" in answer["result"]["content"][0]["text"]
    assert await here.waiting() == []


async def test_a_legacy_client_that_fails_gets_the_link(
    open_approval_site: Any, http: aiohttp.ClientSession
) -> None:
    here: ApprovalSite = await open_approval_site()
    client = await here.old()
    message = client.message("tools/call", {"name": WRITE, "arguments": {}})
    async with http.post(client.url, json=message, headers=client.head("tools/call")) as response:
        question = await _next(response)
        client_reply = {"jsonrpc": "2.0", "id": question["id"], "error": {"code": -32603, "message": "no"}}
        await client.send(client_reply, client.head(""))
        answer = await _next(response)
    assert "/ui/approvals#" in answer["result"]["content"][0]["text"]
    assert len(await here.waiting()) == 1


async def test_at_the_address_of_one_server_the_same_holds(
    open_approval_site: Any, http: aiohttp.ClientSession
) -> None:
    here: ApprovalSite = await open_approval_site()
    client = here.modern()
    client.url += "/servers/one"
    name, _, state = question(await client.call("write"))
    reply = await client.call("write", inputResponses={name: {"action": "accept"}}, requestState=state)
    assert reply.text == "plain"


# Through the meta tools.

THROUGH = {"name": WRITE, "arguments": {"text": "a"}}


async def test_through_the_meta_tools_a_modern_client_is_asked(open_approval_site: Any) -> None:
    here: ApprovalSite = await open_approval_site()
    client = here.modern()
    client.url += "?mode=meta"
    name, params, state = question(await client.call("tools_call", THROUGH))
    assert f"'{WRITE}' needs an approval" in params["message"]
    assert '{"text": "a"}' in params["message"]
    yes = {name: {"action": "accept"}}
    reply = await client.call("tools_call", THROUGH, inputResponses=yes, requestState=state)
    assert json.loads(reply.text) == {"ok": True, "result": "plain"}
    assert await here.waiting() == []
    # Another call cannot use it, and this one not twice.
    name, _, state = question(await client.call("tools_call", THROUGH))
    other = {"name": WRITE, "arguments": {"text": "b"}}
    wrong = await client.call("tools_call", other, inputResponses=yes, requestState=state)
    assert wrong.error["code"] == -32602
    no = {name: {"action": "decline"}}
    reply = await client.call("tools_call", THROUGH, inputResponses=no, requestState=state)
    answer = json.loads(reply.text)
    assert answer["ok"] is False
    assert f"the call to '{WRITE}' was not approved" in answer["error"]
    assert await here.waiting() == []


async def test_through_the_meta_tools_a_legacy_client_is_asked(
    open_approval_site: Any, http: aiohttp.ClientSession
) -> None:
    here: ApprovalSite = await open_approval_site()
    client = await here.old()
    client.url += "?mode=meta"
    for action, words in (("accept", '"ok":true'), ("decline", "was not approved")):
        answer = await answer_elicitation(client, http, action, "tools_call", THROUGH)
        assert words in answer["result"]["content"][0]["text"]
    assert await here.waiting() == []


@pytest.mark.parametrize(
    ("scope", "capabilities"),
    [(MAY_CALL, FORMS), (MAY_APPROVE, {})],
    ids=["the token does not allow it", "the client cannot"],
)
async def test_through_the_meta_tools_the_link_is_returned_without_elicitation(
    open_approval_site: Any, scope: TokenScope, capabilities: dict[str, Any]
) -> None:
    here: ApprovalSite = await open_approval_site(scope)
    client = here.modern(capabilities)
    client.url += "?mode=meta"
    reply = await client.call("tools_call", {"name": WRITE, "arguments": {}})
    (approval,) = await here.waiting()
    assert f"/ui/approvals#{approval.id}" in reply.text
    await here.say(approval, yes=True)
    assert "plain" in (await client.call("tools_call", {"name": WRITE, "arguments": {}})).text


async def test_without_accounts_the_local_user_may_be_asked(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    local = await open_site({"one": passthrough_entry("one")}, write_tools="ask")
    client = ModernClient(http, f"{local.url}/mcp", FORMS)
    name, _, state = question(await client.call(WRITE))
    reply = await client.call(WRITE, inputResponses={name: {"action": "accept"}}, requestState=state)
    assert reply.text == "plain"


# A yes for a call that takes several rounds.


async def modern_server(request: aiohttp.web.Request) -> aiohttp.web.Response:
    """A modern server whose tool ``give`` writes, and asks for a name first."""
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
            tool = {"name": "give", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": False}}
            result |= {"tools": [tool], "ttlMs": 60_000, "cacheScope": "private"}
        case _ if "inputResponses" in params:
            name = params["inputResponses"]["who"]["content"]["name"]
            result["content"] = [{"type": "text", "text": f"given to {name}"}]
        case _:
            form = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
            input_requests = {"who": {"method": "elicitation/create", "params": form}}
            result = {"resultType": "input_required", "inputRequests": input_requests, "requestState": "s"}
    return aiohttp.web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


async def test_one_yes_is_enough_for_all_rounds_of_a_call(open_approval_site: Any) -> None:
    app = aiohttp.web.Application()
    app.router.add_post("/mcp", modern_server)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    here: ApprovalSite = await open_approval_site(
        two={"url": f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"}
    )
    client = here.modern()
    name, _, state = question(await client.call("two_give"))
    refusal = await client.call("two_give", inputResponses={name: {"action": "accept"}}, requestState=state)
    name, params, state = question(refusal)
    assert (name, params["message"]) == ("who", "Who?")
    input_responses = {name: {"action": "accept", "content": {"name": "Ann"}}}
    result_text = await client.call("two_give", inputResponses=input_responses, requestState=state)
    assert result_text.text == "given to Ann"
    await runner.cleanup()


# Over standard streams.


async def test_over_standard_streams_the_client_is_asked(tmp_path: Path) -> None:

    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"one": passthrough_entry("one")}}))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TOOLYARD_DATA_DIR": str(tmp_path)}
    env["TOOLYARD_STANDALONE"] = "1"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "toolyard", "stdio"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**env, "TOOLYARD_WRITE_TOOLS": "ask"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    source, sink = process.stdout, process.stdin

    def tell(**message: Any) -> None:
        sink.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def read_message() -> Any:
        async with asyncio.timeout(90):
            return json.loads(await source.readline())

    begin = {"protocolVersion": "2025-11-25", "capabilities": FORMS, "clientInfo": {"name": "c"}}
    tell(id=1, method="initialize", params=begin)
    await read_message()
    tell(method="notifications/initialized")
    for action, words in (("accept", "plain"), ("decline", "was not approved")):
        tell(id=2, method="tools/call", params={"name": WRITE, "arguments": {}})
        elicitation = await read_message()
        assert elicitation["method"] == "elicitation/create"
        tell(id=elicitation["id"], result={"action": action})
        assert words in (await read_message())["result"]["content"][0]["text"]
    sink.close()
    assert await asyncio.wait_for(process.wait(), 30) == 0


async def test_an_approval_link_is_used_once_and_by_its_owner() -> None:
    store = MemoryApprovalStore()
    approval = Approval("a", "ann", "one/write", WRITE, "hash", {}, "why", 1.0)
    await store.add(approval)
    assert await store.list_pending("ann") == [approval]
    assert await store.list_pending("bob") == []
    assert not await store.answer("bob", "a", yes=True, at=2.0, grant=None)
    grant = create_grant(approval, None, 2.0)
    assert await store.answer("ann", "a", yes=True, at=2.0, grant=grant)
    assert not await store.answer("ann", "a", yes=False, at=3.0, grant=None)

    async def use(owner: str = "ann", hash: str = "hash", now: float = 3.0) -> Any:
        return await store.use_grant(owner, "one/write", hash, lambda predicate: True, None, now)

    assert await use("bob") is None
    assert await use(hash="other") is None
    assert await use(now=1e12) is None
    await store.add(approval)
    await store.answer("ann", "a", yes=True, at=2.0, grant=grant)
    assert await use() == grant
    assert await use() is None
