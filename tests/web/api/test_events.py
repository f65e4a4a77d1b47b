"""``/api/v1/events``: changes of status, as they happen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.web.app import AppTimeouts
from toolyard.web.servers.status import StatusUpdates

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.conftest import ListeningProgram
    from tests.web.conftest import InProcessApp, Opening


@asynccontextmanager
async def events(client: Any) -> AsyncIterator[Any]:
    """The events of a stream, one after the other; each within a deadline."""
    async with client.session.get(f"{client.url}/api/v1/events", headers=client.headers) as response:
        assert response.status == 200
        assert response.headers["content-type"].startswith("text/event-stream")

        async def following() -> tuple[str, Any]:
            kind = ""
            while True:
                line = (await asyncio.wait_for(response.content.readline(), 30)).decode().rstrip("\n")
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    return kind, json.loads(line.removeprefix("data: "))

        yield following


async def test_everything_is_sent_first_and_then_changes(local_site: InProcessApp) -> None:
    client = local_site.client()
    async with events(client) as following:
        kind, record = await following()
        assert (kind, record["id"], record["state"]) == ("status", "demo", "idle")
        await local_site.client().get("/api/v1/tools")
        states = set()
        while "ready" not in states:
            states.add((await following())[1]["state"])
        status = (await local_site.client().get("/api/v1/status")).json["items"][0]
        assert set(record) == set(status)


async def test_an_instance_comes_and_goes(
    password_site: InProcessApp, hostile_http: ListeningProgram
) -> None:
    admin, ada = await password_site.person("root", "admin"), await password_site.person("ada")
    body = {"name": "S", "url": f"{hostile_http.url}/good/api-events", "private_addresses": True}
    server = (await admin.token.post("/api/v1/servers", body)).json
    async with events(ada.token) as following, events(admin.token) as others:
        assert (await following())[1]["id"] == "demo"
        assert (await others())[1]["id"] == "demo"
        instance = (
            await ada.token.post("/api/v1/instances", {"server_id": server["id"], "slug": "one"})
        ).json
        kind, record = await following()
        assert (kind, record["kind"], record["id"], record["slug"]) == (
            "status",
            "instance",
            instance["id"],
            "one",
        )
        await ada.token.delete(f"/api/v1/instances/{instance['id']}")
        kind, record = await following()
        assert (kind, record) == ("gone", {"kind": "instance", "id": instance["id"]})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(others(), 1.5)


async def test_a_stream_requires_sign_in(password_site: InProcessApp) -> None:
    assert (await password_site.client().get("/api/v1/events")).status == 401


async def test_a_stream_ends_with_the_sign_in(open_site: Opening, demo: dict[str, Any]) -> None:
    timeouts = AppTimeouts(heartbeat=0.1)
    password_site = await open_site({"demo": demo}, people_mode="password", timeouts=timeouts)
    ada, bob = await password_site.person("ada"), await password_site.person("bob")
    for person in (ada, bob):
        async with person.token.session.get(
            f"{password_site.url}/api/v1/events", headers=person.token.headers
        ) as stream:
            while b"event: status" not in await asyncio.wait_for(stream.content.readline(), 30):
                pass
            for _ in range(5):
                assert await asyncio.wait_for(stream.content.readline(), 30), "it goes on while it may"
            if person is ada:
                await password_site.services.database.accounts.set_disabled(ada.user.id, True)
            else:
                token = (await bob.browser.get("/api/v1/tokens")).json["items"][0]["id"]
                await bob.browser.delete(f"/api/v1/tokens/{token}")
            await asyncio.wait_for(stream.content.read(), 30)


async def test_without_listeners_the_status_is_not_computed(
    local_site: InProcessApp, wait_until: Callable[..., Awaitable[None]]
) -> None:
    live = local_site.part(StatusUpdates)
    async with events(local_site.client()) as following:
        await following()
        assert live.is_polling
    await wait_until(lambda: not live.is_polling)
