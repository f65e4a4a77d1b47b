"""The pages of agents: who there is, what is wrong with the file, which tools each has, and why not more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.web.pages.test_render import check
from tests.web.scriptless_browser import ScriptlessBrowser

from toolyard.agents.definitions.watch import LoadedAgents, load_agents
from toolyard.types.agent import Agent

if TYPE_CHECKING:
    from tests.web.conftest import Opening

READER = Agent(
    "reader",
    "Reader",
    "reads",
    "Read\n<b>well</b>.",
    "fast",
    0.3,
    ("demo_*", "web_fetch", "!demo_count", "old_*"),
    max_steps=4,
    file="/somewhere/AGENTS.md",
    line=3,
)
LOST_AGENT = Agent("lost", "Lost", bundles=("nothing",), line=9)
HOSTILE = Agent(
    "hostile",
    "<script>alert(1)</script>",
    "\u202egpj.exe",
    "</code><img src=x onerror=alert(1)>",
    tools=("<i>*",),
)


@pytest.fixture
async def local_site(open_site: Opening, demo: dict[str, Any], tmp_path: Path) -> Any:
    return await open_site({"demo": demo}, agents=[READER, LOST_AGENT, HOSTILE], workspace_root=str(tmp_path))


async def test_the_list_has_every_agent_and_a_way_to_it(local_site: Any) -> None:
    browser = ScriptlessBrowser(local_site.client())
    page = await browser.get("/ui/agents")
    check(page)
    rows = [row.text for row in page.root.one("ul", id="agent-list").all("li")]
    assert len(rows) == 3
    assert "reads" in rows[0]
    assert "demo_*, web_fetch, !demo_count, old_*" in rows[0]
    assert "Can’t be used: unknown bundle 'nothing'" in rows[1]
    assert page.root.one("a", href="/ui/agents/reader").text == "Reader"
    assert page.root.one("a", href="/ui/chat?agent=reader").attrs["aria-label"] == "Chat with Reader"
    assert not page.root.all("a", href="/ui/chat?agent=lost")
    assert page.root.one("nav").one("a", href="/ui/agents").attrs["aria-current"] == "page"


async def test_the_list_shows_problems_with_the_tools_of_an_agent(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    typo = Agent("typo", "Typo", tools=("demo_cuont",))
    site = await open_site({"demo": demo}, agents=[typo, Agent("all", "All")])
    browser = ScriptlessBrowser(site.client())
    # Until the server has been listed, the name may exist.
    assert "Unknown tool" not in (await browser.get("/ui/agents")).text
    await site.client().get("/api/v1/tools")
    rows = [row.text for row in (await browser.get("/ui/agents")).root.one("ul", id="agent-list").all("li")]
    assert "Unknown tool 'demo_cuont'. Did you mean 'demo_count'?" in rows[0]
    assert "Has no tools: its patterns match no tool." in rows[0]
    assert "tool 'demo" not in rows[1]


async def test_without_agents_the_page_explains_them(open_site: Opening) -> None:
    empty = await open_site({})
    page = await ScriptlessBrowser(empty.client()).get("/ui/agents")
    check(page)
    assert "No agents yet" in page.text
    assert "which does not exist yet" in page.text


async def test_the_page_says_where_agents_are_loaded_from_only_if_the_file_exists(
    open_site: Opening, tmp_path: Path
) -> None:
    site = await open_site({})
    file = tmp_path / "AGENTS.md"
    site.services.apply_agents(load_agents(file, tmp_path))
    me = ScriptlessBrowser(site.client())
    assert f"the file {file}, which does not exist yet" in (await me.get("/ui/agents")).text
    file.write_text("## A\n---\ndescription: reads\n---\n")
    assert f"are loaded from {file}" in (await me.get("/ui/agents")).text


async def test_a_broken_file_is_told_with_its_lines_to_admins_alone(
    open_site: Opening, tmp_path: Path
) -> None:
    team = await open_site({}, people_mode="password", agents=[READER])
    file = tmp_path / "AGENTS.md"
    file.write_text("## A\n---\ntools: all\nmodell: x\n---\n")
    services = team.services
    services.apply_agents(load_agents(file, tmp_path, services.config.loaded_agents))
    root, ada = await team.person("root", "admin"), await team.person("ada")
    page_text = await ScriptlessBrowser(root.browser).get("/ui/agents")
    check(page_text)
    assert "AGENTS.md has errors" in page_text.text
    assert "Line 3, A.tools" in page_text.text
    assert "Reader" in page_text.text
    others = await ScriptlessBrowser(ada.browser).get("/ui/agents")
    check(others)
    assert "cannot be used" not in others.text
    assert str(file) not in others.text
    services.apply_agents(LoadedAgents(file, (LOST_AGENT,)))
    assert "Reader" not in (await ScriptlessBrowser(ada.browser).get("/ui/agents")).text


async def test_an_agents_page_has_its_prompt_and_its_tools_by_server(local_site: Any) -> None:
    browser = ScriptlessBrowser(local_site.client())
    first = await browser.get("/ui/agents/reader")
    check(first)
    assert "Read <b>well</b>." in first.text
    assert "temperature 0.3" in first.text
    assert "At most 4" in first.text
    assert "/somewhere/AGENTS.md:3" in first.text
    assert first.root.one("section", id="tools").attrs["data-load"] == "/ui/agents/reader/tools"

    page = await browser.get("/ui/agents/reader/tools")
    check(page)
    demo, native = page.root.one("section", id="tools").all("section")
    assert [group.one("span", class_="kind").attrs["class"] for group in (demo, native)] == [
        "kind mcp",
        "kind native",
    ]
    assert demo.one("h3").text.strip() == "demo"
    assert native.one("h3").text.strip() == "Built-in tools"
    assert "web_fetch" in native.all("ul")[0].text
    hidden = native.one("details").text
    assert "view_file" in hidden
    assert "It is not among the tools of this agent." in hidden
    titles = [each.attrs.get("title", "") for each in demo.one("details").all("span")]
    assert any("'!demo_count' is the last pattern of agent 'reader'" in each for each in titles)
    assert "Patterns that match none of your tools" in page.text
    assert "old_*" in page.root.one("section", id="tools").text


async def test_tools_that_an_agent_does_not_choose_are_folded(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    servers = {"demo": demo, "narrow": {**demo, "allowTools": ["nothing"]}}
    site = await open_site(servers, agents=[Agent("fetcher", "Fetcher", tools=("web_fetch",))])
    page = await ScriptlessBrowser(site.client()).get("/ui/agents/fetcher/tools")
    groups = {
        each.one("h3").text.strip(): each for each in page.root.one("section", id="tools").all("section")
    }
    assert "open" not in groups["demo"].one("details").attrs
    # The settings of the server hide them from every agent.
    assert "open" in groups["narrow"].one("details").attrs


async def test_an_agent_that_cannot_be_used_says_why_on_its_page(local_site: Any) -> None:
    browser = ScriptlessBrowser(local_site.client())
    for path in ("/ui/agents/lost", "/ui/agents/lost/tools"):
        page = await browser.get(path)
        check(page)
        assert page.status == 200
        assert "This agent can’t be used" in page.text


async def test_nothing_of_an_agent_is_html(local_site: Any) -> None:
    browser = ScriptlessBrowser(local_site.client())
    for path in ("/ui/agents", "/ui/agents/hostile", "/ui/agents/hostile/tools"):
        page = await browser.get(path)
        check(page)
        assert not [node for node in page.root.all("script") if "alert" in node.text]
        assert not page.root.all("img", src="x")
        assert "\u202e" not in page.text


async def test_an_agent_that_there_is_not_is_a_page_that_says_so(local_site: Any) -> None:
    browser = ScriptlessBrowser(local_site.client())
    for path in ("/ui/agents/nobody", "/ui/agents/nobody/tools", "/ui/agents/%3Cb%3E"):
        page = await browser.get(path)
        assert page.status == 404
        check(page)
