"""An admin confirms the issuer that a server names, before its client secret is sent there."""

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
from toolyard.types.registry import RegistryServer

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter
    from tests.web.conftest import Opening

ROOT = Path(__file__).parents[3]
SECRET = "secret-of-the-entry"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


@dataclass
class Honest:
    """The MCP server with two authorization servers of ``tests/oauth/authorization_server.py``."""

    url: str
    issuers: dict[str, str]

    async def control(self, method: str, settings: dict[str, Any]) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"{self.url}/control", json=settings) as response,
        ):
            assert response.status == 200

    async def log(self) -> list[Any]:
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/log") as response:
            return await response.json()


@pytest.fixture
async def honest(start_program: ProgramStarter) -> Honest:
    url = start_program(sys.executable, "-I", ROOT / "tests/oauth/authorization_server.py", "{port}").url
    async with aiohttp.ClientSession() as session, session.get(f"{url}/control") as response:
        issuers = await response.json()
    honest_site = Honest(url, issuers)
    await honest_site.control("PUT", {"entered": {"mine": SECRET}})
    return honest_site


@pytest.fixture
def hostile_url(start_program: ProgramStarter) -> str:
    return start_program(sys.executable, "-I", ROOT / "tests/oauth/hostile_server.py", "{port}").url


@dataclass
class ConfirmIssuerSite:
    local: Any
    root: Any

    async def add(self, url: str, **more: Any) -> RegistryServer:
        choice = ChoiceDraft("oauth", registration="entered", client_id="mine", client_secret=SECRET, **more)
        draft = ServerDraft("Guarded", f"{url}/mcp", private_addresses=True, choices=(choice,))
        return await self.local.services.registry.add_server(draft)

    async def contents(self, server: RegistryServer) -> str:
        page = await self.root.browser.get(f"/ui/admin/mcp/{server.id}/contents")
        assert page.status == 200, page.text
        return unescape(page.text)

    async def press(self, browser: Any, path: str, **fields: str) -> Any:
        page = await browser.get("/ui/account")
        csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert csrf is not None
        return await browser.post(path, data={"csrf": csrf[1], **fields}, headers={"Origin": self.local.url})

    async def stored(self, server: RegistryServer) -> str | None:
        return (await self.local.services.registry.get_server(server.id)).choices[0].issuer

    async def audited(self) -> list[Any]:
        audit_entries = await self.local.services.database.audit.entries(
            before=None, limit=100, action=None, actor=None
        )
        return [each for each in audit_entries if each.action == "server.confirm_issuer"]


@pytest.fixture
async def yard(open_site: Opening) -> ConfirmIssuerSite:
    local = await open_site({}, people_mode="password")
    return ConfirmIssuerSite(local, await local.person("root", "admin"))


def confirm_button(text: str) -> tuple[str, str]:
    """Return the address and the value of the button that confirms."""
    match = re.search(r'formaction="([^"]+)"[^>]*name="issuer" value="([^"]+)"[^>]*>.*Confirm issuer', text)
    assert match is not None, text
    return match[1], match[2]


