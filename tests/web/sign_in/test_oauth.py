"""The way to a provider and back, in the application as it is served."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from yarl import URL

from toolyard.auth.storage import issuer_digest
from toolyard.registry import ChoiceDraft, InstanceDraft, ServerDraft
from toolyard.types.registry import Instance, InstanceState

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter
    from tests.web.conftest import Opening

ROOT = Path(__file__).parents[3]
CALLBACK = "/ui/auth/mcp/callback"


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


@dataclass
class OAuthTeam:
    """Two people, one server with an authorization server, and what their browsers do."""

    local: Any
    program: str
    ann: Any
    bob: Any
    server_id: str

    async def instance(self, person: Any | None = None, **draft: Any) -> Instance:
        user = (person or self.ann).user
        return await self.local.services.registry.create_instance(
            user.id, InstanceDraft(self.server_id, **draft)
        )

    async def state(self, instance: Instance) -> InstanceState:
        stored_instance, _ = await self.local.services.registry.get_instance(instance.user_id, instance.id)
        return stored_instance.state

    async def kept(self, instance: Instance) -> bool:
        return await self.local.services.database.auth.get_grant(instance.grant_key) is not None

    async def press(self, instance: Instance, person: Any | None = None, **options: Any) -> Any:
        """Press Connect on the page."""
        browser = (person or self.ann).browser
        page = await browser.get("/ui/mcp")
        csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert csrf is not None
        return await browser.post(f"/ui/mcp/{instance.id}/connect", data={"csrf": csrf[1]}, **options)

    async def begin(self, instance: Instance, person: Any | None = None) -> str:
        """Press Connect, and take the link of the page that comes."""
        page = await self.press(instance, person)
        assert page.status == 200, page.text
        link = re.search(r'<a [^>]*href="([^"]+)"[^>]*data-navigate', page.text)
        assert link is not None, page.text
        return unescape(link[1])

    async def agree(self, url: str) -> str:
        """Where the provider sends somebody back to who agrees."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(URL(url, encoded=True), allow_redirects=False) as response,
        ):
            assert response.status == 302
            back = URL(response.headers["Location"])
            assert str(back.origin()) == self.local.url
            return back.raw_path_qs

    async def control(self, **settings: Any) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.patch(f"{self.program}/control", json=settings) as response,
        ):
            assert response.status == 200

    async def log(self, kind: str) -> list[Any]:
        async with aiohttp.ClientSession() as session, session.get(f"{self.program}/log") as response:
            return [entry for entry in await response.json() if entry["what"] == kind]


@pytest.fixture
async def oauth_team(open_site: Opening, start_program: ProgramStarter, no_proxies: None) -> OAuthTeam:
    program = start_program(sys.executable, "-I", ROOT / "tests/oauth/authorization_server.py", "{port}").url
    local = await open_site({}, people_mode="password")
    draft = ServerDraft("Guarded", f"{program}/mcp", private_addresses=True, choices=(ChoiceDraft("oauth"),))
    server = await local.services.registry.add_server(draft)
    return OAuthTeam(local, program, await local.person("ann"), await local.person("bob"), server.id)


# It works.


async def test_a_user_signs_in_at_the_provider_and_the_instance_is_ready(oauth_team: OAuthTeam) -> None:
    instance = await oauth_team.instance()
    url = await oauth_team.begin(instance)
    async with aiohttp.ClientSession() as session, session.get(f"{oauth_team.program}/control") as response:
        digest = issuer_digest((await response.json())["as1"])
    assert URL(url).query["redirect_uri"] == f"{oauth_team.local.url}{CALLBACK}/{digest}"
    back = await oauth_team.ann.browser.get(await oauth_team.agree(url))
    assert (back.status, back.headers["location"]) == (303, f"/ui/mcp#i-{instance.id}")
    assert await oauth_team.state(instance) is InstanceState.READY
    cookie = back.headers["set-cookie"].partition(";")[0]
    both = f"{oauth_team.ann.browser.headers['Cookie']}; {cookie}"
    page = await oauth_team.ann.browser.get("/ui/mcp", headers={"Cookie": both})
    assert "is connected" in page.text
    called_response = await oauth_team.ann.token.post(
        f"/api/v1/tools/mcp_{instance.slug}__whoami/call", {"arguments": {}}
    )
    assert (called_response.status, called_response.json["text"]) == (200, "somebody")


