"""Signing in to a server of the files: each person for themself, on its page, and out again."""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from sqlalchemy import update
from yarl import URL

from toolyard.registry import ChoiceDraft, InstanceDraft, ServerDraft
from toolyard.store.sql.tables import auth_clients, auth_grants
from toolyard.types.account import Principal
from toolyard.types.registry import InstanceState

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter
    from tests.web.conftest import Opening

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


@dataclass
class ConfigSignInSite:
    """A Toolyard whose file has a server that wants a sign-in, and the program that gives it."""

    local: Any
    program: str

    async def press(self, browser: Any, path: str, **options: Any) -> Any:
        """Press a button of a page."""
        page = await browser.get("/ui/servers/guarded")
        csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert csrf is not None, page.text
        return await browser.post(path, data={"csrf": csrf[1]}, **options)

    async def begin(self, browser: Any) -> str:
        page = await self.press(browser, "/ui/servers/guarded/connect")
        assert page.status == 200, page.text
        link = re.search(r'<a [^>]*href="([^"]+)"[^>]*data-navigate', page.text)
        assert link is not None
        return unescape(link[1])

    async def agree(self, url: str, account: str) -> str:
        """Where the provider sends somebody back to who agrees with an account of theirs."""
        async with aiohttp.ClientSession() as session:
            await session.patch(f"{self.program}/control", json={"person": account})
            async with session.get(URL(url, encoded=True), allow_redirects=False) as response:
                assert response.status == 302
                return URL(response.headers["Location"]).raw_path_qs

    async def sign_in(self, browser: Any, account: str) -> Any:
        return await browser.get(await self.agree(await self.begin(browser), account))

    async def revoked(self, count: int) -> None:
        """Wait until so many tokens came back."""
        async with asyncio.timeout(30):
            while len(await self.log("revoke")) < count:
                await asyncio.sleep(0.02)

    async def log(self, kind: str) -> list[Any]:
        async with aiohttp.ClientSession() as session, session.get(f"{self.program}/log") as response:
            return [entry for entry in await response.json() if entry["what"] == kind]


async def whoami(client: Any) -> tuple[int, str]:
    answer = await client.post("/api/v1/tools/guarded_whoami/call", {"arguments": {}})
    return answer.status, answer.json.get("text") or answer.json["type"].rpartition(":")[2]


async def state(client: Any) -> str:
    items = (await client.get("/api/v1/status")).json["items"]
    return next(each["state"] for each in items if each["id"] == "guarded")


def buttons(page: Any) -> list[str]:
    return re.findall(r"formaction=\"/ui/servers/guarded/([a-z-]+)\"", page.text)


@pytest.fixture
def program(start_program: ProgramStarter) -> str:
    return start_program(sys.executable, "-I", ROOT / "tests/oauth/authorization_server.py", "{port}").url


@pytest.fixture
async def site(open_site: Opening, program: str) -> ConfigSignInSite:
    config = {"guarded": {"url": f"{program}/mcp"}}
    return ConfigSignInSite(await open_site(config, people_mode="password"), program)


SIGN_IN = (424, "sign-in-needed")


async def test_one_persons_sign_in_never_serves_another(site: ConfigSignInSite) -> None:
    ann, bob = await site.local.person("ann"), await site.local.person("bob")
    assert await whoami(ann.token) == SIGN_IN
    assert await state(ann.token) == "needs_auth"
    back = await site.sign_in(ann.browser, "ann-there")
    assert (back.status, back.headers["location"]) == (303, "/ui/servers/guarded")
    # Without a further call it is known to work.
    assert await state(ann.token) == "ready"
    assert await whoami(ann.token) == (200, "ann-there")
    assert await whoami(bob.token) == SIGN_IN
    await site.sign_in(bob.browser, "bob-there")
    assert await whoami(bob.token) == (200, "bob-there")
    assert await whoami(ann.token) == (200, "ann-there")


