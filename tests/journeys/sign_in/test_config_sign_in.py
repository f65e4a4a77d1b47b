"""Two people and one server of the operator's file, in real browsers: each signs in for themself, and out.

The authorization server is ``oidc-provider``, the MCP server is made with the official SDK and asks it about
every token.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect
from tests import prefork
from tests.conftest import ListeningProgram
from tests.journeys.sign_in.test_team_signs_in import MODULES, ROOT, BrowserUser, TeamEnvironment
from tests.ports import free_port

from toolyard.store import Database

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]
NAME = "Guarded"


@pytest.fixture(params=["password", "none"])
def team(
    request: pytest.FixtureRequest, tmp_path: Path, start_program: ProgramStarter
) -> Iterator[TeamEnvironment]:
    """Toolyard with one server in its file, which wants a sign-in, and not one for all."""
    port, mcp = free_port(), free_port()
    url = f"http://localhost:{port}"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TOOLYARD_DATA_DIR": str(tmp_path)}
    env |= {"TOOLYARD_PORT": str(port), "TOOLYARD_PEOPLE_MODE": str(request.param)}
    env["TOOLYARD_PUBLIC_URL"] = url
    entry = {"url": f"http://127.0.0.1:{mcp}/mcp", "label": NAME}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"guarded": entry}}))
    words = [str(MODULES), entry["url"], "dynamic", f"{url}/ui/auth/mcp/callback"]
    issuer = start_program("node", ROOT / "tests/oauth/grants.mjs", "{port}", *words).url
    server = [sys.executable, str(ROOT / "tests/oauth/introspection_server.py"), str(mcp), issuer]
    guarded_program = ListeningProgram(server, mcp, {}).start()
    team = TeamEnvironment("dynamic", url, issuer, entry["url"], tmp_path, env)
    # Where there are no accounts nobody is invited.
    team.invite = "nobody" if request.param == "none" else ""
    try:
        team.start()
        yield team
    finally:
        team.stop()
        guarded_program.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def people(team: TeamEnvironment, chromium: Browser) -> AsyncIterator[list[BrowserUser]]:
    """Two people, each in a browser that knows nothing of the other."""
    browser_users: list[BrowserUser] = []
    for _ in range(2):
        context = await chromium.new_context(base_url=team.url)
        context.set_default_timeout(60_000)
        person = BrowserUser(await context.new_page(), context, team)
        person.page.on("console", person.hear)
        browser_users.append(person)
    yield browser_users


async def call(person: BrowserUser) -> dict[str, Any]:
    """Call the tool as this browser's person."""
    path = "/api/v1/tools/guarded_whoami/call"
    answer = await person.context.request.post(path, data={"arguments": {}})
    return {"status": answer.status, **await answer.json()}


async def open_server(person: BrowserUser) -> None:
    await person.page.goto("/ui/")
    await person.page.get_by_role("link", name=NAME, exact=True).first.click()
    await expect(person.page.get_by_role("heading", name=NAME)).to_be_visible()


async def sign_in(person: BrowserUser, button: str, account: str) -> None:
    """From the page of the server to the provider's own pages, and back."""
    await person.forget_provider()
    page = person.page
    await page.get_by_role("button", name=button, exact=True).click()
    await expect(page).to_have_url(re.compile(re.escape(person.team.issuer)))
    await page.get_by_placeholder("Enter any login").fill(account)
    await page.get_by_placeholder("and password").fill("anything")
    await page.get_by_role("button", name="Sign-in").click()
    await page.get_by_role("button", name="Continue").click()
    await expect(page).to_have_url(f"{person.team.url}/ui/servers/guarded")
    await expect(page.locator("[data-live='config:guarded']")).to_have_attribute("data-state", "ready")


async def token_of(team: TeamEnvironment, key: str) -> str:
    database = await Database.open(team.data, url=None, secret_key=None)
    try:
        grant = await database.auth.get_grant(key)
    finally:
        await database.close()
    assert grant is not None
    return grant.access_token