async def test_the_page_names_where_it_leads_and_lets_nothing_else_in(oauth_team: OAuthTeam) -> None:
    page = await oauth_team.press(await oauth_team.instance())
    host = URL(oauth_team.program).host
    assert f"Continue to {host}" in page.text
    assert "form-action 'self'" in page.headers["Content-Security-Policy"]
    assert page.headers["Cache-Control"] == "no-store"


async def test_scripts_get_the_address_as_json(oauth_team: OAuthTeam) -> None:
    answer = await oauth_team.press(await oauth_team.instance(), headers={"Accept": "application/json"})
    assert list(answer.json) == ["url"]
    back = await oauth_team.ann.browser.get(await oauth_team.agree(answer.json["url"]))
    assert back.status == 303


async def test_the_audit_log_tells_of_it_without_secrets(oauth_team: OAuthTeam) -> None:
    instance = await oauth_team.instance()
    path = await oauth_team.agree(await oauth_team.begin(instance))
    await oauth_team.ann.browser.get(path)
    await oauth_team.ann.browser.get(path)
    entries = await oauth_team.local.services.database.audit.entries(
        before=None, limit=20, action=None, actor=None
    )
    entries_by_action = {entry.action: entry for entry in entries}
    assert {"instance.connect", "instance.sign_in", "instance.sign_in_failed"} <= set(entries_by_action)
    assert URL(path).query["code"] not in str(entries)


# It does not, and says why.


def problem(page: Any, *words: str) -> str:
    """What a problem page says, where it is one."""
    assert page.headers["content-type"].startswith("text/html")
    page_text = unescape(re.sub(r"<[^>]+>", " ", page.text))
    for each in (*words, "Nothing was changed"):
        assert each in page_text, page_text
    assert 'href="/ui/mcp"' in page.text
    return page_text


async def test_the_provider_says_no(oauth_team: OAuthTeam) -> None:
    instance = await oauth_team.instance()
    url = await oauth_team.begin(instance)
    await oauth_team.control(authorize_error="access_denied")
    page = await oauth_team.ann.browser.get(await oauth_team.agree(url))
    problem(page, "The provider denied access", "access_denied (said no)")
    assert f'action="/ui/mcp/{instance.id}/connect"' in page.text
    assert not await oauth_team.kept(instance)


@pytest.mark.parametrize(
    "query", ["", "?code=c", "?code=c&state=", "?code=c&state=made-up", "?state=%00&code=%ff"]
)
async def test_a_state_that_is_missing_or_unknown(oauth_team: OAuthTeam, query: str) -> None:
    page = await oauth_team.ann.browser.get(CALLBACK + query)
    assert page.status == 400
    problem(page, "Can’t complete this sign-in")
    # It may have been the sign-in to a server of a file, which is not among the instances.
    assert 'href="/ui/"' in page.text.partition('<div class="actions">')[2]
    assert not await oauth_team.log("token")


async def test_a_state_that_was_used(oauth_team: OAuthTeam) -> None:
    instance = await oauth_team.instance()
    path = await oauth_team.agree(await oauth_team.begin(instance))
    assert (await oauth_team.ann.browser.get(path)).status == 303
    page = await oauth_team.ann.browser.get(path)
    assert page.status == 400
    problem(page, "unknown or has already been completed")
    assert await oauth_team.kept(instance)
    assert await oauth_team.state(instance) is InstanceState.READY


