"""Every page, for admins and for others: it is there, well made, and needs nothing from elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from tests.conftest import ListeningProgram, ProgramStarter
from tests.web.conftest import ROOT, InProcessApp, Opening
from tests.web.scriptless_browser import PageElement, ScriptlessBrowser, ScriptlessPage

from toolyard.types.account import Role
from toolyard.types.registry import ChoiceDraft, InstanceDraft, InstanceState, ServerDraft

WORDS = ROOT / "tests/servers/hostile_markup_server.py"
PAGES = (
    "/ui/",
    "/ui/chat",
    "/ui/chat?q=nothing&run=&tool=demo_weekday",
    "/ui/chat/console",
    "/ui/chat/console?find=weekday",
    "/ui/chat/console?tool=demo_weekday",
    "/ui/chat/{chat}",
    "/ui/chat/{chat}?run=",
    "/ui/chat/{chat}/console",
    "/ui/chat/{chat}/tools",
    "/ui/chat/{chat}/earlier?before=1",
    "/ui/chat/{chat}/rename",
    "/ui/chat/{chat}/delete",
    "/ui/approvals",
    "/ui/mcp",
    "/ui/mcp?q=nothing",
    "/ui/mcp/new",
    "/ui/mcp/new?server={server}",
    "/ui/mcp/{instance}",
    "/ui/mcp/{instance}/tools",
    "/ui/mcp/{instance}/edit",
    "/ui/mcp/{instance}/delete",
    "/ui/mcp/{instance}/tool?name=echo",
    "/ui/mcp/{waiting}",
    "/ui/mcp/{waiting}/edit",
    "/ui/catalog",
    "/ui/catalog?q=git",
    "/ui/proposals",
    "/ui/proposals/new",
    "/ui/proposals/new?known=linear",
    "/ui/tokens",
    "/ui/agents/_new",
    "/ui/agents/_import",
    "/ui/connect",
    "/ui/connect?client=codex&offer=instance%2Fwords",
    "/ui/account",
    "/ui/dev/parts",
)
ADMIN_PAGES = (
    "/ui/admin/mcp",
    "/ui/admin/mcp?q=nothing",
    "/ui/admin/mcp/new",
    "/ui/admin/mcp/{server}",
    "/ui/admin/mcp/{server}/contents",
    "/ui/admin/mcp/{server}/edit",
    "/ui/admin/mcp/{server}/delete",
    "/ui/admin/mcp/files/demo",
    "/ui/admin/mcp/files/demo/contents",
    "/ui/admin/mcp/files/demo/tool?name=weekday",
    "/ui/admin/proposals",
    "/ui/admin/people",
    "/ui/admin/people/{user}/delete",
    "/ui/admin/audit",
    "/ui/admin/audit?action=sign_in&before=5",
)


@dataclass
class SiteWithInstances:
    """A Toolyard with a server, and an instance of it for each of two people."""

    local: InProcessApp
    server: str
    browsers: dict[str, ScriptlessBrowser]
    users: dict[str, str]
    instances: dict[str, tuple[str, str]]
    chats: dict[str, str]

    def path(self, template: str, browser_name: str) -> str:
        instance, pending_instance = self.instances[browser_name]
        other = next(id_ for name, id_ in self.users.items() if name != browser_name)
        return template.format(
            server=self.server,
            instance=instance,
            waiting=pending_instance,
            user=other,
            chat=self.chats[browser_name],
        )


@pytest.fixture
async def site_with_instances(
    password_site: InProcessApp, start_program: ProgramStarter
) -> SiteWithInstances:
    words: ListeningProgram = start_program("python3", WORDS, "{port}")
    registry = password_site.services.registry
    choices = (ChoiceDraft("public"), ChoiceDraft("oauth", client_id="abc", client_secret="s3cret"))
    draft = ServerDraft("Words", f"{words.url}/mcp", private_addresses=True, choices=choices)
    server = await registry.add_server(draft)
    site_with_instances = SiteWithInstances(password_site, server.id, {}, {}, {}, {})
    for name, role in (("ada", Role.ADMIN), ("bob", Role.USER)):
        person = await password_site.person(name, role)
        ready = await registry.create_instance(
            person.user.id, InstanceDraft(server.id, server.choices[0].id, "words", "Words")
        )
        instance = await registry.create_instance(
            person.user.id, InstanceDraft(server.id, server.choices[1].id, "waiting", "Waiting")
        )
        assert instance.state is InstanceState.PENDING
        site_with_instances.browsers[name] = ScriptlessBrowser(person.browser)
        site_with_instances.users[name] = person.user.id
        site_with_instances.instances[name] = (ready.id, instance.id)
        site_with_instances.chats[name] = (
            await password_site.services.chats.create(person.user.id, title=f"Words of {name}")
        ).id
    return site_with_instances


async def test_every_page_is_there_for_an_admin(site_with_instances: SiteWithInstances) -> None:
    for template in (*PAGES, *ADMIN_PAGES):
        page = await site_with_instances.browsers["ada"].get(site_with_instances.path(template, "ada"))
        assert page.status == 200, (template, page.text)
        check(page)


async def test_a_user_has_every_page_but_the_admins(site_with_instances: SiteWithInstances) -> None:
    for template in PAGES:
        page = await site_with_instances.browsers["bob"].get(site_with_instances.path(template, "bob"))
        assert page.status == 200, (template, page.text)
        check(page)
        assert "Registry" not in page.root.one("nav").text
    for template in ADMIN_PAGES:
        page = await site_with_instances.browsers["bob"].get(site_with_instances.path(template, "bob"))
        assert page.status == 404, template
        check(page)


async def test_another_persons_instance_is_not_there(site_with_instances: SiteWithInstances) -> None:
    personal = [each for each in PAGES if "{instance}" in each or "{chat}" in each]
    assert personal
    for template in personal:
        page = await site_with_instances.browsers["bob"].get(site_with_instances.path(template, "ada"))
        assert page.status == 404, template
        assert "Words" not in page.text


async def test_no_form_of_an_admin_works_for_others(site_with_instances: SiteWithInstances) -> None:
    bob, server = site_with_instances.browsers["bob"], site_with_instances.server
    page = await bob.get("/ui/mcp")
    csrf = dict(page.fields(page.root.one("form", id="action-form")))["csrf"]
    for path in (
        "/ui/admin/mcp/new",
        f"/ui/admin/mcp/{server}/edit",
        f"/ui/admin/mcp/{server}/disable",
        f"/ui/admin/mcp/{server}/delete",
        "/ui/admin/mcp/files/demo/restart",
        "/ui/admin/people",
        f"/ui/admin/people/{site_with_instances.users['ada']}/disable",
        f"/ui/admin/people/{site_with_instances.users['ada']}/delete",
        f"/ui/chat/{site_with_instances.chats['ada']}",
        f"/ui/chat/{site_with_instances.chats['ada']}/rename",
        f"/ui/chat/{site_with_instances.chats['ada']}/delete",
        f"/ui/chat/{site_with_instances.chats['ada']}/tools",
        f"/ui/mcp/{site_with_instances.instances['ada'][0]}/delete",
        f"/ui/mcp/{site_with_instances.instances['ada'][0]}/disable",
        f"/ui/mcp/{site_with_instances.instances['ada'][0]}/test",
        f"/ui/mcp/{site_with_instances.instances['ada'][0]}/tools",
        f"/ui/mcp/{site_with_instances.instances['ada'][0]}/edit",
        f"/ui/mcp/{site_with_instances.instances['ada'][0]}/tool?name=echo",
    ):
        answer = await bob.client.ask(
            "POST", path, data={"csrf": csrf, "name": "x"}, headers={"Origin": bob.client.url}
        )
        assert answer.status == 404, path
    assert (await site_with_instances.local.services.registry.get_server(server)).enabled
    assert (
        await site_with_instances.local.services.database.accounts.get_user(site_with_instances.users["ada"])
        is not None
    )


async def test_visitors_are_sent_to_sign_in(site_with_instances: SiteWithInstances) -> None:
    for template in (*PAGES, *ADMIN_PAGES):
        stranger = ScriptlessBrowser(site_with_instances.local.client())
        page = await stranger.get(site_with_instances.path(template, "ada"))
        assert page.path.startswith("/ui/sign-in"), template
        check(page)


@pytest.mark.parametrize("mode", ["none", "password"])
async def test_errors_are_pages_for_people_and_problems_for_programs(open_site: Opening, mode: str) -> None:
    local = await open_site({}, people_mode=mode)
    for path, status in (("/ui/nothing", 404), ("/ui/theme", 405)):
        page = await ScriptlessBrowser(local.client()).get(path)
        assert page.status == status
        assert "OpenAPI" not in page.text
        check(page)
    answer = await local.client().get("/api/v1/nothing")
    assert answer.headers["Content-Type"] == "application/problem+json"


async def test_a_mistake_of_ours_is_a_page_with_an_id(
    local_site: InProcessApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(local_site.services.registry, "list_servers", broken)
    page = await ScriptlessBrowser(local_site.client()).get("/ui/admin/mcp")
    assert page.status == 500
    assert "a mistake" not in page.html
    assert re.search(r"under the id [0-9a-f]{12}", page.text)


async def test_the_root_leads_to_the_home_page(local_site: InProcessApp) -> None:
    for path in ("/", "/ui"):
        assert (await ScriptlessBrowser(local_site.client()).get(path)).path == "/ui/"


async def test_an_empty_page_names_the_next_step(open_site: Opening) -> None:
    local = await open_site({}, people_mode="password")
    admin = ScriptlessBrowser((await local.person("ada", Role.ADMIN)).browser)
    user = ScriptlessBrowser((await local.person("bob")).browser)
    for path, words, way in (
        ("/ui/", "Add a server", "/ui/catalog"),
        ("/ui/mcp", "The registry is empty", "/ui/catalog"),
        ("/ui/mcp/new", "The registry is empty", "/ui/catalog"),
        ("/ui/admin/mcp", "The registry is empty", "/ui/admin/mcp/new"),
        ("/ui/admin/mcp", "No servers from files", "/ui/admin/mcp/new"),
    ):
        page = await admin.get(path)
        assert words in page.text
        assert page.root.one("main").all("a", href=way)
    for path in ("/ui/mcp", "/ui/mcp/new"):
        page = await user.get(path)
        assert "Propose the server that you need" in page.text
    await local.services.registry.add_server(ServerDraft("Docs", "https://docs.example/mcp"))
    for browser in (admin, user):
        page = await browser.get("/ui/")
        assert "Connect to a server" in page.text
        assert page.root.one("main").all("a", href="/ui/mcp/new")


# What is true of every page.


def check(page: ScriptlessPage) -> None:
    """It is a proper page for everybody, of our own."""
    root = page.root
    assert len(root.all("h1")) == 1, page.path
    assert len(root.all("main")) == 1
    assert root.one("html").attrs["lang"] == "en"
    assert root.one("title").text.endswith("Toolyard")
    assert root.all("a", class_="skip", href="#main")
    assert root.one("a", class_="help-link").attrs["href"].startswith("/ui/docs")
    ids = [each.attrs["id"] for each in root.all() if "id" in each.attrs]
    assert len(ids) == len(set(ids)), [each for each in ids if ids.count(each) > 1]
    for each in root.all():
        assert "style" not in each.attrs, f"{page.path}: a style attribute is blocked"
        assert not any(name.startswith("on") for name in each.attrs), f"{page.path}: {each.attrs}"
        for name in ("src", "href", "action", "formaction"):
            address = each.attrs.get(name, "")
            if name == "href" and "nofollow" in each.attrs.get("rel", "").split():
                # A link of somebody else's text, which says so.
                assert address.startswith(("https://", "http://")), address
                continue
            assert not re.match(r"(?i)(https?:)?//|javascript:", address), f"{page.path}: {address}"
    for script in root.all("script"):
        assert re.match(r"/static/[a-z_-]+\.js\?v=", script.attrs["src"])
        assert not script.text
    assert not root.all("style")
    for form in root.all("form"):
        if form.attrs.get("method") == "post":
            assert "csrf" in dict(page.fields(form)), f"{page.path}: {form.attrs}"
    _check_accessible_names(page)
    description_ids = " ".join(each.attrs.get("aria-describedby", "") for each in root.all()).split()
    assert set(description_ids) <= set(ids), f"{page.path}: {set(description_ids) - set(ids)}"


def _check_accessible_names(page: ScriptlessPage) -> None:
    """Whatever can be used has a name."""
    labels = {each.attrs["for"] for each in page.root.all("label") if "for" in each.attrs}
    within = {id(inner) for label in page.root.all("label") for inner in label.all()}
    for each in page.root.all():
        if each.tag in ("select", "textarea", "input") and each.attrs.get("type") != "hidden":
            is_labelled = "aria-label" in each.attrs or each.attrs.get("id") in labels or id(each) in within
            assert is_labelled, f"{page.path}: a field without a label {each.attrs}"
        if each.tag in ("button", "a", "summary"):
            assert each.text or each.attrs.get("aria-label"), f"{page.path}: no name {each.attrs}"
        if each.tag == "img":
            assert "alt" in each.attrs
    for nav in page.root.all("nav"):
        assert _label(nav), f"{page.path}: a nav without a label"


def _label(node: PageElement) -> str:
    return node.attrs.get("aria-label") or node.attrs.get("aria-labelledby", "")
