"""The mix-up attack on the application as it is served: a hostile authorization server sends the browser on
to an honest one, to be given the honest one's code (RFC 9207, section 1; RFC 9700, section 4.4)."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.conftest import ListeningProgram
from tests.oauth.scripted_user import agree
from tests.ports import free_port
from yarl import URL

from toolyard.auth.storage import issuer_digest
from toolyard.registry import ChoiceDraft, InstanceDraft, ServerDraft
from toolyard.types.registry import Instance
from toolyard.web.public_urls import PublicUrls

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter
    from tests.web.conftest import Opening

ROOT = Path(__file__).parents[3]
MODULES = ROOT / ".envs/node/node_modules"


@dataclass
class MixUpSite:
    """One person with an instance at an honest server and another at a hostile one."""

    local: Any
    ann: Any
    issuer: str
    honest: Instance
    hostile: Instance
    hostile_url: str

    async def begin(self, instance: Instance) -> str:
        """Press Connect; the address of the authorization request."""
        page = await self.ann.browser.get("/ui/mcp")
        csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert csrf is not None
        headers = {"Accept": "application/json"}
        answer = await self.ann.browser.post(
            f"/ui/mcp/{instance.id}/connect", data={"csrf": csrf[1]}, headers=headers
        )
        assert answer.status == 200, answer.text
        return answer.json["url"]

    async def agree(self, url: str) -> str:
        """Sign in on the pages that come; the path and query with which the browser returns to Toolyard."""
        back = await agree(url, lambda at: str(at.origin()) == self.local.url)
        return back.raw_path_qs

    async def mislead(self, url: str, **changes: str) -> None:
        """Let the hostile server imitate an authorization request of the honest one's client."""
        names = ("client_id", "redirect_uri", "scope", "resource")
        metadata = {
            "authorization_endpoint": f"{self.issuer}/auth",
            "token_endpoint": f"{self.issuer}/token",
            "query": {name: URL(url).query[name] for name in names} | changes,
        }
        await self.control(metadata)

    async def control(self, settings: dict[str, Any]) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.put(f"{self.hostile_url}/control", json=settings) as response,
        ):
            assert response.status == 200

    async def stolen(self) -> list[dict[str, Any]]:
        """The token requests that the hostile server received."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.hostile_url}/log") as response:
            return await response.json()


@pytest.fixture
async def site(
    open_site: Opening, start_program: ProgramStarter, monkeypatch: pytest.MonkeyPatch
) -> MixUpSite:
    if not (MODULES / "oidc-provider").exists():
        pytest.skip("oidc-provider is not installed; make unit installs it")
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    mcp = free_port()
    issuer = start_program(
        "node", ROOT / "tests/oauth/oidc.mjs", "{port}", MODULES, f"http://127.0.0.1:{mcp}/mcp", "no-iss"
    ).url
    words = [sys.executable, "-I", str(ROOT / "tests/oauth/resource_server.py"), str(mcp), issuer]
    start_program.started.append(ListeningProgram(words, mcp, {}).start())
    hostile_url = start_program(sys.executable, "-I", ROOT / "tests/oauth/hostile_server.py", "{port}").url
    local = await open_site({}, people_mode="password")
    ann = await local.person("ann")

    async def instance(name: str, url: str) -> Instance:
        draft = ServerDraft(name, url, private_addresses=True, choices=(ChoiceDraft("oauth"),))
        server = await local.services.registry.add_server(draft)
        return await local.services.registry.create_instance(ann.user.id, InstanceDraft(server.id, slug=name))

    honest = await instance("honest", f"http://127.0.0.1:{mcp}/mcp")
    hostile = await instance("hostile", f"{hostile_url}/mcp")
    return MixUpSite(local, ann, issuer, honest, hostile, hostile_url)


async def test_the_code_of_an_honest_authorization_server_is_not_sent_to_a_hostile_one(
    site: MixUpSite,
) -> None:
    url = await site.begin(site.honest)
    assert (await site.ann.browser.get(await site.agree(url))).status == 303
    await site.mislead(url)
    back = await site.agree(await site.begin(site.hostile))
    assert "code" in URL(back).query
    page = await site.ann.browser.get(back)
    assert await site.stolen() == []
    assert page.status == 400
    assert "the redirect URI of another authorization server" in unescape(page.text)


async def test_the_code_of_an_honest_client_at_the_shared_address_is_not_sent_either(site: MixUpSite) -> None:
    """A registration of an earlier version stays known to the honest server."""
    url = await site.begin(site.honest)
    redirect_base = str(URL(url).query["redirect_uri"]).rpartition("/")[0]
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{site.issuer}/reg", json=registration(redirect_base)) as response,
    ):
        client_id = (await response.json())["client_id"]
    await site.mislead(url, client_id=client_id, redirect_uri=redirect_base)
    page = await site.ann.browser.get(await site.agree(await site.begin(site.hostile)))
    assert page.status == 400
    assert await site.stolen() == []


def registration(redirect_uri: str) -> dict[str, Any]:
    return {
        "client_name": "Toolyard",
        "redirect_uris": [redirect_uri],
        "application_type": "native",
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
    }


@pytest.mark.parametrize("promised", [True, False])
async def test_a_document_presented_at_an_honest_authorization_server_gets_no_code_to_a_hostile_one(
    site: MixUpSite, promised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The honest one accepts the document of the hostile issuer, as it would that of anybody."""
    urls = site.local.part(PublicUrls)
    ours = replace(
        urls.build_client_identity(site.local.url), document_url=f"{site.local.url}/oauth/client.json"
    )
    monkeypatch.setattr(urls, "build_client_identity", lambda base_url: ours)
    metadata = {
        "client_id_metadata_document_supported": True,
        "authorization_response_iss_parameter_supported": promised,
    }
    await site.control({"metadata": metadata})
    url = await site.begin(site.hostile)
    digest = issuer_digest(site.hostile_url)
    response = await site.ann.browser.get(f"/oauth/client/{digest}.json")
    if not promised:
        # Then the hostile issuer has no document that it could present.
        assert response.status == 404
        return
    assert response.json["redirect_uris"] == [URL(url).query["redirect_uri"]]
    back = URL(URL(url).query["redirect_uri"]).update_query(code="honest", state=URL(url).query["state"])
    page = await site.ann.browser.get(back.raw_path_qs)
    assert page.status == 400
    assert await site.stolen() == []
