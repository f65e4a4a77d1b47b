"""The page Token budget: costs of servers for a person and their agents, and tools that were not used."""

from __future__ import annotations

import time
from typing import Any

from tests.web.conftest import Opening
from tests.web.scriptless_browser import Browser

from toolyard.types.agent import Agent
from toolyard.types.audit import AuditEntry


async def test_costs_are_shown_for_agents_and_only_own_calls_count(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    agent = Agent(id="counter", name="Counter", prompt="Count.", tools=("demo_count",))
    local = await open_site({"demo": demo}, people_mode="password", agents=(agent,))
    bob, eve = await local.person("bob"), await local.person("eve")
    for person, tool in ((bob, "demo/count"), (eve, "demo/weekday")):
        entry = AuditEntry(at=time.time(), action="tool.call", actor=person.user.id, target=tool)
        await local.services.database.audit.write(entry)
    page = await Browser(bob.browser).get("/ui/budget")
    assert page.status == 200
    assert "within the budget of 20000" in page.text
    assert "Counter" in page.text
    (unused,) = page.root.all("details")
    names = [code.text for code in unused.all("code")]
    assert "demo_weekday" in names
    assert "demo_count" not in names