async def test_the_page_shows_the_issuer_and_a_press_confirms_it(
    yard: ConfirmIssuerSite, honest: Honest
) -> None:
    server, issuer = await yard.add(honest.url), honest.issuers["as1"]
    text = await yard.contents(server)
    assert (
        f"This server names {issuer} as its authorization server. Client secrets are sent there only after"
        " you confirm it." in text
    )
    path, confirm_form = confirm_button(text)
    assert (confirm_form, await yard.stored(server)) == (issuer, None)
    assert (await yard.press(yard.root.browser, path, issuer=confirm_form)).status == 303
    assert await yard.stored(server) == issuer
    [entry] = await yard.audited()
    assert (entry.target, entry.actor, entry.details["issuer"]) == (server.id, yard.root.user.id, issuer)
    assert "Confirm issuer" not in await yard.contents(server)
    # The rest of the entry is as it was, so that people can now sign in with its secret.
    instance = await yard.local.services.registry.create_instance(
        yard.root.user.id, InstanceDraft(server.id, slug="mine")
    )
    page_text = await yard.press(yard.root.browser, f"/ui/mcp/{instance.id}/connect")
    link = re.search(r'<a [^>]*href="([^"]+)"[^>]*data-navigate', page_text.text)
    assert link is not None, page_text.text
    async with (
        aiohttp.ClientSession() as session,
        session.get(URL(unescape(link[1]), encoded=True), allow_redirects=False) as response,
    ):
        back = URL(response.headers["Location"]).raw_path_qs
    assert (await yard.root.browser.get(back)).status == 303
    [token] = [each for each in await honest.log() if each["what"] == "token"]
    assert (token["who"], token["method"]) == ("as1", "client_secret_basic")


async def test_an_issuer_that_changed_since_the_page_was_shown_is_not_stored(
    yard: ConfirmIssuerSite, honest: Honest
) -> None:
    server = await yard.add(honest.url)
    path, confirm_form = confirm_button(await yard.contents(server))
    await honest.control("PATCH", {"servers": ["as2"]})
    answer = await yard.press(yard.root.browser, path, issuer=confirm_form)
    page = await yard.root.browser.get(answer.headers["location"], headers={"Cookie": flash_of(yard, answer)})
    assert f"the server now names {honest.issuers['as2']}; nothing was stored" in unescape(page.text)
    assert await yard.stored(server) is None
    assert await yard.audited() == []


def flash_of(yard: ConfirmIssuerSite, answer: Any) -> str:
    """Return the admin's cookies with the message that a redirect sets."""
    return f"{yard.root.browser.headers['Cookie']}; {answer.headers['set-cookie'].partition(';')[0]}"


async def test_finding_an_issuer_sends_no_secret_to_a_hostile_server(
    yard: ConfirmIssuerSite, hostile_url: str
) -> None:
    server = await yard.add(hostile_url)
    _, confirm_form = confirm_button(await yard.contents(server))
    assert confirm_form == hostile_url
    answer = await yard.root.token.get(f"/api/v1/servers/{server.id}/issuer")
    [item] = answer.json["items"]
    assert item == {"choice_id": server.choices[0].id, "issuer": hostile_url, "error": None}
    # What the admin knows to be right is not what the server names.
    form_values = {"choice_id": server.choices[0].id, "issuer": "https://login.example"}
    refused_response = await yard.root.token.post(f"/api/v1/servers/{server.id}/issuer", form_values)
    assert (refused_response.status, refused_response.json["errors"][0]["field"]) == (422, "issuer")
    assert hostile_url in refused_response.json["errors"][0]["message"]
    assert await yard.stored(server) is None
    async with aiohttp.ClientSession() as session, session.get(f"{hostile_url}/log") as response:
        assert await response.json() == []


async def test_the_api_confirms_an_issuer_for_admins_alone(yard: ConfirmIssuerSite, honest: Honest) -> None:
    server, issuer = await yard.add(honest.url), honest.issuers["as1"]
    path, form_values = (
        f"/api/v1/servers/{server.id}/issuer",
        {"choice_id": server.choices[0].id, "issuer": issuer},
    )
    ann = await yard.local.person("ann")
    assert (await ann.token.post(path, form_values)).status == 403
    assert (await ann.token.get(path)).status == 403
    page = f"/ui/admin/mcp/{server.id}/choices/{server.choices[0].id}/issuer"
    assert (await yard.press(ann.browser, page, issuer=issuer)).status == 404
    assert await yard.stored(server) is None
    answer = await yard.root.token.post(path, form_values)
    assert answer.status == 200, answer.text
    assert answer.json["choices"][0]["issuer"] == issuer
    assert answer.json["choices"][0]["has_client_secret"] is True
    assert [each.details["issuer"] for each in await yard.audited()] == [issuer]
    assert (await yard.root.token.get(path)).json == {"items": []}
    assert (await yard.root.token.post(path, form_values)).status == 200
    other = {**form_values, "issuer": honest.issuers["as2"]}
    assert (await yard.root.token.post(path, other)).status == 422
    assert await yard.stored(server) == issuer