async def is_good(team: TeamEnvironment, token: str) -> bool:
    """What the provider says of a token."""
    head = {"Authorization": aiohttp.encode_basic_auth("resource", "resource-secret")}
    introspection_url = f"{team.issuer}/token/introspection"
    async with (
        aiohttp.ClientSession(headers=head) as session,
        session.post(introspection_url, data={"token": token}) as response,
    ):
        return (await response.json())["active"]


async def wait_for_revocation(team: TeamEnvironment, token: str) -> None:
    async with asyncio.timeout(30):
        while await is_good(team, token):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("team", ["password"], indirect=True)
async def test_two_people_sign_in_to_one_server_of_the_file(
    team: TeamEnvironment, people: list[BrowserUser]
) -> None:
    admin, ann = people
    await admin.accept_invite(team.invite)
    await admin.page.goto("/ui/admin/people")
    await admin.page.get_by_label("Invite someone").fill("ann")
    await admin.page.get_by_role("button", name="Create invite link").click()
    await ann.accept_invite(await admin.page.get_by_label("Link", exact=True).input_value())
    ann_id = (await (await ann.context.request.get("/api/v1/me")).json())["id"]

    # The server wants a sign-in, and the page of it says so.
    call_text = await call(ann)
    assert (call_text["status"], call_text["type"]) == (424, "urn:toolyard:problem:sign-in-needed")
    await open_server(ann)
    await expect(ann.page.locator("main")).to_contain_text("Press Connect")

    # One signs in; the other is not let in with that.
    await sign_in(ann, "Connect", "ann-there")
    assert (await call(ann))["text"] == "you are ann-there"
    assert (await call(admin))["status"] == 424
    await open_server(admin)
    await sign_in(admin, "Connect", "admin-there")
    assert (await call(admin))["text"] == "you are admin-there"
    assert (await call(ann))["text"] == "you are ann-there"

    # A restart changes nothing.
    team.stop()
    team.start()
    assert (await call(ann))["text"] == "you are ann-there"

    # The provider takes one back; signing in again repairs it, and the other goes on.
    team.revoke("ann-there")
    assert (await call(ann))["status"] == 424
    assert (await call(admin))["text"] == "you are admin-there"
    await open_server(ann)
    await sign_in(ann, "Reconnect", "ann-there")
    assert (await call(ann))["text"] == "you are ann-there"

    # Who signs out leaves nothing behind, not even at the provider.
    token = await token_of(team, f"user:{ann_id}:guarded")
    assert await is_good(team, token)
    await ann.page.get_by_role("button", name="Sign out of server").click()
    await expect(ann.page.get_by_role("button", name="Connect", exact=True)).to_be_visible()
    assert (await call(ann))["status"] == 424
    assert (await call(admin))["text"] == "you are admin-there"
    await wait_for_revocation(team, token)
    assert ann.complaints == []
    assert admin.complaints == []


@pytest.mark.parametrize("team", ["none"], indirect=True)
async def test_alone_the_button_does_the_same_as_the_command(
    team: TeamEnvironment, people: list[BrowserUser]
) -> None:
    me = people[0]
    await me.page.goto("/ui/")
    assert (await call(me))["status"] == 424
    await open_server(me)
    await sign_in(me, "Connect", "me-there")
    assert (await call(me))["text"] == "you are me-there"
    # The command line has the same sign-in, and gives it back.
    token = await token_of(team, "user:local:guarded")
    words = [sys.executable, "-m", "toolyard"]
    for command, cases in (
        (["call", "guarded_whoami"], "you are me-there"),
        (["logout", "guarded"], "signed out of 'guarded'"),
    ):
        result = await asyncio.to_thread(
            prefork.run, [*words, *command], env=team.env, cwd=team.data, timeout=120
        )
        assert cases in result.stdout, result.stderr
    assert not await is_good(team, token)
    assert me.complaints == []
