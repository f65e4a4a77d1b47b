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
from tests.web.pages.test_server_catalog import known, offer
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
async def office(team: InProcessApp) -> ProposalTeam:
    root = await team.person("root", Role.ADMIN)
    return ProposalTeam(team, root, await team.person("ann"), await team.person("bob"))


async def propose(
    person: SignedInUser, reason: str = "For the release", *, known: str = "", text: str = ""
) -> ScriptlessPage:
    browser = ScriptlessBrowser(person.browser)
    page = await browser.get(f"/ui/proposals/new?known={known}")
    check(page)
    values = {"reason": reason} if known else {"reason": reason, "text": text}
    return await browser.send(page, "/ui/proposals/new", values)


async def proposal_id(person: SignedInUser) -> str:
    return (await person.token.get("/api/v1/proposals")).json["items"][0]["id"]


async def test_an_address_is_proposed_accepted_through_the_form_and_seen_by_its_proposer(
    office: ProposalTeam, start_program: ProgramStarter
) -> None:
    docs: ListeningProgram = start_program(sys.executable, ROOT / "tests/servers/docs_server.py", "{port}")
    page = await propose(office.ann, text=f"{docs.url}/mcp")
    assert (page.path, "was proposed" in page.flash) == ("/ui/proposals", True)
    check(page)
    root = ScriptlessBrowser(office.root.browser)
    page = await root.get("/ui/admin/proposals")
    check(page)
    assert "ann, " in page.text
    (accept,) = [each.attrs["href"] for each in page.root.one("main").all("a") if each.text == "Accept"]
    form = await root.get(accept)
    assert "Proposed by ann" in form.text
    assert form.root.one("input", id="url").attrs["value"] == f"{docs.url}/mcp"
    asked = await root.send(form, "/ui/admin/mcp/new", press=("do", "save"))
    assert "is a private address" in asked.text
    done = await root.send(asked, "/ui/admin/mcp/new", press=("do", "allow-private"))
    (server,) = await office.local.services.registry.list_servers()
    assert done.path == f"/ui/admin/mcp/{server.id}"
    ann = ScriptlessBrowser(office.ann.browser)
    assert "was accepted" in (await ann.get("/ui/")).text
    page = await ann.get("/ui/proposals")
    assert page.root.one("main").all("a", href=f"/ui/mcp/new?server={server.id}")
    assert "was accepted" not in (await ann.get("/ui/")).text, "it was seen"
    assert await office.actions(office.ann) == ["proposal.add"]
    assert await office.actions(office.root) == ["server.add", "proposal.accept"]


async def test_an_admin_declines_with_an_answer(office: ProposalTeam) -> None:
    await propose(office.ann, known="linear")
    root = ScriptlessBrowser(office.root.browser)
    page = await root.get("/ui/admin/proposals")
    at = f"/ui/admin/proposals/{await proposal_id(office.ann)}/decline"
    page = await root.send(page, at, {"answer": "We use Jira <b>"})
    assert "was declined" in page.flash
    assert not page.root.one("main").all("form", action=at)
    page = await ScriptlessBrowser(office.ann.browser).get("/ui/proposals")
    assert "We use Jira <b>" in page.text
    assert (await root.client.post(at.replace("/ui/admin", "/api/v1"), {})).status == 404, "it is decided"
    assert await office.actions(office.root) == ["proposal.decline"]


async def test_people_see_only_their_own_and_admins_those_of_all(office: ProposalTeam) -> None:
    await propose(office.ann, "what ann plans", known="linear")
    await propose(office.bob, "what bob plans", known="sentry")
    page = await ScriptlessBrowser(office.bob.browser).get("/ui/proposals")
    assert ("what bob plans" in page.text, "what ann plans" in page.text) == (True, False)
    assert (await office.bob.browser.get("/ui/admin/proposals")).status == 404
    assert (await office.bob.token.get("/api/v1/proposals?everyone=true")).status == 403
    id_ = await proposal_id(office.ann)
    assert (await office.bob.token.delete(f"/api/v1/proposals/{id_}")).status == 404
    assert (await office.bob.token.post(f"/api/v1/proposals/{id_}/accept", {})).status == 403
    found = (await office.root.token.get("/api/v1/proposals?everyone=true")).json["items"]
    assert {each["proposed_by"] for each in found} == {"ann", "bob"}
    waiting = (await office.root.browser.get("/api/v1/pending")).json["items"]
    assert [(each["kind"], each["page"]) for each in waiting] == [("proposal", "/ui/admin/proposals")] * 2
    assert (await office.bob.browser.get("/api/v1/pending")).json["items"] == []


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"mcpServers": {"x": {"url": "https://x.example/mcp", "headers": {"X-Key": SECRET}}}}),
        f"https://x.example/mcp?api_key={SECRET}",
    ],
)
async def test_keys_in_a_proposal_are_removed_with_a_note(office: ProposalTeam, text: str) -> None:
    page = await propose(office.ann, text=text)
    assert "The key in the entry is not stored." in page.flash
    (made,) = await office.local.services.proposals.list_own(office.ann.user.id)
    assert SECRET not in repr(made)
    assert SECRET not in (await office.root.browser.get("/ui/admin/proposals")).text
    assert SECRET.encode() not in (office.local.services.data_dir / "toolyard.db-wal").read_bytes()


