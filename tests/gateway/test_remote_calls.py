"""A modern client's rounds at several replicas, while its call waits at one of them for a legacy server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.gateway.conftest import ModernClient, Reply, passthrough_entry
from tests.web.conftest import InProcessApp

from toolyard.store.errors import StoreError
from toolyard.web.gateway_mount import GatewayMount

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

KEY = "a key that all replicas have"
ELICITATION = {"elicitation": {"form": {}}}
ANN = {"action": "accept", "content": {"name": "Ann"}}


@pytest.fixture
async def replicas(postgres_url: str, open_site: Any, tmp_path: Path) -> list[InProcessApp]:
    config = {"one": passthrough_entry("one", tmp_path / "cancelled", restart="on-failure")}
    return [await open_site(config, database_url=postgres_url, secret_key=KEY) for _ in range(3)]


class Rounds:
    """A client whose requests come to another replica each time."""

    def __init__(self, http: aiohttp.ClientSession, replicas: list[InProcessApp]) -> None:
        self.clients = [ModernClient(http, f"{replica.url}/mcp", ELICITATION) for replica in replicas]

    async def first(self, place: int, tool: str = "one_ask") -> Reply:
        reply = await self.clients[place].call(tool)
        assert reply.result["resultType"] == "input_required", reply.answer
        return reply

    async def again(
        self, place: int, before: Reply, answers: Any, tool: str = "one_ask", **meta: Any
    ) -> Reply:
        state = before.result["requestState"]
        params = {"name": tool, "arguments": {}, "inputResponses": answers, "requestState": state}
        return await self.clients[place].ask("tools/call", params, **meta)


async def test_every_replica_takes_the_next_round(
    replicas: list[InProcessApp], http: aiohttp.ClientSession
) -> None:
    rounds = Rounds(http, replicas)
    first_reply = await rounds.first(0)
    # Without the answer it is asked again, wherever that is.
    for place in (1, 2, 0):
        again = await rounds.again(place, first_reply, {})
        assert again.result["inputRequests"] == first_reply.result["inputRequests"]
        first_reply = again
    for place in (1, 0, 2):
        final_reply = await rounds.again(place, first_reply, {"input-1": ANN})
        assert json.loads(final_reply.text) == ANN
        first_reply = await rounds.first(0)


async def test_notifications_of_the_server_during_a_call_reach_the_client(
    replicas: list[InProcessApp], http: aiohttp.ClientSession
) -> None:
    rounds = Rounds(http, replicas)
    first_reply = await rounds.first(0, "one_ask_on")
    final_reply = await rounds.again(1, first_reply, {"input-1": ANN}, "one_ask_on", progressToken="mine")
    *notifications, answer = final_reply.messages
    assert [each["method"] for each in notifications] == ["notifications/progress"]
    assert notifications[0]["params"] == {"progress": 1, "progressToken": "mine"}
    assert json.loads(answer["result"]["content"][0]["text"]) == ANN


async def test_a_call_that_fails_elsewhere_fails_with_the_same_words(
    replicas: list[InProcessApp], http: aiohttp.ClientSession
) -> None:
    rounds = Rounds(http, replicas)
    failures = [
        (await rounds.again(place, await rounds.first(0, "one_ask_exit"), {"input-1": ANN}, "one_ask_exit"))
        for place in (0, 1)
    ]
    here, error_kinds = (reply.error for reply in failures)
    assert here == error_kinds
    assert here["data"]["server"] == "one"


async def test_a_client_that_leaves_another_replica_cancels_its_call(
    replicas: list[InProcessApp],
    http: aiohttp.ClientSession,
    tmp_path: Path,
    wait_until: Callable[..., Awaitable[None]],
) -> None:
    rounds = Rounds(http, replicas)
    first_reply = await rounds.first(0, "one_ask_wait")
    holder = replicas[0].part(GatewayMount).gateway.remote_calls.call_host
    assert holder is not None
    call = asyncio.create_task(rounds.again(1, first_reply, {"input-1": ANN}, "one_ask_wait"))
    await wait_until(lambda: bool(holder.running_rounds), 30)
    call.cancel()
    await wait_until((tmp_path / "cancelled").exists, 30)
    await wait_until(lambda: not holder.running_rounds, 30)


async def test_a_call_that_is_not_held_any_more_is_reported(
    replicas: list[InProcessApp], http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(http, replicas)
    first_reply = await rounds.first(0)
    # It is there, and knows nothing of the call.
    await replicas[0].part(GatewayMount).gateway.suspended_calls.close()
    outcome_data = {"kind": "outcome_unknown"}
    for place in (0, 1):
        assert (await rounds.again(place, first_reply, {"input-1": ANN})).error["data"] == outcome_data
    # It is not there, or says nothing.
    remote_calls = replicas[1].part(GatewayMount).gateway.remote_calls
    remote_calls.host_timeout_seconds, remote_calls.heartbeat_seconds = 0.5, 0.1
    first_reply = await rounds.first(0)

    async def deaf(mail: object) -> None: ...

    monkeypatch.setattr(replicas[0].part(GatewayMount).gateway.remote_calls, "_read_messages", deaf)
    reply = await rounds.again(1, first_reply, {"input-1": ANN})
    assert (reply.error["code"], reply.error["data"]) == (-32603, outcome_data)
    assert "it is not known whether it was executed" in reply.error["message"]


async def test_a_replica_that_stops_says_that_its_calls_are_gone(
    replicas: list[InProcessApp], http: aiohttp.ClientSession, wait_until: Callable[..., Awaitable[None]]
) -> None:
    rounds = Rounds(http, replicas)
    first_reply = await rounds.first(0, "one_ask_wait")
    services = replicas[0].services
    holder = replicas[0].part(GatewayMount).gateway.remote_calls.call_host
    assert holder is not None
    call = asyncio.create_task(rounds.again(1, first_reply, {"input-1": ANN}, "one_ask_wait"))
    await wait_until(lambda: bool(holder.running_rounds), 30)
    await services.end_work()
    assert (await call).error["data"] == {"kind": "outcome_unknown"}


async def test_letters_that_cannot_be_sent_are_an_error_and_no_silence(
    replicas: list[InProcessApp], http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(http, replicas)
    first_reply = await rounds.first(0)

    async def lose_message(box: str, letter: bytes) -> None:
        raise StoreError("the database is away")

    monkeypatch.setattr(replicas[1].services.database.mailbox, "post", lose_message)
    reply = await rounds.again(1, first_reply, {"input-1": ANN})
    assert "the database is away" in reply.error["message"]
    # The call still waits.
    assert json.loads((await rounds.again(2, first_reply, {"input-1": ANN})).text) == ANN