async def test_the_page_has_the_button_that_fits(site: ConfigSignInSite) -> None:
    ann, root = await site.local.person("ann"), await site.local.person("root", "admin")
    # Nobody knows yet that it wants one.
    assert buttons(await ann.browser.get("/ui/servers/guarded")) == []
    await whoami(ann.token)
    page = await ann.browser.get("/ui/servers/guarded")
    assert buttons(page) == ["connect"]
    assert ">Connect<" in page.text
    assert "press connect" in page.text.lower()
    home = await ann.browser.get("/ui/")
    assert 'href="/ui/servers/guarded"' in home.text
    await site.sign_in(ann.browser, "ann-there")
    page = await ann.browser.get("/ui/servers/guarded")
    assert buttons(page) == ["connect", "sign-out"]
    assert ">Reconnect<" in page.text
    # The admin's page speaks of the admin's own sign-in.
    assert buttons(await root.browser.get("/ui/admin/mcp/files/guarded")) == []
    await whoami(root.token)
    assert buttons(await root.browser.get("/ui/admin/mcp/files/guarded")) == ["connect"]


async def test_a_sign_out_leaves_nothing_behind(site: ConfigSignInSite) -> None:
    ann, bob = await site.local.person("ann"), await site.local.person("bob")
    await site.sign_in(ann.browser, "ann-there")
    await site.sign_in(bob.browser, "bob-there")
    sign_out_page = await site.press(ann.browser, "/ui/servers/guarded/sign-out")
    assert sign_out_page.headers["location"] == "/ui/servers/guarded"
    assert await state(ann.token) == "needs_auth"
    assert await whoami(ann.token) == SIGN_IN
    assert await whoami(bob.token) == (200, "bob-there")
    await site.revoked(2)
    entries = await site.local.services.database.audit.entries(before=None, limit=20, action=None, actor=None)
    assert {"server.connect", "server.sign_in", "server.sign_out"} <= {each.action for each in entries}


@pytest.mark.parametrize("how", ["delete", "disable"])
async def test_an_account_that_ends_leaves_nothing_behind_either(site: ConfigSignInSite, how: str) -> None:
    root, ann = await site.local.person("root", "admin"), await site.local.person("ann")
    await site.sign_in(ann.browser, "ann-there")
    place = f"/api/v1/users/{ann.user.id}"
    if how == "delete":
        assert (await root.token.delete(place)).status == 204
    else:
        assert (await root.token.ask("PATCH", place, json={"disabled": True})).status == 200
    await site.revoked(2)


async def test_an_unresponsive_provider_does_not_prevent_the_sign_out(site: ConfigSignInSite) -> None:
    ann = await site.local.person("ann")
    await site.sign_in(ann.browser, "ann-there")
    async with aiohttp.ClientSession() as session:
        await session.patch(f"{site.program}/control", json={"metadata_status": 500})
    await site.press(ann.browser, "/ui/servers/guarded/sign-out")
    assert await whoami(ann.token) == SIGN_IN


async def test_only_the_browser_that_began_can_finish(site: ConfigSignInSite) -> None:
    ann, bob = await site.local.person("ann"), await site.local.person("bob")
    path = await site.agree(await site.begin(ann.browser), "ann-there")
    page = await bob.browser.get(path)
    assert page.status == 400
    assert "started by another user" in page.text
    assert (await ann.browser.get(path)).status == 400
    assert await whoami(ann.token) == await whoami(bob.token) == SIGN_IN


async def test_a_sign_in_that_fails_offers_to_try_again(site: ConfigSignInSite) -> None:
    ann = await site.local.person("ann")
    url = await site.begin(ann.browser)
    async with aiohttp.ClientSession() as session:
        await session.patch(f"{site.program}/control", json={"authorize_error": "access_denied"})
    page = await ann.browser.get(await site.agree(url, "ann-there"))
    assert "The provider denied access" in page.text
    assert 'action="/ui/servers/guarded/connect"' in page.text
    assert await whoami(ann.token) == SIGN_IN


