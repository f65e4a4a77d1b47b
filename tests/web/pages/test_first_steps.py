"""First steps on the home page: each is done by what happened, and people see only theirs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

from sqlalchemy import delete
from tests.web.chat.chat_client import models_at
from tests.web.conftest import HttpClient, InProcessApp, Opening, SignedInUser, environment
from tests.web.pages.test_connect import REQUEST
from tests.web.scriptless_browser import ScriptlessBrowser

from toolyard.store.sql.tables import usage
from toolyard.types.account import Role
from toolyard.types.audit import AuditEntry
from toolyard.types.registry import InstanceDraft, ServerDraft

MCP = {"Accept": "application/json, text/event-stream"}


async def steps(browser: ScriptlessBrowser) -> dict[str, bool]:
    """The steps that the page shows, and whether each is done."""
    page = await browser.get("/ui/")
    assert page.status == 200
    rows = page.root.one("div", id="first-steps").all("li")
    titles = [row.one("p", class_="row-title").text for row in rows]
    return {title.removesuffix(" (done)"): title.endswith(" (done)") for title in titles}


async def call_tool(local: InProcessApp, user_id: str, outcome: str) -> None:
    entry = AuditEntry(time.time(), "tool.call", user_id, target="demo/weekday", outcome=outcome)
    await local.services.database.audit.write(entry)


async def connect_client(client: HttpClient) -> None:
    assert (await client.post("/mcp", REQUEST, headers=MCP)).status == 200


async def test_each_step_of_the_local_user_is_completed_by_its_action(local_site: InProcessApp) -> None:
    me, user = ScriptlessBrowser(local_site.client()), await local_site.services.people.local_user()
    undone = dict.fromkeys(("Try a tool", "Add a server", "Choose a model", "Connect your editor"), False)
    assert await steps(me) == undone
    await call_tool(local_site, user.id, "Unreachable")
    assert await steps(me) == undone, "a call that failed tries nothing"
    await call_tool(local_site, user.id, "ok")
    await local_site.services.registry.add_server(ServerDraft("Docs", "https://docs.example/mcp"))
    await connect_client(local_site.client())
    assert await steps(me) == {**dict.fromkeys(undone, True), "Choose a model": False}


async def test_steps_that_are_all_done_do_not_come_back(open_site: Opening, demo: dict[str, Any]) -> None:
    own = {**demo, "args": ["-c", "pass"]}
    local = await open_site({"demo": demo, "own": own}, models=models_at("http://127.0.0.1:9"))
    me, user = ScriptlessBrowser(local.client()), await local.services.people.local_user()
    expected = {
        "Try a tool": False,
        "Add a server": True,
        "Choose a model": True,
        "Connect your editor": False,
    }
    assert await steps(me) == expected
    await call_tool(local, user.id, "ok")
    await connect_client(local.client())
    assert await steps(me) == {}
    assert "My instances" in (await me.get("/ui/")).text
    await local.services.database.executor.write(lambda connection: connection.execute(delete(usage)))
    assert await steps(me) == {}


async def test_without_any_server_adding_one_comes_first(open_site: Opening) -> None:
    local = await open_site({})
    assert list(await steps(ScriptlessBrowser(local.client())))[:2] == ["Add a server", "Try a tool"]


async def test_people_see_only_their_own_steps(password_site: InProcessApp) -> None:
    root = await password_site.person("root", Role.ADMIN)
    admin = ScriptlessBrowser(root.browser)
    assert (await steps(admin))["Invite people"] is False
    ann = await password_site.person("ann")
    assert (await steps(admin))["Invite people"] is True
    assert await steps(ScriptlessBrowser(ann.browser)) == {"Try a tool": False, "Connect your editor": False}
    server = await password_site.services.registry.add_server(ServerDraft("Docs", "https://docs.example/mcp"))
    await connect_client(root.token)
    expected = {"Try a tool": False, "Connect to a server": False, "Connect your editor": False}
    assert await steps(ScriptlessBrowser(ann.browser)) == expected
    await password_site.services.registry.create_instance(
        ann.user.id, InstanceDraft(server.id, server.choices[0].id)
    )
    await connect_client(ann.token)
    assert await steps(ScriptlessBrowser(ann.browser)) == {
        **dict.fromkeys(expected, True),
        "Try a tool": False,
    }
    await call_tool(password_site, ann.user.id, "ok")
    assert await steps(ScriptlessBrowser(ann.browser)) == {}
    assert (await steps(admin))["Try a tool"] is False


async def test_the_steps_are_hidden_only_for_the_user_who_hid_them(password_site: InProcessApp) -> None:
    people: list[SignedInUser] = [await password_site.person("ann"), await password_site.person("bob")]
    ann, bob = (ScriptlessBrowser(each.browser) for each in people)
    await ann.press(await ann.get("/ui/"), "/ui/first-steps/hide")
    assert await steps(ann) == {}
    assert len(await steps(bob)) == 2


async def test_a_client_of_the_local_command_connects_the_editor(local_site: InProcessApp) -> None:
    program = (sys.executable, "-m", "toolyard", "stdio")
    data = local_site.services.data_dir
    process = await asyncio.create_subprocess_exec(
        *program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(data), cwd=data
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(REQUEST).encode() + b"\n")
    assert "result" in json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
    assert (await steps(ScriptlessBrowser(local_site.client())))["Connect your editor"] is True
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_hidden_steps_can_be_shown_again(password_site: InProcessApp) -> None:
    ann = await password_site.person("ann")
    me = ScriptlessBrowser(ann.browser)
    undone = await steps(me)
    page = await me.get("/ui/")
    assert "Show first steps" not in page.text
    await me.press(page, "/ui/first-steps/hide")
    await me.press(await me.get("/ui/"), "/ui/first-steps/show")
    assert await steps(me) == undone


async def test_steps_that_are_all_done_are_not_shown_again(password_site: InProcessApp) -> None:
    ann = await password_site.person("ann")
    me = ScriptlessBrowser(ann.browser)
    await me.press(await me.get("/ui/"), "/ui/first-steps/hide")
    await connect_client(ann.token)
    await call_tool(password_site, ann.user.id, "ok")
    page = await me.press(await me.get("/ui/"), "/ui/first-steps/show")
    assert page.flash == "You have completed all first steps."
    assert await steps(me) == {}