async def test_an_address_with_a_password_is_refused(office: ProposalTeam) -> None:
    page = await propose(office.ann, text="https://ann:hunter22222@x.example/mcp")
    assert page.status == 422
    assert await office.local.services.proposals.list_own(office.ann.user.id) == []


async def test_nothing_contacts_an_address_before_an_admin_adds_it(office: ProposalTeam) -> None:
    connections: list[object] = []
    server = await asyncio.start_server(lambda _, writer: connections.append(writer.close()), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    await propose(office.ann, text=url)
    root = ScriptlessBrowser(office.root.browser)
    await root.get("/ui/admin/proposals")
    form = await root.get(f"/ui/admin/mcp/new?proposal={await proposal_id(office.ann)}")
    assert connections == []
    await root.send(form, "/ui/admin/mcp/new", press=("do", "allow-private"))
    assert connections, "it is contacted when the admin adds it"
    server.close()


async def test_a_reason_is_needed_and_what_is_there_is_said(office: ProposalTeam) -> None:
    assert "Reason is required" in (await propose(office.ann, " ", known="linear")).text
    await office.local.services.registry.add_server(ServerDraft("Mine", "https://x.example/mcp"))
    page = await propose(office.ann, text="https://x.example/mcp/")
    assert (page.status, "'Mine' is already registered with this address" in page.text) == (422, True)
    for text in ("", "ftp://x.example", '{"command": "npx"}'):
        assert (await propose(office.ann, text=text)).status == 422, text


async def test_the_number_of_open_proposals_is_limited(office: ProposalTeam) -> None:
    body = {"catalog_id": "linear", "reason": "x"}
    for _ in range(20):
        assert (await office.ann.token.post("/api/v1/proposals", body)).status == 201
    refused = await office.ann.token.post("/api/v1/proposals", body)
    assert (refused.status, "20 open proposals" in refused.text) == (409, True), refused.text
    assert (await propose(office.ann, known="linear")).status == 409
    assert (await office.ann.token.delete(f"/api/v1/proposals/{await proposal_id(office.ann)}")).status == 204
    assert (await office.ann.token.post("/api/v1/proposals", body)).status == 201
    assert (await office.bob.token.post("/api/v1/proposals", body)).status == 201


async def test_a_program_is_accepted_after_it_was_added_by_command(office: ProposalTeam) -> None:
    program = KnownServer("tool", "Tool", "A tool.", {"command": "npx", "args": ["tool"]}, SignInMethod.NONE)
    offer(office.local, program, known("docs", "https://docs.example/mcp"))
    await propose(office.ann, known="tool")
    await propose(office.bob, known="docs")
    root = ScriptlessBrowser(office.root.browser)
    page = await root.get("/ui/admin/proposals")
    id_ = await proposal_id(office.ann)
    row = page.root.one("li", id=f"p-{id_}")
    assert row.one("pre").text.endswith(" add tool")
    page = await root.press(page, f"/ui/admin/proposals/{id_}/accept")
    assert "was accepted" in page.flash
    filled = await root.get(f"/ui/admin/mcp/new?proposal={await proposal_id(office.bob)}")
    assert filled.root.one("input", id="url").attrs["value"] == "https://docs.example/mcp"
    assert "Tools of docs." in filled.text


async def test_the_catalogue_offers_to_propose_what_is_not_there(office: ProposalTeam) -> None:
    offer(
        office.local, known("docs", "https://docs.example/mcp"), known("other", "https://other.example/mcp")
    )
    server = await office.local.services.registry.add_server(ServerDraft("D", "https://docs.example/mcp"))
    page = await ScriptlessBrowser(office.ann.browser).get("/ui/catalog")
    assert page.root.one("li", id="known-other").all("a", href="/ui/proposals/new?known=other")
    assert page.root.one("li", id="known-docs").all("a", href=f"/ui/mcp/new?server={server.id}")
    for path in ("/ui/mcp", "/ui/mcp/new"):
        assert (await ScriptlessBrowser(office.ann.browser).get(path)).status == 200


async def test_the_api_accepts_with_the_server_that_was_added(office: ProposalTeam) -> None:
    body = {"entry": "https://x.example/mcp", "reason": "For tests"}
    made = (await office.ann.token.post("/api/v1/proposals", body)).json
    assert (made["url"], made["state"], made["proposed_by"]) == ("https://x.example/mcp", "open", "ann")
    server = await office.root.token.post("/api/v1/servers", {"name": "X", "url": made["url"]})
    at = f"/api/v1/proposals/{made['id']}/accept"
    assert (await office.root.token.post(at, {"server_id": "nothing"})).status == 404
    assert (await office.root.token.post(at, {"server_id": server.json["id"]})).status == 204
    (found,) = (await office.ann.token.get("/api/v1/proposals")).json["items"]
    assert (found["state"], found["server_id"]) == ("accepted", server.json["id"])
    for wrong in ({"reason": "x"}, {**body, "catalog_id": "linear"}, {"catalog_id": "linear", "reason": ""}):
        assert (await office.ann.token.post("/api/v1/proposals", wrong)).status == 422, wrong
