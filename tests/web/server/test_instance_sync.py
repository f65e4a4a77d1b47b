"""What somebody has, when they change it in two places at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from toolyard.types.registry import InstanceDraft, ServerDraft

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.conftest import ListeningProgram
    from tests.web.conftest import InProcessApp


async def test_a_read_that_began_earlier_does_not_undo_a_later_one(
    local_site: InProcessApp, monkeypatch: Any
) -> None:
    services = local_site.services
    me = (await services.people.local_user()).principal
    server = await services.registry.add_server(ServerDraft("S", "https://s.example/mcp"))
    read, first, may_continue = services.registry.list_instances, asyncio.Event(), asyncio.Event()

    async def slow(user_id: str) -> Any:
        stored_state = await read(user_id)
        if not first.is_set():
            first.set()
            await may_continue.wait()
        return stored_state

    monkeypatch.setattr(services.registry, "list_instances", slow)
    early = asyncio.create_task(services.instances.sync(me))
    await first.wait()
    instance = await services.registry.create_instance(me.id, InstanceDraft(server.id, slug="one"))
    assert len(await services.instances.sync(me)) == 1
    may_continue.set()
    assert await early == []
    assert services.core.manager.find(instance.core_id, me) is not None, "the later read counts"


async def test_instances_are_read_again_only_after_a_change(
    local_site: InProcessApp, monkeypatch: Any, wait_until: Callable[..., Awaitable[None]]
) -> None:
    services, reads = local_site.services, Counter[str]()
    services.instances.max_read_age_seconds = 3_600.0
    signals, read = services.database.signals, services.registry.list_instances
    await wait_until(lambda: signals.is_listening)
    me = (await services.people.local_user()).principal
    server = await services.registry.add_server(ServerDraft("S", "https://s.example/mcp"))

    async def count_and_read(user_id: str) -> Any:
        reads[user_id] += 1
        return await read(user_id)

    monkeypatch.setattr(services.registry, "list_instances", count_and_read)
    assert await services.instances.sync(me) == await services.instances.sync(me) == []
    assert reads[me.id] == 1
    made = await services.registry.create_instance(me.id, InstanceDraft(server.id, slug="one"))
    for _ in range(2):
        assert [each.id for each, _ in await services.instances.sync(me)] == [made.id]
    assert reads[me.id] == 2
    monkeypatch.setattr(signals, "is_listening", False)
    for _ in range(2):
        await services.instances.sync(me)
    assert reads[me.id] == 4, "a change by another process may have been missed"


async def test_instances_that_the_core_has_forgotten_are_read_again(local_site: InProcessApp) -> None:
    services = local_site.services
    me = (await services.people.local_user()).principal
    server = await services.registry.add_server(ServerDraft("S", "https://s.example/mcp"))
    made = await services.registry.create_instance(me.id, InstanceDraft(server.id, slug="one"))
    await services.instances.sync(me)
    await services.core.updates.forget_principal(me.id)
    assert services.core.manager.find(made.core_id, me) is None
    await services.instances.sync(me)
    assert services.core.manager.find(made.core_id, me) is not None


async def test_simultaneous_syncs_end_with_the_stored_state(
    password_site: InProcessApp, hostile_http: ListeningProgram
) -> None:
    admin, ada = await password_site.person("root", "admin"), await password_site.person("ada")
    body = {"name": "S", "url": f"{hostile_http.url}/good/api-holdings", "private_addresses": True}
    server = (await admin.token.post("/api/v1/servers", body)).json["id"]

    async def one(number: int) -> None:
        response = await ada.token.post("/api/v1/instances", {"server_id": server, "slug": f"i{number}"})
        assert response.status == 201, response.text
        place = f"/api/v1/instances/{response.json['id']}"
        assert (await ada.token.get(place)).status == 200
        assert (await ada.token.get("/api/v1/status")).status == 200
        called_response = await ada.token.post(
            f"/api/v1/tools/mcp_i{number}__echo/call", {"arguments": {"text": "x"}}
        )
        assert called_response.status == 200, called_response.text
        if number % 2:
            assert (await ada.token.delete(place)).status == 204

    await asyncio.gather(*(one(number) for number in range(12)))
    await ada.token.get("/api/v1/instances")
    known_servers = password_site.services.core.manager.visible_servers(ada.user.principal)
    assert sorted(known_servers) == sorted(
        ["demo", *(f"@{ada.user.id}/i{number}" for number in range(0, 12, 2))]
    )
