"""Proposals: people ask for a server, an admin decides, and nothing is contacted before."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass

import pytest
from tests.conftest import ListeningProgram, ProgramStarter
from tests.web.conftest import ROOT, InProcessApp, SignedInUser
from tests.web.pages.test_render import check
from tests.web.pages.test_server_catalog import build_known_server, offer
from tests.web.scriptless_browser import ScriptlessBrowser, ScriptlessPage

from toolyard.config.known_servers import KnownServer, SignInMethod
from toolyard.types.account import Role
from toolyard.types.registry import ServerDraft

SECRET = "sk-abcdefghijklmnopqrst"


@dataclass
class ProposalTeam:
    """A team with an admin and two others."""

    local: InProcessApp
    root: SignedInUser
    ann: SignedInUser
    bob: SignedInUser

    async def actions(self, person: SignedInUser) -> list[str]:
        entries = await self.local.services.database.audit.entries(
            before=None, limit=50, action=None, actor=person.user.id
        )
        return [each.action for each in reversed(entries)]


@pytest.fixture
async def proposal_team(password_site: InProcessApp) -> ProposalTeam:
    root = await password_site.person("root", Role.ADMIN)
    return ProposalTeam(
        password_site, root, await password_site.person("ann"), await password_site.person("bob")
    )


async def propose(
    person: SignedInUser, reason: str = "For the release", *, catalog_id: str = "", text: str = ""
) -> ScriptlessPage:
    browser = ScriptlessBrowser(person.browser)
    page = await browser.get(f"/ui/proposals/new?known={catalog_id}")
    check(page)
    values = {"reason": reason} if catalog_id else {"reason": reason, "text": text}
    return await browser.send(page, "/ui/proposals/new", values)


async def proposal_id(person: SignedInUser) -> str:
    return (await person.token.get("/api/v1/proposals")).json["items"][0]["id"]


async def test_an_admin_sees_letters_of_another_alphabet_in_a_host_encoded(
    proposal_team: ProposalTeam,
) -> None:
    await propose(proposal_team.ann, text="https://ex\u0430mple.com/mcp/\u00fc")
    root = ScriptlessBrowser(proposal_team.root.browser)
    page = await root.get("/ui/admin/proposals")
    (accept,) = [each.attrs["href"] for each in page.root.one("main").all("a") if each.text == "Accept"]
    form = await proposal_team.root.browser.get(accept)
    for text in (page.text, form.text):
        assert "https://xn--exmple-4nf.com/mcp/%C3%BC" in text
        assert "ex\u0430mple" not in text


async def test_an_address_is_proposed_accepted_through_the_form_and_seen_by_its_proposer(
    proposal_team: ProposalTeam, start_program: ProgramStarter
) -> None:
    docs: ListeningProgram = start_program(sys.executable, ROOT / "tests/servers/docs_server.py", "{port}")
    page = await propose(proposal_team.ann, text=f"{docs.url}/mcp")
    assert (page.path, "was proposed" in page.flash) == ("/ui/proposals", True)
    check(page)
    root = ScriptlessBrowser(proposal_team.root.browser)
    page = await root.get("/ui/admin/proposals")
    check(page)
    assert "ann, " in page.text
    (accept,) = [each.attrs["href"] for each in page.root.one("main").all("a") if each.text == "Accept"]
    form = await root.get(accept)
    assert "Proposed by ann" in form.text
    assert form.root.one("input", id="url").attrs["value"] == f"{docs.url}/mcp"
    requested_page = await root.send(form, "/ui/admin/mcp/new", press=("do", "save"))
    assert "is a private address" in requested_page.text
    final_page = await root.send(requested_page, "/ui/admin/mcp/new", press=("do", "allow-private"))
    (server,) = await proposal_team.local.services.registry.list_servers()
    assert final_page.path == f"/ui/admin/mcp/{server.id}"
    ann = ScriptlessBrowser(proposal_team.ann.browser)
    assert "was accepted" in (await ann.get("/ui/")).text
    page = await ann.get("/ui/proposals")
    assert page.root.one("main").all("a", href=f"/ui/mcp/new?server={server.id}")
    assert "was accepted" not in (await ann.get("/ui/")).text, "it was seen"
    assert await proposal_team.actions(proposal_team.ann) == ["proposal.add"]
    assert await proposal_team.actions(proposal_team.root) == ["server.add", "proposal.accept"]


async def test_an_admin_declines_with_an_answer(proposal_team: ProposalTeam) -> None:
    await propose(proposal_team.ann, catalog_id="linear")
    root = ScriptlessBrowser(proposal_team.root.browser)
    page = await root.get("/ui/admin/proposals")
    at = f"/ui/admin/proposals/{await proposal_id(proposal_team.ann)}/decline"
    page = await root.send(page, at, {"answer": "We use Jira <b>"})
    assert "was declined" in page.flash
    assert not page.root.one("main").all("form", action=at)
    page = await ScriptlessBrowser(proposal_team.ann.browser).get("/ui/proposals")
    assert "We use Jira <b>" in page.text
    assert (await root.client.post(at.replace("/ui/admin", "/api/v1"), {})).status == 404, "it is decided"
    assert await proposal_team.actions(proposal_team.root) == ["proposal.decline"]


async def test_people_see_only_their_own_and_admins_those_of_all(proposal_team: ProposalTeam) -> None:
    await propose(proposal_team.ann, "what ann plans", catalog_id="linear")
    await propose(proposal_team.bob, "what bob plans", catalog_id="sentry")
    page = await ScriptlessBrowser(proposal_team.bob.browser).get("/ui/proposals")
    assert ("what bob plans" in page.text, "what ann plans" in page.text) == (True, False)
    assert (await proposal_team.bob.browser.get("/ui/admin/proposals")).status == 404
    assert (await proposal_team.bob.token.get("/api/v1/proposals?everyone=true")).status == 403
    id_ = await proposal_id(proposal_team.ann)
    assert (await proposal_team.bob.token.delete(f"/api/v1/proposals/{id_}")).status == 404
    assert (await proposal_team.bob.token.post(f"/api/v1/proposals/{id_}/accept", {})).status == 403
    items = (await proposal_team.root.token.get("/api/v1/proposals?everyone=true")).json["items"]
    assert {each["proposed_by"] for each in items} == {"ann", "bob"}
    pending_items = (await proposal_team.root.browser.get("/api/v1/pending")).json["items"]
    assert [(each["kind"], each["page"]) for each in pending_items] == [
        ("proposal", "/ui/admin/proposals")
    ] * 2
    assert (await proposal_team.bob.browser.get("/api/v1/pending")).json["items"] == []


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"mcpServers": {"x": {"url": "https://x.example/mcp", "headers": {"X-Key": SECRET}}}}),
        f"https://x.example/mcp?api_key={SECRET}",
    ],
)
async def test_keys_in_a_proposal_are_removed_with_a_note(proposal_team: ProposalTeam, text: str) -> None:
    page = await propose(proposal_team.ann, text=text)
    assert "The key in the entry is not stored." in page.flash
    (proposal,) = await proposal_team.local.services.proposals.list_own(proposal_team.ann.user.id)
    assert SECRET not in repr(proposal)
    assert SECRET not in (await proposal_team.root.browser.get("/ui/admin/proposals")).text
    assert SECRET.encode() not in (proposal_team.local.services.data_dir / "toolyard.db-wal").read_bytes()


async def test_an_address_with_a_password_is_refused(proposal_team: ProposalTeam) -> None:
    page = await propose(proposal_team.ann, text="https://ann:hunter22222@x.example/mcp")
    assert page.status == 422
    assert await proposal_team.local.services.proposals.list_own(proposal_team.ann.user.id) == []


async def test_nothing_contacts_an_address_before_an_admin_adds_it(proposal_team: ProposalTeam) -> None:
    connections: list[object] = []
    server = await asyncio.start_server(lambda _, writer: connections.append(writer.close()), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    await propose(proposal_team.ann, text=url)
    root = ScriptlessBrowser(proposal_team.root.browser)
    await root.get("/ui/admin/proposals")
    form = await root.get(f"/ui/admin/mcp/new?proposal={await proposal_id(proposal_team.ann)}")
    assert connections == []
    await root.send(form, "/ui/admin/mcp/new", press=("do", "allow-private"))
    assert connections, "it is contacted when the admin adds it"
    server.close()


async def test_a_reason_is_required_and_existing_servers_are_named(proposal_team: ProposalTeam) -> None:
    assert "Reason is required" in (await propose(proposal_team.ann, " ", catalog_id="linear")).text
    await proposal_team.local.services.registry.add_server(ServerDraft("Mine", "https://x.example/mcp"))
    page = await propose(proposal_team.ann, text="https://x.example/mcp/")
    assert (page.status, "'Mine' is already registered with this address" in page.text) == (422, True)
    for text in ("", "ftp://x.example", '{"command": "npx"}'):
        page = await propose(proposal_team.ann, text=text)
        assert page.status == 422, text
        links = page.root.one("div", class_="alert").all("a")
        assert [each.attrs["href"] for each in links] == ["#text"], text


async def test_the_number_of_open_proposals_is_limited(proposal_team: ProposalTeam) -> None:
    body = {"catalog_id": "linear", "reason": "x"}
    for _ in range(20):
        assert (await proposal_team.ann.token.post("/api/v1/proposals", body)).status == 201
    response = await proposal_team.ann.token.post("/api/v1/proposals", body)
    assert (response.status, "20 open proposals" in response.text) == (409, True), response.text
    assert (await propose(proposal_team.ann, catalog_id="linear")).status == 409
    assert (
        await proposal_team.ann.token.delete(f"/api/v1/proposals/{await proposal_id(proposal_team.ann)}")
    ).status == 204
    assert (await proposal_team.ann.token.post("/api/v1/proposals", body)).status == 201
    assert (await proposal_team.bob.token.post("/api/v1/proposals", body)).status == 201


async def test_a_program_is_accepted_after_it_was_added_by_command(proposal_team: ProposalTeam) -> None:
    program = KnownServer("tool", "Tool", "A tool.", {"command": "npx", "args": ["tool"]}, SignInMethod.NONE)
    offer(proposal_team.local, program, build_known_server("docs", "https://docs.example/mcp"))
    await propose(proposal_team.ann, catalog_id="tool")
    await propose(proposal_team.bob, catalog_id="docs")
    root = ScriptlessBrowser(proposal_team.root.browser)
    page = await root.get("/ui/admin/proposals")
    id_ = await proposal_id(proposal_team.ann)
    row = page.root.one("li", id=f"p-{id_}")
    assert row.one("pre").text.endswith(" add tool")
    page = await root.press(page, f"/ui/admin/proposals/{id_}/accept")
    assert "was accepted" in page.flash
    filled_page = await root.get(f"/ui/admin/mcp/new?proposal={await proposal_id(proposal_team.bob)}")
    assert filled_page.root.one("input", id="url").attrs["value"] == "https://docs.example/mcp"
    assert "Tools of docs." in filled_page.text


async def test_the_catalogue_offers_to_propose_missing_servers(proposal_team: ProposalTeam) -> None:
    offer(
        proposal_team.local,
        build_known_server("docs", "https://docs.example/mcp"),
        build_known_server("other", "https://other.example/mcp"),
    )
    server = await proposal_team.local.services.registry.add_server(
        ServerDraft("D", "https://docs.example/mcp")
    )
    page = await ScriptlessBrowser(proposal_team.ann.browser).get("/ui/catalog")
    assert page.root.one("li", id="known-other").all("a", href="/ui/proposals/new?known=other")
    assert page.root.one("li", id="known-docs").all("a", href=f"/ui/mcp/new?server={server.id}")
    for path in ("/ui/mcp", "/ui/mcp/new"):
        assert (await ScriptlessBrowser(proposal_team.ann.browser).get(path)).status == 200


async def test_the_api_accepts_with_the_server_that_was_added(proposal_team: ProposalTeam) -> None:
    body = {"entry": "https://x.example/mcp", "reason": "For tests"}
    proposal = (await proposal_team.ann.token.post("/api/v1/proposals", body)).json
    assert (proposal["url"], proposal["state"], proposal["proposed_by"]) == (
        "https://x.example/mcp",
        "open",
        "ann",
    )
    server = await proposal_team.root.token.post("/api/v1/servers", {"name": "X", "url": proposal["url"]})
    at = f"/api/v1/proposals/{proposal['id']}/accept"
    assert (await proposal_team.root.token.post(at, {"server_id": "nothing"})).status == 404
    assert (await proposal_team.root.token.post(at, {"server_id": server.json["id"]})).status == 204
    (item,) = (await proposal_team.ann.token.get("/api/v1/proposals")).json["items"]
    assert (item["state"], item["server_id"]) == ("accepted", server.json["id"])
    for wrong in ({"reason": "x"}, {**body, "catalog_id": "linear"}, {"catalog_id": "linear", "reason": ""}):
        assert (await proposal_team.ann.token.post("/api/v1/proposals", wrong)).status == 422, wrong