async def test_a_parameter_that_is_there_twice(oauth_team: OAuthTeam) -> None:
    path = await oauth_team.agree(await oauth_team.begin(await oauth_team.instance()))
    page = await oauth_team.ann.browser.get(f"{path}&code=other")
    assert page.status == 400
    problem(page, "more than once")
    assert not await oauth_team.log("token")


async def test_another_person_comes_back(oauth_team: OAuthTeam) -> None:
    instance = await oauth_team.instance()
    path = await oauth_team.agree(await oauth_team.begin(instance))
    page = await oauth_team.bob.browser.get(path)
    assert page.status == 400
    problem(page, "started by another user")
    assert instance.name not in page.text
    assert not await oauth_team.kept(instance)
    assert (await oauth_team.ann.browser.get(path)).status == 400


async def test_another_browser_of_the_same_person_comes_back(oauth_team: OAuthTeam) -> None:
    instance = await oauth_team.instance()
    path = await oauth_team.agree(await oauth_team.begin(instance))
    session = await oauth_team.local.services.people.begin_session(oauth_team.ann.user)
    name = oauth_team.ann.browser.headers["Cookie"].partition("=")[0]
    other = oauth_team.local.client(Cookie=f"{name}={session}")
    problem(await other.get(path), "started by another user")
    assert not await oauth_team.kept(instance)


async def test_a_failed_sign_in_stores_nothing(oauth_team: OAuthTeam) -> None:
    path = await oauth_team.agree(await oauth_team.begin(await oauth_team.instance()))
    answer = await oauth_team.local.client().get(path)
    assert answer.status == 303
    assert answer.headers["location"].startswith("/ui/sign-in?next=")


async def test_the_record_was_lost(oauth_team: OAuthTeam) -> None:
    path = await oauth_team.agree(await oauth_team.begin(await oauth_team.instance()))
    await oauth_team.local.services.database.auth.take_pending(URL(path).query["state"])
    problem(await oauth_team.ann.browser.get(path), "unknown or has already been completed")


async def test_the_issuer_is_another(oauth_team: OAuthTeam) -> None:
    instance = await oauth_team.instance()
    await oauth_team.control(iss="https://other.example")
    path = await oauth_team.agree(await oauth_team.begin(instance))
    problem(
        await oauth_team.ann.browser.get(path),
        "another authorization server",
        "before you sign in here again",
    )
    await oauth_team.control(iss="right")
    path = await oauth_team.agree(await oauth_team.begin(instance))
    page = await oauth_team.ann.browser.get(str(URL(path).update_query(iss="https://other.example")))
    problem(page, "another authorization server")
    assert not await oauth_team.log("token")


@pytest.mark.parametrize(
    ("trouble", "status", "words"),
    [
        (503, 502, "HTTP 503"),
        ("drop", 502, "Can’t reach the provider"),
        ("invalid_grant", 424, "invalid_grant"),
        ("invalid_client", 424, "no longer recognizes Toolyard"),
    ],
)
async def test_the_token_endpoint_fails(
    oauth_team: OAuthTeam, trouble: int | str, status: int, words: str
) -> None:
    instance = await oauth_team.instance()
    path = await oauth_team.agree(await oauth_team.begin(instance))
    await oauth_team.control(token_trouble=[trouble])
    page = await oauth_team.ann.browser.get(path)
    assert page.status == status
    problem(page, words)
    assert f'action="/ui/mcp/{instance.id}/connect"' in page.text
    assert not await oauth_team.kept(instance)
    # Trying again is enough.
    assert (
        await oauth_team.ann.browser.get(await oauth_team.agree(await oauth_team.begin(instance)))
    ).status == 303