async def test_an_issuer_in_other_letters_cannot_be_confirmed_by_a_press(
    yard: ConfirmIssuerSite, honest: Honest
) -> None:
    server = await yard.add(honest.url)
    # The first letter of the path is Cyrillic.
    places = ["/.well-known/oauth-authorization-server/\u0430cme"]
    await honest.control("PATCH", {"issuer_path": "/\u0430cme", "metadata_places": places})
    text = await yard.contents(server)
    assert "Confirm issuer" not in text
    assert "contains characters outside ASCII" in text


async def test_a_server_that_names_no_issuer_says_why_on_its_page(
    yard: ConfirmIssuerSite, honest: Honest
) -> None:
    server = await yard.add(honest.url)
    await honest.control("PATCH", {"servers": []})
    text = await yard.contents(server)
    assert "Confirm issuer" not in text
    assert "names no authorization server in its metadata" in text
    form_values = {"choice_id": server.choices[0].id, "issuer": honest.issuers["as1"]}
    answer = await yard.root.token.post(f"/api/v1/servers/{server.id}/issuer", form_values)
    assert answer.status == 424, answer.text


# Servers of the operator's files.


def entry(url: str, **oauth: Any) -> dict[str, Any]:
    return {"guarded": {"url": f"{url}/mcp", "oauth": {"clientId": "mine", "clientSecret": SECRET, **oauth}}}


async def file_contents(open_site: Any, config: dict[str, Any]) -> tuple[Any, str]:
    local = await open_site(config, people_mode="password")
    root = await local.person("root", "admin")
    page = await root.browser.get("/ui/admin/mcp/files/guarded/contents")
    assert page.status == 200, page.text
    return local, page.text


async def test_the_page_of_a_file_server_shows_the_line_and_the_redirect_address(
    open_site: Opening, hostile_url: str
) -> None:
    local, text = await file_contents(open_site, entry(hostile_url))
    assert f"This server names {hostile_url} as its authorization server." in unescape(text)
    assert find_copied_text(text, "issuer-line") == f'"issuer": "{hostile_url}"'
    address = f"{local.url}/ui/auth/mcp/callback/{issuer_digest(hostile_url)}"
    assert find_copied_text(text, "redirect-uri") == address
    async with aiohttp.ClientSession() as session, session.get(f"{hostile_url}/log") as response:
        assert await response.json() == []


async def test_a_confirmed_file_server_shows_the_redirect_address_alone(
    open_site: Opening, honest: Honest
) -> None:
    issuer = honest.issuers["as1"]
    local, text = await file_contents(open_site, entry(honest.url, issuer=issuer))
    assert "issuer-line" not in text
    assert (
        find_copied_text(text, "redirect-uri") == f"{local.url}/ui/auth/mcp/callback/{issuer_digest(issuer)}"
    )


async def test_a_file_server_that_signs_in_by_itself_has_no_redirect_address(
    open_site: Opening, honest: Honest
) -> None:
    _, text = await file_contents(open_site, entry(honest.url, grant="client_credentials"))
    assert find_copied_text(text, "issuer-line") == f'"issuer": "{honest.issuers["as1"]}"'
    assert "redirect-uri" not in text
    assert not [each for each in await honest.log() if each["what"] == "token"]


def find_copied_text(text: str, name: str) -> str:
    """Return what the copy button beside a field copies."""
    match = re.search(rf'<input id="{name}"[^>]* value="([^"]*)"[^>]*><button[^>]* data-copy', text)
    assert match is not None, text
    return unescape(match[1])
