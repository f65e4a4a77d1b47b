"""``/ui/usage``, ``/ui/admin/usage`` and ``/api/v1/usage``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from toolyard.types.account import Right, TokenScope
from toolyard.types.audit import AuditEntry

if TYPE_CHECKING:
    from tests.web.conftest import InProcessApp, SignedInUser


async def record_call(team: InProcessApp, person: SignedInUser, tool: str, outcome: str = "ok") -> None:
    entry = AuditEntry(
        time.time(), "tool.call", person.user.id, target=tool, outcome=outcome, details={"seconds": 1.0}
    )
    await team.services.database.audit.write(entry)


async def test_people_see_their_own_usage_and_admins_that_of_everyone(password_site: InProcessApp) -> None:
    root, ann, bob = [await password_site.person(*each) for each in (("root", "admin"), ("ann",), ("bob",))]
    await record_call(password_site, ann, "github/search")
    await record_call(password_site, ann, f"@{ann.user.id}/gh/find", "tool error")
    await record_call(password_site, bob, "secretive/delete")
    page = (await ann.browser.get("/ui/usage?days=7")).text
    assert "github/search" in page
    assert "gh/find" in page
    assert ann.user.id not in page
    assert "secretive" not in page
    assert (await ann.browser.get("/ui/admin/usage")).status == 404
    everyone = (await root.browser.get("/ui/admin/usage")).text
    assert "secretive/delete" in everyone
    assert "gh/find (ann)" in everyone
    of_bob = (await root.browser.get(f"/ui/admin/usage?person={bob.user.id}")).text
    assert "secretive/delete" in of_bob
    assert "github/search" not in of_bob


async def test_a_small_cost_is_not_shown_as_none(password_site: InProcessApp) -> None:
    ann = await password_site.person("ann")
    details = {"input_tokens": 26, "output_tokens": 3, "cost": 0.0003}
    entry = AuditEntry(time.time(), "model.request", ann.user.id, target="fake-1", details=details)
    await password_site.services.database.audit.write(entry)
    page = (await ann.browser.get("/ui/usage")).text
    assert "<b>$0.0003</b>" in page


async def test_agents_are_shown_by_name_and_deleted_ones_as_deleted(password_site: InProcessApp) -> None:
    root, ann, bob = [await password_site.person(*each) for each in (("root", "admin"), ("ann",), ("bob",))]
    response = await ann.token.post("/api/v1/agents", {"name": "Ann’s Helper", "prompt": "Help."})
    assert response.status == 201, response.text
    for agent in (response.json["id"], "no-more", ""):
        details, at = {"seconds": 1.0, "agent": agent}, time.time()
        for person in (ann, bob):
            entry = AuditEntry(
                at, "tool.call", person.user.id, target="github/search", outcome="ok", details=details
            )
            await password_site.services.database.audit.write(entry)
    for browser, path in ((ann.browser, "/ui/usage"), (root.browser, "/ui/admin/usage")):
        page = (await browser.get(path)).text
        assert "Ann’s Helper" in page
        assert "no-more (deleted)" in page
        assert "No agent" in page
    assert "Ann’s Helper" not in (await bob.browser.get("/ui/usage")).text


async def test_the_api_sums_by_every_group(password_site: InProcessApp) -> None:
    root, ann = await password_site.person("root", "admin"), await password_site.person("ann")
    await record_call(password_site, ann, "github/search", "Unreachable")
    own = (await ann.token.get("/api/v1/usage?group=tool")).json
    (tool,) = own["items"]
    assert (tool["key"], tool["calls"], tool["failures"]) == ("github/search", 1, 1)
    assert (await root.token.get("/api/v1/usage?group=tool")).json["items"] == []
    people = (await root.token.get("/api/v1/usage?group=person&everyone=true")).json
    assert [each["key"] for each in people["items"]] == [ann.user.id]
    assert (await ann.token.get("/api/v1/usage?everyone=true")).status == 403
    assert (await ann.token.get("/api/v1/usage?group=secret")).status == 422


async def test_a_token_for_some_servers_cannot_read_the_usage_of_others(password_site: InProcessApp) -> None:
    limited_client = await password_site.person(
        "ann", "user", TokenScope(frozenset({Right.READ}), servers=("github",))
    )
    assert (await limited_client.token.get("/api/v1/usage")).status == 403
