"""Navigation and search show the same pages, those that a person may open, and remember what is collapsed."""

from __future__ import annotations

import pytest
from tests.web.conftest import InProcessApp, Opening
from tests.web.scriptless_browser import ScriptlessBrowser, ScriptlessPage

from toolyard.types.account import Role
from toolyard.web.ui.components.navigation import PAGES, Section

ADMIN_PAGES = {each.href for each in PAGES if each.section is Section.ADMIN}


def navigation(page: ScriptlessPage) -> set[str]:
    return {each.attrs["href"] for each in page.root.one("div", id="nav").one("nav").all("a")}


async def list_page_addresses(browser: ScriptlessBrowser) -> set[str]:
    """The addresses of the group "Pages" of the search without a query."""
    page = await browser.get("/ui/search")
    group = next(each for each in page.root.all("h2") if each.text == "Pages")
    return {each.attrs["href"] for each in page.root.one("ul", aria_labelledby=group.attrs["id"]).all("a")}


async def check_pages(browser: ScriptlessBrowser) -> set[str]:
    pages = await list_page_addresses(browser)
    navigation_links = navigation(await browser.get("/ui/"))
    assert navigation_links <= pages
    assert {each.href for each in PAGES if each.section is Section.MAIN} <= navigation_links
    for href in pages:
        assert (await browser.get(href)).status == 200, href
    return pages


async def test_an_admin_of_a_team_finds_all_pages(password_site: InProcessApp) -> None:
    admin = ScriptlessBrowser((await password_site.person("root", Role.ADMIN)).browser)
    assert await check_pages(admin) == {each.href for each in PAGES}


async def test_people_find_no_page_of_admins(password_site: InProcessApp) -> None:
    pages = await check_pages(ScriptlessBrowser((await password_site.person("ann")).browser))
    assert pages == {each.href for each in PAGES} - ADMIN_PAGES


async def test_the_only_user_finds_no_pages_about_several_people(local_site: InProcessApp) -> None:
    pages = await check_pages(ScriptlessBrowser(local_site.client()))
    of_teams = {"/ui/proposals", "/ui/admin/proposals", "/ui/admin/usage"}
    assert pages == {each.href for each in PAGES} - of_teams


async def test_the_catalogue_and_the_documentation_are_in_the_navigation(local_site: InProcessApp) -> None:
    navigation_links = navigation(await ScriptlessBrowser(local_site.client()).get("/ui/"))
    assert {"/ui/catalog", "/ui/docs"} <= navigation_links


@pytest.mark.parametrize(
    ("path", "current"),
    [
        ("/ui/", "Home"),
        ("/ui/docs/guides/agents", "Documentation"),
        ("/ui/proposals/new", "Catalogue"),
        ("/ui/budget", "Usage"),
    ],
)
async def test_the_navigation_marks_the_page_that_another_belongs_to(
    password_site: InProcessApp, path: str, current: str
) -> None:
    page = await ScriptlessBrowser((await password_site.person("ann")).browser).get(path)
    texts = [each.text for each in page.root.one("nav").all("a") if "aria-current" in each.attrs]
    assert texts == [current]


@pytest.mark.parametrize("panel", ["nav", "chats"])
async def test_a_collapsed_panel_is_remembered_without_script(local_site: InProcessApp, panel: str) -> None:
    me = ScriptlessBrowser(local_site.client())
    path = "/ui/chat?run="
    other = {"nav": "chats", "chats": "nav"}[panel]
    for state in ("closed", "open"):
        page = await me.send(await me.get(path), "/ui/panels", press=(panel, state))
        assert page.path == path
        attributes = page.root.one("html").attrs
        assert (attributes[f"data-{panel}"], attributes[f"data-{other}"]) == (state, "open")


async def test_an_invalid_state_of_a_panel_changes_nothing(local_site: InProcessApp) -> None:
    me = ScriptlessBrowser(local_site.client())
    page = await me.send(await me.get("/ui/"), "/ui/panels", press=("nav", 'closed"><script>'))
    assert page.root.one("html").attrs["data-nav"] == "open"


async def test_inviting_is_offered_where_there_are_invite_links(
    local_site: InProcessApp, password_site: InProcessApp, open_site: Opening
) -> None:
    proxy_site = await open_site({}, people_mode="proxy", trusted_proxies=["127.0.0.1"], admins=["root"])
    admin = ScriptlessBrowser((await password_site.person("root", Role.ADMIN)).browser)
    of_proxy = ScriptlessBrowser(proxy_site.client(**{"Remote-User": "root"}))
    alone = ScriptlessBrowser(local_site.client())
    offers = ["Invite a person" in (await each.get("/ui/search")).text for each in (admin, of_proxy, alone)]
    assert offers == [True, False, False]
    assert "whom your proxy lets in" in (await of_proxy.get("/ui/")).root.one("div", id="first-steps").text


async def test_pages_without_content_explain_their_purpose(local_site: InProcessApp) -> None:
    me = ScriptlessBrowser(local_site.client())
    empty = await me.get("/ui/admin/audit")
    assert "No entries yet" in empty.text
    assert not empty.root.one("div", id="list").all("a")
    filtered_page = await me.get("/ui/admin/audit?when=1h")
    assert "No entries match." in filtered_page.text
    assert "toolyard import" in [each.text for each in (await me.get("/ui/")).root.one("main").all("code")]
