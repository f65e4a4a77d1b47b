"""A modern client behind a balancer that sends each of its requests to another replica, on one PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.web
import pytest
from tests.gateway.conftest import ModernClient, Reply, passthrough_entry
from tests.gateway.test_approvals import modern_server
from tests.journeys.test_replicas import ReplicaProcess
from tests.ports import free_port

KEY = "a key that all replicas have"
FORMS = {"elicitation": {"form": {}}}
ANN = {"action": "accept", "content": {"name": "Ann"}}

# Soon believes that another replica is gone.
HASTY = """
import toolyard.gateway.input_required.remote_calls
from toolyard.cli import main
assert toolyard.gateway.input_required.remote_calls._HOST_TIMEOUT_SECONDS == 15.0
toolyard.gateway.input_required.remote_calls._HOST_TIMEOUT_SECONDS = 2.0
main()
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session:
        yield session


@pytest.fixture
async def modern_url() -> AsyncIterator[str]:
    app = aiohttp.web.Application()
    app.router.add_post("/mcp", modern_server)
    runner = aiohttp.web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    await runner.cleanup()


@pytest.fixture
async def replicas(postgres_url: str, tmp_path: Path, modern_url: str) -> AsyncIterator[list[ReplicaProcess]]:
    servers = {"old": passthrough_entry("old"), "new": {"url": modern_url}}
    replica_processes: list[ReplicaProcess] = []
    for index in range(3):
        home = tmp_path / f"replica{index}"
        home.mkdir()
        (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TOOLYARD_DATA_DIR": str(home),
            "TOOLYARD_DATABASE_URL": postgres_url,
            "TOOLYARD_SECRET_KEY": KEY,
            "TOOLYARD_WRITE_TOOLS": "ask",
        }
        replica_processes.append(
            ReplicaProcess(free_port(), env, ("-c", HASTY) if index == 2 else ("-m", "toolyard"))
        )
    await asyncio.gather(*(replica.start() for replica in replica_processes))
    yield replica_processes
    await asyncio.gather(*(replica.stop() for replica in replica_processes))


def read_question(reply: Reply) -> tuple[str, str]:
    """The name of the one question, and the state."""
    assert reply.result["resultType"] == "input_required", reply.answer
    (name,) = reply.result["inputRequests"]
    return name, reply.result["requestState"]


async def kill(replica: ReplicaProcess) -> None:
    process, replica.process = replica.process, None
    assert process is not None
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.wait, 20)
    assert process.stdout is not None
    process.stdout.close()


async def test_each_round_of_a_call_is_taken_by_any_replica(
    replicas: list[ReplicaProcess], http: aiohttp.ClientSession
) -> None:
    clients = [ModernClient(http, f"{replica.url}/mcp", FORMS) for replica in replicas]

    async def again(place: int, tool: str, before: Reply, answer: Any) -> Reply:
        name, state = read_question(before)
        return await clients[place].call(tool, inputResponses={name: answer}, requestState=state)

    # A legacy server: the call waits at the first, and is answered through the second.
    first = await clients[0].call("old_ask")
    retry_reply = await clients[1].call("old_ask", inputResponses={}, requestState=read_question(first)[1])
    assert read_question(retry_reply)[0] == read_question(first)[0]
    final_text = await again(1, "old_ask", retry_reply, ANN)
    assert json.loads(final_text.text) == ANN

    # A modern server, and an approval before it asks: nobody waits anywhere.
    reply = await clients[0].call("new_give")
    for place, answer in ((1, {"action": "accept"}), (2, ANN)):
        reply = await again(place, "new_give", reply, answer)
    assert reply.text == "given to Ann"

    # Whoever holds the call is killed.
    first = await clients[1].call("old_ask")
    await kill(replicas[1])
    call_error = await again(2, "old_ask", first, ANN)
    assert call_error.error["data"] == {"kind": "outcome_unknown"}
    assert "it is not known whether it was executed" in call_error.error["message"]
    # The others go on.
    first = await clients[0].call("old_ask")
    assert json.loads((await again(0, "old_ask", first, ANN)).text) == ANN