async def test_an_entry_that_leads_elsewhere_meanwhile_gets_no_sign_in(site: ConfigSignInSite) -> None:
    ann, services = await site.local.person("ann"), site.local.services
    path = await site.agree(await site.begin(ann.browser), "ann-there")
    server = services.config.configuration.servers["guarded"]
    moved_server = replace(server, transport=replace(server.transport, url="http://127.0.0.1:9/mcp"))
    await services.configured_servers.apply_configuration(
        replace(services.config.configuration, servers={"guarded": moved_server})
    )
    page = await ann.browser.get(path)
    assert page.status == 400
    assert "changed while you signed in" in page.text
    assert await services.database.auth.get_grant(f"user:{ann.user.id}:guarded") is None


async def test_it_survives_a_restart(open_site: Opening, site: ConfigSignInSite, tmp_path: Path) -> None:
    ann = await site.local.person("ann")
    await site.sign_in(ann.browser, "ann-there")
    grant = await site.local.services.database.auth.get_grant(f"user:{ann.user.id}:guarded")
    assert grant is not None
    # Nothing in memory is needed: another connection reads it from the database.
    await site.local.services.core.manager.close_principal(ann.user.id)
    assert await whoami(ann.token) == (200, "ann-there")


async def test_in_the_mode_for_one_the_same_button_signs_in(open_site: Opening, program: str) -> None:
    site = ConfigSignInSite(await open_site({"guarded": {"url": f"{program}/mcp", "shared": True}}), program)
    page = await site.local.client().get("/ui/servers/guarded")
    browser = site.local.client(Cookie=page.headers["set-cookie"].partition(";")[0])
    await site.sign_in(browser, "me-there")
    assert await whoami(site.local.client()) == (200, "me-there")
    # It is the one that the command line uses.
    assert await site.local.services.database.auth.get_grant("user:local:guarded") is not None


@pytest.mark.parametrize(
    "entry",
    [
        {"shared": True},
        {"headers": {"Authorization": "Bearer x"}},
        {"oauth": {"clientId": "x", "clientSecret": "y", "grant": "client_credentials"}},
        {"enabled": False},
    ],
    ids=str,
)
async def test_a_server_without_sign_in_has_no_button(
    open_site: Opening, program: str, entry: dict[str, Any]
) -> None:
    config = {"guarded": {"url": f"{program}/mcp", **entry}}
    site = ConfigSignInSite(await open_site(config, people_mode="password"), program)
    ann = await site.local.person("ann")
    await whoami(ann.token)
    assert buttons(await ann.browser.get("/ui/servers/guarded")) == []
    page = await site.press(ann.browser, "/ui/servers/guarded/connect")
    assert page.status == 422
    assert not await site.log("authorize")


async def test_scripts_of_pages_begin_and_end_it_by_the_api(site: ConfigSignInSite) -> None:
    ann = await site.local.person("ann")
    response = await ann.token.post("/api/v1/servers/guarded/sign-in")
    assert response.status == 403
    first_response = await ann.browser.post("/api/v1/servers/guarded/sign-in")
    assert first_response.status == 200
    back = await ann.browser.get(await site.agree(first_response.json["url"], "ann-there"))
    assert back.status == 303
    assert await whoami(ann.token) == (200, "ann-there")
    last_response = await ann.browser.post("/api/v1/servers/guarded/sign-out")
    assert (last_response.status, last_response.json["state"]) == (200, "needs_auth")
    for unknown in ("nothing", "@ann/guarded"):
        for action in ("sign-in", "sign-out"):
            answer = await ann.browser.post(f"/api/v1/servers/{unknown.replace('/', '%2F')}/{action}")
            assert answer.status == 404


# Instances.


