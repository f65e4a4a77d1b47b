"""Instances and chats come and go. What was kept for them goes with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.gateway.conftest import LONG_LIST_DEADLINE, ModernClient, passthrough_entry
from tests.web.conftest import InProcessApp

from toolyard.types.server import Configuration
from toolyard.web.gateway_mount import GatewayMount

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram

FORMS = {"elicitation": {"form": {}}}
CHANGED = "notifications/tools/list_changed"
PLACES = {"changes", "tools", "connections", "states", "gates"}
"""Where an instance is kept whose server lists tools and nothing else."""


@pytest.fixture
async def password_site(open_site: Any) -> InProcessApp:
    return await open_site({}, people_mode="password", list_deadline=LONG_LIST_DEADLINE)


def kept(local: InProcessApp, id: str) -> set[str]:
    """Where anything is kept that names a server whose id begins so."""
    gateway, calls = local.part(GatewayMount).gateway, local.services.core.call_path
    gates: Any = vars(calls)["_policy_cache"]
    places: dict[str, Any] = {
        "changes": gateway.tools_changed_at,
        "tools": vars(gateway)["_encoded_tools"],
        "lists": vars(gateway.listing_cache)["_entries"],
        "connections": vars(vars(gateway.manager)["_client_connections"])["_idle"],
        "states": vars(local.services.instances)["_stored_since_by_server"],
        "gates": [key for each in gates._by_policy.values() for key in each._by_server_and_state],
    }
    names = {
        place: [key if isinstance(key, str) else key[0] for key in keys] for place, keys in places.items()
    }
    return {place for place, ids in names.items() if any(each.startswith(id) for each in ids)}


async def test_nothing_is_kept_of_instances_that_were_deleted(
    password_site: InProcessApp, http: aiohttp.ClientSession, hostile_http: ListeningProgram
) -> None:
    admin, ada = await password_site.person("root", "admin"), await password_site.person("ada")
    body = {"name": "S", "url": f"{hostile_http.url}/good/forgetting?era=legacy", "private_addresses": True}
    server = (await admin.token.post("/api/v1/servers", body)).json["id"]
    head = {"Authorization": f"Bearer {ada.secret}"}
    client = ModernClient(http, f"{password_site.url}/mcp", FORMS, head)
    for number in range(3):
        slug = f"i{number}"
        made = await ada.token.post("/api/v1/instances", {"server_id": server, "slug": slug})
        assert made.status == 201, made.text
        assert f"mcp_{slug}__echo" in str((await client.ask("tools/list")).result)
        assert (await client.call(f"mcp_{slug}__echo", {"text": "x"})).text == "x"
        await client.ask("resources/list")
        shown = await ada.token.post(f"/api/v1/tools/mcp_{slug}__echo/call", {"arguments": {"text": "x"}})
        assert shown.status == 200, shown.text
        await ada.token.get("/api/v1/status")
        password_site.part(GatewayMount).gateway._on_notification(
            f"@{ada.user.id}/{slug}", ada.user.id, CHANGED, {}
        )  # pyright: ignore[reportPrivateUsage]
        assert kept(password_site, f"@{ada.user.id}/") == PLACES
        assert (await ada.token.delete(f"/api/v1/instances/{made.json['id']}")).status == 204
    await ada.token.get("/api/v1/instances")
    assert kept(password_site, f"@{ada.user.id}/") == set()


async def test_nothing_is_kept_of_servers_that_left_the_configuration(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    local = await open_site({"one": passthrough_entry("one")}, list_deadline=LONG_LIST_DEADLINE)
    client = ModernClient(http, f"{local.url}/mcp")
    await client.ask("resources/list")
    await client.ask("tools/list")
    assert {"lists", "tools"} <= kept(local, "one")
    await local.services.configured_servers.apply_configuration(Configuration({}))
    assert kept(local, "one") == set()


async def test_nothing_is_kept_of_chats_that_were_deleted(open_site: Any) -> None:
    services = (await open_site({})).services
    callers: Any = vars(services.chats)["_tool_sets"]._callers
    for _ in range(3):
        chat = await services.chats.create("local")
        await services.chats.list_tools("local", chat.id)
        assert any(key[0] == chat.id for key in callers)
        await services.chats.delete("local", chat.id)
        await services.chats.list_tools("local", None)
        assert [key[0] for key in callers] == [None]
