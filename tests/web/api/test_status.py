"""``/api/v1/status``: BooChat's getMcpServers; and starting a server again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psutil

from toolyard.types.call import Caller
from toolyard.web.servers.status import ServerRecords

if TYPE_CHECKING:
    from tests.web.conftest import InProcessApp, Opening

FIELDS = {
    *("kind", "id", "label", "description", "transport", "trust", "enabled", "state", "reason", "cause"),
    *("hint", "since", "protocol_version", "server_name", "server_version", "tool_count", "token_cost"),
    *(
        "provenance",
        "shared",
        "restarts",
        "next_retry",
        "last_call",
        "pid",
        "processes",
        "stderr",
        "slug",
        "registry_id",
    ),
}


async def status_of(client: Any, server: str) -> Any:
    answer = await client.get("/api/v1/status")
    assert answer.status == 200, answer.text
    return next(each for each in answer.json["items"] if each["id"] == server)


async def test_there_is_one_record_for_each_server_with_everything_about_it(local_site: InProcessApp) -> None:
    client = local_site.client()
    before = await status_of(client, "demo")
    assert set(before) == FIELDS
    assert (before["state"], before["since"], before["tool_count"]) == ("idle", None, None)
    await client.get("/api/v1/tools")
    after = await status_of(client, "demo")
    assert (after["state"], after["tool_count"], after["server_name"]) == ("ready", 3, "Toolyard demo")
    assert after["token_cost"] > 50
    assert after["since"].endswith("Z")
    assert after["last_call"] >= after["since"]
    assert after["protocol_version"] == "2026-07-28"
    assert after["provenance"].endswith("mcp.json:1")
    assert psutil.pid_exists(after["pid"])


async def test_a_failed_server_shows_its_cause_and_last_output(open_site: Opening) -> None:
    words = ["-c", "import sys; sys.exit('no database at hand')"]
    local = await open_site(
        {"bad": {"command": "python3", "args": words}, "off": {"command": "x", "enabled": False}}
    )
    client = local.client()
    await client.get("/api/v1/tools")
    bad = await status_of(client, "bad")
    assert (bad["state"], bad["reason"], bad["enabled"]) == ("failed", "unreachable", True)
    assert "no database at hand" in bad["stderr"]
    assert bad["cause"]
    assert (await status_of(client, "off"))["state"] == "disabled"


async def test_the_file_of_an_invalid_entry_is_shown_to_admins_only(open_site: Opening) -> None:
    local = await open_site({"bad": {"command": 5, "shared": True}}, people_mode="password")
    status_documents = [
        await status_of((await local.person(name, role)).token, "bad")
        for name, role in (("ann", "admin"), ("bob", "user"))
    ]
    assert [(each["state"], each["reason"], each["since"]) for each in status_documents] == [
        ("failed", "invalid_entry", None)
    ] * 2
    assert "mcp.json:1: mcpServers.bad.command" in status_documents[0]["cause"]
    assert "mcp.json" not in status_documents[1]["cause"]
    assert "mcpServers.bad.command" in status_documents[1]["cause"]


async def test_users_do_not_see_paths_of_entries_and_output_of_servers(
    password_site: InProcessApp,
) -> None:
    await password_site.person("root", "admin")
    ada = await password_site.person("ada")
    await ada.token.get("/api/v1/tools")
    record = await status_of(ada.token, "demo")
    assert (record["provenance"], record["pid"], record["stderr"]) == ("file", None, [])
    assert record["state"] == "ready"


async def test_a_call_does_not_cause_a_status_event(local_site: InProcessApp) -> None:
    client, server = local_site.client(), local_site.services.config.configuration.servers["demo"]
    await client.get("/api/v1/tools")
    before = local_site.part(ServerRecords).build_config_record(Caller(), server)
    await client.post("/api/v1/tools/demo_weekday/call", {"arguments": {"date": "2026-07-28"}})
    after = local_site.part(ServerRecords).build_config_record(Caller(), server)
    assert (before.last_call, before) != (after.last_call, after)
    assert before == after


async def test_when_a_shared_server_was_used_by_others_is_for_admins(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    team = await open_site({"demo": {**demo, "shared": True}}, people_mode="password")
    root, ada = await team.person("root", "admin"), await team.person("ada")
    await root.token.get("/api/v1/tools")
    assert (await status_of(root.token, "demo"))["last_call"] is not None
    assert (await status_of(ada.token, "demo"))["last_call"] is None


async def test_each_person_has_a_connection_of_their_own(password_site: InProcessApp) -> None:
    ada, bob = await password_site.person("ada"), await password_site.person("bob")
    await ada.token.get("/api/v1/tools")
    assert (await status_of(ada.token, "demo"))["state"] == "ready"
    assert (await status_of(bob.token, "demo"))["state"] == "idle"


async def test_a_restart_makes_a_new_process(local_site: InProcessApp) -> None:
    client = local_site.client()
    await client.get("/api/v1/tools")
    before = (await status_of(client, "demo"))["pid"]
    answer = await client.post("/api/v1/servers/demo/restart")
    assert answer.status == 200, answer.text
    assert answer.json["state"] == "ready"
    assert answer.json["pid"] not in (None, before)
    assert not psutil.pid_exists(before)
    entries = (await client.get("/api/v1/audit?action=server.restart")).json["items"]
    assert [entry["target"] for entry in entries] == ["demo"]


async def test_only_admins_restart_and_only_existing_servers(password_site: InProcessApp) -> None:
    admin, ada = await password_site.person("root", "admin"), await password_site.person("ada")
    assert (await ada.token.post("/api/v1/servers/demo/restart")).status == 403
    assert (await ada.browser.post("/api/v1/servers/demo/restart")).status == 403
    assert (await admin.token.post("/api/v1/servers/demo/restart")).status == 200
    missing = await admin.token.post("/api/v1/servers/nothing/restart")
    assert missing.status == 404
    assert missing.json["hint"]