async def oauth_instance(site: ConfigSignInSite, person: Any) -> Any:
    registry = site.local.services.registry
    draft = ServerDraft(
        "Guarded too", f"{site.program}/mcp", private_addresses=True, choices=(ChoiceDraft("oauth"),)
    )
    server = await registry.add_server(draft)
    instance = await registry.create_instance(person.user.id, InstanceDraft(server.id, slug="too"))
    response = await person.browser.post(f"/api/v1/instances/{instance.id}/connect")
    await person.browser.get(await site.agree(response.json["url"], "ann-there"))
    return instance


@pytest.mark.parametrize("way", ["page", "api"])
async def test_an_instance_that_is_deleted_gives_its_tokens_back(site: ConfigSignInSite, way: str) -> None:
    ann = await site.local.person("ann")
    instance = await oauth_instance(site, ann)
    if way == "page":
        assert (await site.press(ann.browser, f"/ui/mcp/{instance.id}/delete")).status == 303
    else:
        assert (await ann.token.delete(f"/api/v1/instances/{instance.id}")).status == 204
    await site.revoked(2)


@pytest.mark.parametrize("way", ["page", "api"])
async def test_a_server_that_is_deleted_gives_back_the_tokens_of_its_instances(
    site: ConfigSignInSite, way: str
) -> None:
    ann, root = await site.local.person("ann"), await site.local.person("root", "admin")
    server = (await oauth_instance(site, ann)).server_id
    if way == "page":
        assert (await site.press(root.browser, f"/ui/admin/mcp/{server}/delete")).status == 303
    else:
        assert (await root.token.delete(f"/api/v1/servers/{server}")).status == 204
    await site.revoked(2)


async def test_an_instance_that_lacks_scopes_is_not_ready_because_another_tool_works(
    site: ConfigSignInSite,
) -> None:
    ann = await site.local.person("ann")
    instance = await oauth_instance(site, ann)

    async def call(tool: str) -> int:
        return (await ann.token.post(f"/api/v1/tools/mcp_too__{tool}/call", {"arguments": {}})).status

    async def read_instance_state() -> str:
        return (await ann.token.get(f"/api/v1/instances/{instance.id}")).json["status"]["state"]

    assert await call("whoami") == 200
    assert await read_instance_state() == InstanceState.READY
    assert await call("write") == 424
    assert await read_instance_state() == InstanceState.NEEDS_REAUTH
    assert await call("whoami") == 200
    assert await read_instance_state() == InstanceState.NEEDS_REAUTH
    # After the sign-in that asks for them it is.
    response = await ann.browser.post(f"/api/v1/instances/{instance.id}/connect")
    await ann.browser.get(await site.agree(response.json["url"], "ann-there"))
    assert await call("write") == 200
    assert await read_instance_state() == InstanceState.READY


async def damage(site: ConfigSignInSite) -> None:
    """As a disk or a backup does that is not whole."""
    for table in (auth_grants, auth_clients):
        spoiling = update(table).values(body=b"\x01 not what was written")
        await site.local.services.database.executor.write(lambda c, spoiling=spoiling: c.execute(spoiling))


@pytest.mark.parametrize("way", ["again", "out"])
async def test_a_sign_in_that_cannot_be_read_stands_in_nobodys_way(site: ConfigSignInSite, way: str) -> None:
    ann = await site.local.person("ann")
    await site.sign_in(ann.browser, "ann-there")
    await damage(site)
    await site.local.services.core.updates.reconnect("guarded", Principal(ann.user.id, ann.user.name))
    assert await whoami(ann.token) == (502, "unreachable")
    page = await ann.browser.get("/ui/servers/guarded")
    assert (page.status, buttons(page)) == (200, ["connect", "sign-out"])
    if way == "out":
        await site.press(ann.browser, "/ui/servers/guarded/sign-out")
        assert await whoami(ann.token) == SIGN_IN
    await site.sign_in(ann.browser, "ann-again")
    assert await whoami(ann.token) == (200, "ann-again")
