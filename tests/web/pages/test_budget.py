"""The page Token budget: costs of servers for a person and their agents, and tools that were not used."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.web.conftest import Opening
from tests.web.scriptless_browser import ScriptlessBrowser

from toolyard.types.agent import Agent
from toolyard.types.audit import AuditEntry

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram


async def test_costs_are_shown_for_agents_and_only_own_calls_count(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    agent = Agent(id="counter", name="Counter", prompt="Count.", tools=("demo_count",))
    local = await open_site({"demo": demo}, people_mode="password", agents=(agent,))
    bob, eve = await local.person("bob"), await local.person("eve")
    for person, tool in ((bob, "demo/count"), (eve, "demo/weekday")):
        entry = AuditEntry(at=time.time(), action="tool.call", actor=person.user.id, target=tool)
        await local.services.database.audit.write(entry)
    page = await ScriptlessBrowser(bob.browser).get("/ui/budget")
    assert page.status == 200
    assert "within the budget of 20,000" in page.text
    assert "Counter" in page.text
    (unused_details,) = page.root.all("details")
    names = [code.text for code in unused_details.all("code")]
    assert "demo_weekday" in names
    assert "demo_count" not in names


async def test_an_agent_that_names_an_unknown_tool_is_listed_too(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    agent = Agent(id="counter", name="Counter", tools=("demo_count", "demo_countt"))
    local = await open_site({"demo": demo}, agents=(agent,))
    page = await ScriptlessBrowser(local.client()).get("/ui/budget")
    rows = page.root.one("table", class_="table").all("tr")
    assert [each.text for each in rows[0].all("th")] == ["Server", "Tools", "Tokens", "Unused tools"]
    [row] = page.root.all("table")[1].one("tbody").all("tr")
    tokens, servers = (each.text for each in row.all("td"))
    assert (row.one("th").text, servers) == ("Counter", f"demo ({tokens})")
    assert int(tokens) > 0


async def turn_off_unused_tools(browser: ScriptlessBrowser) -> str:
    """Follow the link of the page, confirm, and return the message."""
    page = await browser.get("/ui/budget")
    (link,) = [each for each in page.root.all("a") if "Turn off unused tools" in each.text]
    confirm = await browser.get(link.attrs["href"])
    return (await browser.send(confirm, confirm.form("/ui/budget/tools"))).flash


async def test_an_admin_turns_off_unused_tools_in_the_configuration_file(
    open_site: Opening, demo: dict[str, Any], tmp_path: Path
) -> None:
    local = await open_site({"demo": demo}, people_mode="password", meta_threshold=1)
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"demo": {**demo, "denyTools": ["x"]}}}))
    config = local.services.config
    config.set_configuration(replace(config.configuration, file=str(file)))
    admin, eve = await local.person("root", "admin"), await local.person("eve")
    audit_entry = AuditEntry(at=time.time(), action="tool.call", actor=eve.user.id, target="demo/weekday")
    await local.services.database.audit.write(audit_entry)
    # What others use is kept, and nobody else can turn off tools for all.
    assert "Turn off unused tools" not in (await ScriptlessBrowser(eve.browser).get("/ui/budget")).text
    assert "1 tool turned off." in await turn_off_unused_tools(ScriptlessBrowser(admin.browser))
    assert json.loads(file.read_text())["mcpServers"]["demo"]["denyTools"] == ["x", "count"]


async def test_a_person_turns_off_unused_tools_of_their_instances(
    open_site: Opening, demo: dict[str, Any], hostile_http: ListeningProgram
) -> None:
    local = await open_site({"demo": demo}, people_mode="password", meta_threshold=1)
    admin, bob = await local.person("root", "admin"), await local.person("bob")
    body = {"name": "S", "url": f"{hostile_http.url}/good/budget", "private_addresses": True}
    server = (await admin.token.post("/api/v1/servers", body)).json["id"]
    instance = (await bob.token.post("/api/v1/instances", {"server_id": server, "slug": "mine"})).json["id"]
    await bob.token.get("/api/v1/tools")
    audit_entry = AuditEntry(at=time.time(), action="tool.call", actor=bob.user.id, target="demo/weekday")
    await local.services.database.audit.write(audit_entry)
    assert "1 tool turned off." in await turn_off_unused_tools(ScriptlessBrowser(bob.browser))
    assert (await bob.token.get(f"/api/v1/instances/{instance}")).json["tool_filter"] == []
    assert "Turn off unused tools" not in (await ScriptlessBrowser(bob.browser).get("/ui/budget")).text
