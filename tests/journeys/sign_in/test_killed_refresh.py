"""`toolyard serve` is killed after a refresh token was used and before the answer is stored.

The authorization server is a real one on loopback, the database SQLite or PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.journeys.test_replicas import KEY, ROOT, Cluster, ReplicaProcess
from tests.ports import free_port
from yarl import URL

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
async def cluster(
    database_url: str | None, tmp_path: Path, start_program: ProgramStarter
) -> AsyncIterator[Cluster]:
    """One process, whose only user is an admin."""
    provider = start_program(sys.executable, "-I", ROOT / "tests/oauth/authorization_server.py", "{port}").url
    port = free_port()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TOOLYARD_DATA_DIR": str(tmp_path),
        "TOOLYARD_SECRET_KEY": KEY,
        "TOOLYARD_PEOPLE_MODE": "proxy",
        "TOOLYARD_TRUSTED_PROXIES": "127.0.0.1",
        "TOOLYARD_ADMINS": "ann",
        "TOOLYARD_PUBLIC_URL": f"http://127.0.0.1:{port}",
    }
    if database_url is not None:
        env["TOOLYARD_DATABASE_URL"] = database_url
    replica = ReplicaProcess(port, env)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        await replica.start()
        try:
            yield Cluster([replica], provider, session)
        finally:
            await replica.stop()


async def sign_in(cluster: Cluster, instance: str) -> None:
    """Sign in to the server of an instance, as a browser does."""
    await cluster.ask(0, "GET", "/ui/mcp")
    status, connect_response = await cluster.ask(0, "POST", f"/api/v1/instances/{instance}/connect")
    assert status == 200, connect_response
    async with cluster.session.get(
        URL(connect_response["url"], encoded=True), allow_redirects=False
    ) as response:
        back = URL(response.headers["Location"], encoded=True)
    status, _ = await cluster.ask(0, "GET", back.raw_path_qs)
    assert status == 303


async def add_instance(cluster: Cluster) -> str:
    draft = {
        "name": "Guarded",
        "url": f"{cluster.provider}/mcp",
        "private_addresses": True,
        "choices": [{"kind": "oauth"}],
    }
    status, server = await cluster.ask(0, "POST", "/api/v1/servers", draft)
    assert status == 201, server
    instance_draft = {"server_id": server["id"], "slug": "work"}
    status, instance = await cluster.ask(0, "POST", "/api/v1/instances", instance_draft)
    assert status == 201, instance
    await sign_in(cluster, instance["id"])
    assert "somebody" in await cluster.whoami(0)
    return str(instance["id"])


async def read_log(cluster: Cluster) -> list[dict[str, Any]]:
    async with cluster.session.get(f"{cluster.provider}/log") as response:
        return list(await response.json())


async def kill_during_refresh(cluster: Cluster) -> None:
    """Kill the process while the authorization server holds its answer back, and start it again."""
    async with cluster.session.post(f"{cluster.provider}/forget?what=access"):
        pass
    await cluster.provider_does(answer_waits=True)
    call = asyncio.create_task(cluster.whoami(0))
    async with asyncio.timeout(60):
        while not any(each["what"] == "answer held" for each in await read_log(cluster)):
            assert not call.done(), call.result()
            await asyncio.sleep(0.02)
    cluster.replicas[0].kill()
    with pytest.raises(aiohttp.ClientError):
        await call
    await cluster.provider_does(answer_waits=False)
    await cluster.replicas[0].start()


async def get_instance(cluster: Cluster, instance: str) -> dict[str, Any]:
    status, instance_response = await cluster.ask(0, "GET", f"/api/v1/instances/{instance}")
    assert status == 200, instance_response
    return dict(instance_response)


async def test_a_grant_of_a_server_that_accepts_the_token_again_still_works(cluster: Cluster) -> None:
    await cluster.provider_does(rotate=False)
    instance = await add_instance(cluster)
    await kill_during_refresh(cluster)
    assert "somebody" in await cluster.whoami(0)
    assert (await get_instance(cluster, instance))["status"]["state"] == "ready"


async def test_a_rotated_token_with_a_lost_answer_asks_for_a_sign_in_with_a_reason(
    cluster: Cluster,
) -> None:
    instance = await add_instance(cluster)
    await kill_during_refresh(cluster)
    assert "the last refresh, at 20" in await cluster.whoami(0)
    status = (await get_instance(cluster, instance))["status"]
    assert status["state"] == "needs_reauth"
    assert "the last refresh, at 20" in status["cause"]
    # The refresh token is used no more: a second use looks like theft to the authorization server.
    assert sum(each["what"] == "reuse" for each in await read_log(cluster)) == 1
    _, page = await cluster.ask(0, "GET", "/ui/mcp")
    assert "Reconnect" in page
    await sign_in(cluster, instance)
    assert "somebody" in await cluster.whoami(0)
    assert (await get_instance(cluster, instance))["status"]["state"] == "ready"
