"""The form of an agent without script: what is ticked, written and wrong, and what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.loop_watch import LoopWatch
from tests.web.pages.test_render import check
from tests.web.scriptless_browser import ScriptlessBrowser, ScriptlessPage

from toolyard.agents.definitions.watch import LoadedAgents
from toolyard.types.agent import Agent, StoredAgent

if TYPE_CHECKING:
    from tests.web.conftest import InProcessApp, Opening

NEW = "/ui/agents/_new"


async def create(browser: ScriptlessBrowser, **values: Any) -> ScriptlessPage:
    """Create an agent; its page, or the form with what is wrong."""
    page = await browser.get(NEW)
    return await browser.send(page, NEW, {"name": "Reader", **values}, ("do", "save"))


async def list_stored_agents(local: InProcessApp) -> list[Agent]:
    return [each.agent for each in await local.services.database.agents.list_agents("local")]


def list_ticked_tools(page: ScriptlessPage) -> list[str]:
    form = page.root.one("form", id="agent-form")
    return [each.attrs["value"] for each in form.all("input", name="tool") if "checked" in each.attrs]


async def test_ticks_come_before_patterns_and_both_are_shown_again(local_site: InProcessApp) -> None:
    browser = ScriptlessBrowser(local_site.client())
    instance = await create(browser, tool=["demo_weekday", "demo_count"], patterns="demo_*\n!demo_count,\n\n")
    assert instance.flash == "“Reader” was created."
    [agent] = await list_stored_agents(local_site)
    assert agent.tools == ("demo_weekday", "demo_count", "demo_*", "!demo_count")
    page = await browser.get(f"{instance.path}/edit")
    check(page)
    assert sorted(list_ticked_tools(page)) == ["demo_count", "demo_weekday"]
    assert page.value("patterns") == "demo_*\n!demo_count"
    await browser.send(page, f"{instance.path}/edit", press=("do", "save"))
    assert await list_stored_agents(local_site) == [
        Agent("reader", "Reader", tools=("demo_count", "demo_weekday", "demo_*", "!demo_count"))
    ]


async def test_a_pattern_before_a_name_keeps_its_place(local_site: InProcessApp) -> None:
    browser = ScriptlessBrowser(local_site.client())
    tools = ["!demo_*", "demo_count"]
    agent = (await browser.client.post("/api/v1/agents", {"name": "A", "tools": tools})).json
    page = await browser.get(f"/ui/agents/{agent['stored_id']}/edit")
    assert (list_ticked_tools(page), page.value("patterns")) == ([], "!demo_*\ndemo_count")
    await browser.send(page, f"/ui/agents/{agent['stored_id']}/edit", press=("do", "save"))
    assert (await list_stored_agents(local_site))[0].tools == ("!demo_*", "demo_count")


@pytest.mark.parametrize(
    ("patterns", "expected_text"),
    [
        ("*", "demo_weekday"),
        ("!*", "No tools"),
        ("nothing_*", "No tool matches: nothing_*"),
        ("demo_forget", "needs approval"),
        ("<i>*", "No tool matches: <i>*"),
    ],
)
async def test_the_preview_shows_the_matching_tools(
    open_site: Opening, demo: dict[str, Any], patterns: str, expected_text: str
) -> None:
    local = await open_site({"demo": demo}, write_tools="ask")
    browser = ScriptlessBrowser(local.client())
    page = await browser.get(NEW)
    shown_page = await browser.send(page, NEW, {"name": "A", "patterns": patterns}, ("do", "preview"))
    check(shown_page)
    assert expected_text in shown_page.root.one("div", id="preview").text
    # A plain name becomes a tick.
    assert [shown_page.value("patterns"), *list_ticked_tools(shown_page)] in ([patterns], ["", patterns])
    assert await list_stored_agents(local) == []


async def test_the_preview_compiles_no_patterns_that_take_long(local_site: InProcessApp) -> None:
    browser = ScriptlessBrowser(local_site.client())
    page = await browser.get(NEW)
    patterns = "\n".join("*a" * 100 + str(number) for number in range(500))
    async with LoopWatch() as watch:
        shown_page = await browser.send(page, NEW, {"name": "A", "patterns": patterns}, ("do", "preview"))
    assert shown_page.value("patterns") == patterns
    assert watch.longest_seconds < 0.15


async def test_the_preview_says_which_rule_hides_a_chosen_tool(local_site: InProcessApp) -> None:
    browser = ScriptlessBrowser(local_site.client())
    page = await browser.get(NEW)
    shown_page = await browser.send(page, NEW, {"name": "A", "tool": ["demo_forget"]}, ("do", "preview"))
    assert "0 of 1" in shown_page.root.one("div", id="preview").text
    assert "can change data" in shown_page.root.one("div", id="preview").one("details").text


async def test_tools_of_a_server_that_went_away_are_kept_until_they_are_unticked(
    local_site: InProcessApp,
) -> None:
    browser = ScriptlessBrowser(local_site.client())
    instance = await create(browser, tool=["gone_tool", "demo_count"])
    page = await browser.get(f"{instance.path}/edit")
    check(page)
    assert "Not available now" in page.text
    assert sorted(list_ticked_tools(page)) == ["demo_count", "gone_tool"]
    await browser.send(page, f"{instance.path}/edit", press=("do", "save"))
    assert set((await list_stored_agents(local_site))[0].tools or ()) == {"demo_count", "gone_tool"}
    page = await browser.get(f"{instance.path}/edit")
    await browser.send(page, f"{instance.path}/edit", {"tool": ["demo_count"]}, ("do", "save"))
    assert (await list_stored_agents(local_site))[0].tools == ("demo_count",)


async def test_a_thousand_ticks_are_saved(local_site: InProcessApp) -> None:
    names = [f"tool_{number}" for number in range(1_000)]
    instance = await create(ScriptlessBrowser(local_site.client()), tool=names)
    assert instance.status == 200
    assert (await list_stored_agents(local_site))[0].tools == tuple(names)
    check(await ScriptlessBrowser(local_site.client()).get(f"{instance.path}/edit"))


@pytest.mark.parametrize(
    ("field", "values", "expected_text"),
    [
        ("name", {"name": " "}, "Name is required."),
        ("name", {"name": "***"}, "Name must contain a letter or a digit."),
        ("name", {"name": "n" * 81}, "Has 81 characters; the maximum is 80."),
        ("prompt", {"prompt": "p" * 1_000_000}, "Has 1,000,000 characters"),
        ("model", {"model": "unknown"}, "unknown model 'unknown'"),
        ("temperature", {"temperature": "hot"}, "Temperature must be a number from 0 to 2."),
        ("max_steps", {"max_steps": "-1"}, "Maximum steps must be a whole number from 1 to 999,999,999."),
    ],
)
async def test_errors_are_shown_beside_their_field(
    local_site: InProcessApp, field: str, values: dict[str, str], expected_text: str
) -> None:
    browser = ScriptlessBrowser(local_site.client())
    page = await create(browser, **{"description": "<b>kept</b>", "starter": ["What now?"], **values})
    assert page.status == 422
    check(page)
    assert expected_text.lower() in page.error(field).lower()
    assert page.value("description") == "<b>kept</b>"
    assert "What now?" in [value for name, value in page.fields(page.root.one("form", id="agent-form"))]
    assert await list_stored_agents(local_site) == []


@pytest.mark.parametrize(
    ("values", "expected_text"),
    [
        ({"patterns": "two words"}, "'two words' is not a valid tool name"),
        ({"starter": ["s" * 2_001]}, "2,001"),
    ],
)
async def test_errors_in_a_list_are_shown_above_the_form(
    local_site: InProcessApp, values: dict[str, Any], expected_text: str
) -> None:
    page = await create(ScriptlessBrowser(local_site.client()), **values)
    assert page.status == 422
    assert expected_text in page.text


async def test_a_name_is_taken_once_also_by_the_file(open_site: Opening, demo: dict[str, Any]) -> None:
    local = await open_site({"demo": demo}, agents=[Agent("filed", "Filed")])
    browser = ScriptlessBrowser(local.client())
    assert (await create(browser, name="Ünïcode ✓ 名前")).status == 200
    for name, cases in (
        ("ünïcode – 名前", "among your own agents"),
        ("FILED", "AGENTS.md already has an agent"),
    ):
        page = await create(browser, name=name)
        assert page.status == 422
        assert cases in page.error("name")


async def test_the_limit_of_agents_is_explained(open_site: Opening) -> None:
    browser = ScriptlessBrowser((await open_site({}, agent_limit=1)).client())
    await create(browser)
    page = await create(browser, name="Second")
    assert page.status == 409
    assert "The limit of 1 agent is reached." in page.text


async def test_an_agent_of_the_file_is_read_only_and_can_be_duplicated(
    open_site: Opening, demo: dict[str, Any]
) -> None:
    file_agent = Agent(
        "filed", "Filed", "d", "Count.", None, 0.5, ("demo_*",), (), "meta", 3, "AGENTS.md", 1, ("Hello?",)
    )
    local = await open_site({"demo": demo}, agents=[file_agent])
    browser = ScriptlessBrowser(local.client())
    for path in ("/ui/agents/filed/edit", "/ui/agents/filed/delete"):
        assert (await browser.get(path)).status == 404
    page = await browser.get("/ui/agents/filed")
    assert not page.root.all("a", href="/ui/agents/filed/edit")
    copy = await browser.press(page, "/ui/agents/filed/duplicate")
    check(copy)
    assert copy.value("name") == "Filed copy"
    assert (copy.value("temperature"), copy.value("max_steps"), copy.value("mode")) == ("0.5", "3", "meta")
    await browser.send(copy, copy.path, press=("do", "save"))
    [agent] = await list_stored_agents(local)
    assert (agent.prompt, agent.temperature, agent.tools) == ("Count.", 0.5, ("demo_*",))
    assert (agent.mode, agent.max_steps, agent.starters) == ("meta", 3, ("Hello?",))
    again = await browser.press(await browser.get("/ui/agents/filed"), "/ui/agents/filed/duplicate")
    assert again.value("name") == "Filed copy 2"


async def test_a_stored_agent_that_the_file_overrides_is_shown_as_such(local_site: InProcessApp) -> None:
    browser = ScriptlessBrowser(local_site.client())
    instance = await create(browser)
    agent = Agent("reader", "Reader", file="AGENTS.md", line=1)
    local_site.services.apply_agents(LoadedAgents(Path("AGENTS.md"), (agent,)))
    rows = [row.text for row in (await browser.get("/ui/agents")).root.one("ul", id="agent-list").all("li")]
    assert ["overridden" in row for row in rows] == [False, True]
    page = await browser.get(instance.path)
    assert "AGENTS.md has an agent of the same name, which is used in its place." in page.text
    assert not page.root.all("a", href="/ui/chat?agent=reader")


async def test_an_import_says_where_the_text_is_wrong(local_site: InProcessApp) -> None:
    browser, path = ScriptlessBrowser(local_site.client()), "/ui/agents/_import"
    page = await browser.get(path)
    broken = await browser.send(page, path, {"text": "## A\n---\ntools: all\n---\n"})
    assert broken.status == 422
    check(broken)
    assert "Line 3: A.tools: tools: is not a list" in broken.error("text")
    both = await browser.send(broken, path, {"text": "## A\n---\n---\nOne.\n\n## B\n---\n---\nTwo.\n"})
    assert both.flash == "Imported “A”, “B”."
    taken_page = await browser.send(page, path, {"text": "## A\n---\n---\n"})
    assert "An agent named 'A' already exists among your own agents" in taken_page.error("text")


async def test_an_import_says_which_keys_it_ignored(local_site: InProcessApp) -> None:
    browser, path = ScriptlessBrowser(local_site.client()), "/ui/agents/_import"
    text = "## A\n---\ncolour: red\ntemprature: 1\n---\nOne.\n"
    page = await browser.send(await browser.get(path), path, {"text": text})
    assert page.flash.startswith("Imported “A”. Line 3: A.colour: unknown key, which is ignored. Line 4: ")
    response = await local_site.client().post("/api/v1/agents/import", {"text": text.replace("## A", "## B")})
    assert response.status == 201
    assert [(each["line"], each["path"]) for each in response.json["notes"]] == [
        (3, "B.colour"),
        (4, "B.temprature"),
    ]


async def test_an_imported_agent_says_that_its_model_is_not_available(local_site: InProcessApp) -> None:
    browser, path = ScriptlessBrowser(local_site.client()), "/ui/agents/_import"
    text = "---\nname: A\nmodel: openai:not-here\n---\n"
    page = await browser.send(await browser.get(path), path, {"text": text})
    assert "openai:not-here" in page.root.one("div", class_="warn").text
    # The rest can be changed nevertheless.
    form = await browser.get(f"{page.path}/edit")
    assert form.value("model") == "openai:not-here"
    saved_page = await browser.send(form, f"{page.path}/edit", {"description": "new"}, ("do", "save"))
    assert saved_page.flash == "“A” was saved."


async def test_only_admins_are_offered_to_share(password_site: InProcessApp) -> None:
    for name, role, cases in (("ada", "user", False), ("root", "admin", True)):
        browser = ScriptlessBrowser((await password_site.person(name, role)).browser)
        for path in (NEW, "/ui/agents/_import"):
            page = await browser.get(path)
            check(page)
            assert bool(page.root.all("input", name="shared")) is cases
    # Whoever sends the field nevertheless is refused.
    ada = ScriptlessBrowser((await password_site.person("eve")).browser)
    instance = await create(ada, shared="yes")
    assert instance.status == 403
    created_instance = await create(ada)
    page = await ada.get(f"{created_instance.path}/edit")
    await ada.send(
        page, f"{created_instance.path}/edit", {"shared": "yes", "can_share": "yes"}, ("do", "save")
    )
    bob = ScriptlessBrowser((await password_site.person("bob")).browser)
    assert "No agents yet" in (await bob.get("/ui/agents")).text


async def test_the_second_of_two_editors_sees_it_and_may_save_again(local_site: InProcessApp) -> None:
    browser = ScriptlessBrowser(local_site.client())
    instance = await create(browser)
    path = f"{instance.path}/edit"
    first, second = await browser.get(path), await browser.get(path)
    await browser.send(first, path, {"description": "first"}, ("do", "save"))
    page = await browser.send(second, path, {"description": "second"}, ("do", "save"))
    assert page.status == 409
    check(page)
    assert "This agent has changed" in page.text
    assert (await list_stored_agents(local_site))[0].description == "first"
    await browser.send(page, path, press=("do", "save"))
    assert (await list_stored_agents(local_site))[0].description == "second"


async def test_after_a_change_during_the_save_itself_the_form_is_saved_when_sent_again(
    local_site: InProcessApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, editor = ScriptlessBrowser(local_site.client()), local_site.services.agent_editor
    instance = await create(browser)
    path = f"{instance.path}/edit"
    first, second = await browser.get(path), await browser.get(path)
    edit = editor.edit

    async def edit_after_another(*args: Any, **options: Any) -> StoredAgent:
        """Save the other form first, when the handler has already read the agent."""
        monkeypatch.setattr(editor, "edit", edit)
        await browser.send(first, path, {"description": "first"}, ("do", "save"))
        return await edit(*args, **options)

    monkeypatch.setattr(editor, "edit", edit_after_another)
    page = await browser.send(second, path, {"description": "second"}, ("do", "save"))
    assert page.status == 409
    assert (await list_stored_agents(local_site))[0].description == "first"
    saved_page = await browser.send(page, path, press=("do", "save"))
    assert (saved_page.status, saved_page.path) == (200, instance.path)
    assert (await list_stored_agents(local_site))[0].description == "second"


async def test_the_only_user_reads_nothing_about_sharing(
    local_site: InProcessApp, password_site: InProcessApp
) -> None:
    text = "unless an admin shares it"
    assert text not in (await ScriptlessBrowser(local_site.client()).get(NEW)).text
    ann = await password_site.person("ann")
    assert text in (await ScriptlessBrowser(ann.browser).get(NEW)).text


async def test_built_in_tools_have_one_name_in_the_picker_and_the_preview(local_site: InProcessApp) -> None:
    page = await ScriptlessBrowser(local_site.client()).get(NEW)
    groups = [each.text for each in page.root.one("div", id="picker").all("legend")]
    assert "Built-in tools" in groups
    assert "Toolyard" not in groups
