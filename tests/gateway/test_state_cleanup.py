"""Instances and chats come and go. What was kept for them goes with them."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.gateway.conftest import LONG_LIST_DEADLINE, ModernClient, passthrough_entry
from tests.journeys.conftest import SDK_SERVER
from tests.reachable import find_keys
from tests.web.conftest import InProcessApp

from toolyard.types.server import Configuration
from toolyard.web.gateway_mount import GatewayMount

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter

FORMS = {"elicitation": {"form": {}}}


@pytest.fixture
async def password_site(open_site: Any) -> InProcessApp:
    return await open_site({}, people_mode="password", list_deadline=LONG_LIST_DEADLINE, write_tools="allow")


def list_kept_places(local: InProcessApp, text: str, *, bounded: bool = True) -> set[str]:
    """Return the keys in memory that begin so."""
    gc.collect()
    return find_keys(local.app.state, text, bounded=bounded)


async def test_nothing_is_kept_of_instances_that_were_deleted(
    password_site: InProcessApp,
    http: aiohttp.ClientSession,
    start_program: ProgramStarter,
    legacy_python: str,
) -> None:
    origin = start_program(legacy_python, SDK_SERVER, "streamable-http", "--port", "{port}")
    admin, ada = await password_site.person("root", "admin"), await password_site.person("ada")
    body = {"name": "S", "url": f"{origin.url}/mcp", "private_addresses": True}
    server = (await admin.token.post("/api/v1/servers", body)).json["id"]
    gateway = password_site.part(GatewayMount).gateway
    head = {"Authorization": f"Bearer {ada.secret}"}
    client = ModernClient(http, f"{password_site.url}/mcp", FORMS, head)
    for number in range(3):
        slug = f"i{number}"
        response = await ada.token.post("/api/v1/instances", {"server_id": server, "slug": slug})
        assert response.status == 201, response.text
        assert f"mcp_{slug}__grow" in str((await client.ask("tools/list")).result)
        # The server says that its list has changed, and the lists are read again.
        assert (await client.call(f"mcp_{slug}__grow")).text == "more"
        for method in ("tools/list", "resources/list", "prompts/list"):
            await client.ask(method)
        shown_response = await ada.token.post(f"/api/v1/tools/mcp_{slug}__grow/call", {"arguments": {}})
        assert shown_response.status == 200, shown_response.text
        await ada.token.get("/api/v1/status")
        assert list_kept_places(password_site, f"@{ada.user.id}/{slug}")
        assert all(gateway.cache_sizes.values())
        assert (await ada.token.delete(f"/api/v1/instances/{response.json['id']}")).status == 204
    await ada.token.get("/api/v1/instances")
    # The last lists of a client are kept until its next request.
    for method in ("tools/list", "resources/list"):
        await client.ask(method)
    assert list_kept_places(password_site, f"@{ada.user.id}/", bounded=False) == set()
    assert not any(gateway.cache_sizes.values())


async def test_nothing_is_kept_of_servers_that_left_the_configuration(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    local = await open_site({"one": passthrough_entry("one")}, list_deadline=LONG_LIST_DEADLINE)
    client = ModernClient(http, f"{local.url}/mcp")
    await client.ask("resources/list")
    await client.ask("tools/list")
    gateway = local.part(GatewayMount).gateway
    assert all(gateway.cache_sizes[name] for name in ("listings", "encoded_tools"))
    await local.services.configured_servers.apply_configuration(Configuration({}))
    assert not any(gateway.cache_sizes.values())


async def test_nothing_is_kept_of_chats_that_were_deleted(open_site: Any) -> None:
    local = await open_site({})
    services = local.services
    for _ in range(3):
        chat = await services.chats.create("local")
        await services.chats.list_tools("local", chat.id)
        assert list_kept_places(local, chat.id)
        await services.chats.delete("local", chat.id)
        await services.chats.list_tools("local", None)
        assert list_kept_places(local, chat.id) == set()