async def test_the_instance_was_deleted_meanwhile(oauth_team: OAuthTeam) -> None:
    instance = await oauth_team.instance()
    path = await oauth_team.agree(await oauth_team.begin(instance))
    storage = oauth_team.local.services.database.auth
    pending = await storage.take_pending(URL(path).query["state"])
    await oauth_team.local.services.registry.delete_instance(instance.user_id, instance.id)
    await storage.put_pending(pending)
    page = await oauth_team.ann.browser.get(path)
    assert page.status == 404
    problem(page, "Instance not found", "deleted while you were signing in")
    assert not await oauth_team.kept(instance)


# It cannot begin.


async def test_it_cannot_begin_and_says_why(oauth_team: OAuthTeam) -> None:
    instance = await oauth_team.instance()
    await oauth_team.control(metadata={"registration_endpoint": None})
    page = await oauth_team.press(instance)
    problem(page, "Can’t register with the provider", "does not support dynamic client registration")
    assert f'action="/ui/mcp/{instance.id}/connect"' in page.text
    as_json = await oauth_team.press(instance, headers={"Accept": "application/json"})
    assert as_json.headers["content-type"] == "application/problem+json"
    assert "does not support dynamic client registration" in as_json.json["detail"]


async def test_another_persons_instance_cannot_be_connected(oauth_team: OAuthTeam) -> None:
    instance = await oauth_team.instance()
    page = await oauth_team.press(instance, oauth_team.bob)
    assert page.status == 404
    assert not await oauth_team.log("authorize")


async def test_an_instance_without_oauth_cannot_be_connected(oauth_team: OAuthTeam) -> None:
    services = oauth_team.local.services
    server = await services.registry.add_server(ServerDraft("Public", f"{oauth_team.program}/mcp"))
    instance = await services.registry.create_instance(oauth_team.ann.user.id, InstanceDraft(server.id))
    page = await oauth_team.press(instance)
    assert page.status == 422
    problem(page, "does not use OAuth")


async def test_a_form_of_another_page_begins_nothing(oauth_team: OAuthTeam) -> None:
    instance = await oauth_team.instance()
    for data in ({}, {"csrf": "made-up"}):
        answer = await oauth_team.ann.browser.post(f"/ui/mcp/{instance.id}/connect", data=data)
        assert answer.status == 403
    assert not await oauth_team.log("register")


async def test_a_token_begins_nothing(oauth_team: OAuthTeam) -> None:
    instance = await oauth_team.instance()
    assert (await oauth_team.ann.token.post(f"/ui/mcp/{instance.id}/connect")).status == 403


# Who we are.


async def test_each_issuer_has_a_document_once_a_sign_in_was_begun_there(open_site: Opening) -> None:
    local = await open_site({}, public_url="https://yard.example/")
    issuer, client = "https://login.example", local.client(Host="yard.example")
    path = f"/oauth/client/{issuer_digest(issuer)}.json"
    assert (await client.get(path)).status == 404
    await local.services.database.auth.publish_document(issuer)
    answer = await client.get(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["client_id"] == f"https://yard.example{path}"
    assert answer.json["redirect_uris"] == [f"https://yard.example{CALLBACK}/{issuer_digest(issuer)}"]
    assert answer.json["token_endpoint_auth_method"] == "none"


async def test_the_document_of_earlier_versions_stays_for_refreshes_but_begins_no_sign_in(
    open_site: Opening,
) -> None:
    local = await open_site({}, public_url="https://yard.example/")
    answer = await local.client(Host="yard.example").get("/oauth/client.json")
    assert answer.json["client_id"] == "https://yard.example/oauth/client.json"
    assert answer.json["redirect_uris"] == [f"https://yard.example{CALLBACK}/retired"]


@pytest.mark.parametrize("settings", [{}, {"public_url": "http://yard.example"}])
async def test_without_a_public_address_the_client_metadata_document_is_missing(
    open_site: Opening, settings: dict[str, str]
) -> None:
    local = await open_site({}, **settings)
    host = {"Host": "yard.example"} if settings else {}
    assert (await local.client(**host).get("/oauth/client.json")).status == 404
