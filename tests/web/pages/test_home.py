"""Home page: what it counts, and the one button that it highlights."""

from __future__ import annotations

from typing import Any

from tests.web.conftest import Opening
from tests.web.scriptless_browser import PageElement, ScriptlessBrowser

from toolyard.types.registry import ChoiceDraft, InstanceDraft, ServerDraft


def primary_links(root: PageElement) -> list[str]:
    return [each.text for each in root.one("main").all("a", class_="primary")]


async def test_the_first_open_step_is_the_one_highlighted_action(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    empty, site = await open_site({}), await open_site({"demo": demo})
    home = await ScriptlessBrowser(empty.client()).get("/ui/")
    assert primary_links(home.root) == ["Open catalogue"]
    # There is nothing to run without a server.
    assert [each.text for each in home.root.one(class_="head").all("a")] == []
    home = await ScriptlessBrowser(site.client()).get("/ui/")
    assert primary_links(home.root) == ["Run a tool"]


async def test_an_idle_server_is_not_counted_among_those_that_need_a_sign_in(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    local = await open_site({"demo": demo})
    me = ScriptlessBrowser(local.client())

    async def tiles() -> dict[str, str]:
        cards = (await me.get("/ui/")).root.one("ul", id="tiles").all("div", class_="tile")
        return {each.one("span").text: each.one("b").text for each in cards}

    assert await tiles() == {"Ready": "0", "Need attention": "0", "Idle": "1", "Disabled": "0"}
    user, registry = await local.services.people.local_user(), local.services.registry
    server = await registry.add_server(
        ServerDraft("Linear", "https://linear.test/mcp", choices=(ChoiceDraft("oauth"),))
    )
    await registry.create_instance(user.id, InstanceDraft(server.id, server.choices[0].id))
    assert (await tiles())["Not connected"] == "1"


async def test_servers_of_files_beyond_the_first_five_are_one_link_away(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    site = await open_site({f"demo{number}": demo for number in range(7)}, people_mode="password")
    ada, root = await site.person("ada"), await site.person("root", "admin")
    home = (await ScriptlessBrowser(root.browser).get("/ui/")).root
    assert home.one(class_="section-more").one("a", href="/ui/admin/mcp").text.endswith("(2 more)")
    assert len(home.all("li", data_state="idle")) == 5
    # Others have no page with all of them.
    home = (await ScriptlessBrowser(ada.browser).get("/ui/")).root
    assert len(home.all("li", data_state="idle")) == 7
