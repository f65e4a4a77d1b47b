"""``/ui/mcp`` without script: creating, editing, filtering, testing, trying and deleting instances."""

from __future__ import annotations

import pytest
from tests.conftest import ListeningProgram, ProgramStarter
from tests.web.conftest import ROOT, InProcessApp
from tests.web.scriptless_browser import ScriptlessBrowser, ScriptlessPage

from toolyard.types.registry import ChoiceDraft, InstanceDraft, InstanceState, RegistryServer, ServerDraft

SECRET = "k-very-secret-value"


@pytest.fixture
def words(start_program: ProgramStarter) -> ListeningProgram:
    return start_program("python3", ROOT / "tests/servers/hostile_markup_server.py", "{port}")


@pytest.fixture
async def server(local_site: InProcessApp, words: ListeningProgram) -> RegistryServer:
    """A server that offers no sign-in, a header, and OAuth."""
    choices = (
        ChoiceDraft("public", "Open"),
        ChoiceDraft("header", "Key", key="X-Api-Key"),
        ChoiceDraft("oauth", "Account"),
    )
    draft = ServerDraft("Words", f"{words.url}/mcp", private_addresses=True, choices=choices)
    return await local_site.services.registry.add_server(draft)


@pytest.fixture
async def me(local_site: InProcessApp) -> ScriptlessBrowser:
    return ScriptlessBrowser(local_site.client())


async def create_instance(
    local_site: InProcessApp, server: RegistryServer, slug: str = "words", choice: int = 0
) -> str:
    user = await local_site.services.people.local_user()
    value = SECRET if server.choices[choice].kind == "header" else None
    draft = InstanceDraft(server.id, server.choices[choice].id, slug, "Words", value=value)
    return (await local_site.services.registry.create_instance(user.id, draft)).id


# Creating.


async def test_an_instance_is_created_in_two_steps(me: ScriptlessBrowser, server: RegistryServer) -> None:
    page = await me.get("/ui/mcp/new")
    card = page.root.one("a", href=f"/ui/mcp/new?server={server.id}")
    assert "Words" in card.text
    page = await me.get(card.attrs["href"])
    assert page.value("slug") == "words"
    assert "mcp_words__…" in page.text
    page = await me.send(page, page.form_with("slug"), {"slug": "mine", "name": "My words"})
    assert page.status == 200
    assert page.h1 == "My words"
    assert "“My words” was created." in page.flash
    assert "mcp_mine__…" in page.text
    assert "My words" in (await me.get("/ui/mcp")).text


async def test_bad_input_is_told_beside_its_field_and_kept(
    me: ScriptlessBrowser, server: RegistryServer
) -> None:
    page = await me.get(f"/ui/mcp/new?server={server.id}")
    bad = {"slug": "not a slug!", "name": "n" * 81, "choice_id": server.choices[1].id}
    page = await me.send(page, page.form_with("slug"), bad)
    assert page.status == 422
    assert "1 to 24" in page.error("slug")
    assert "81 characters" in page.error("name")
    assert "required" in page.error(f"value-{server.choices[1].id}")
    assert page.value("slug") == "not a slug!"
    assert page.value("name") == "n" * 81
    assert page.value("choice_id") == server.choices[1].id
    assert "3 problems to correct" in page.text
    assert page.root.one("input", id="slug").attrs["aria-invalid"] == "true"


async def test_a_slug_that_is_taken_is_told(
    me: ScriptlessBrowser, local_site: InProcessApp, server: RegistryServer
) -> None:
    await create_instance(local_site, server, "Words")
    page = await me.get(f"/ui/mcp/new?server={server.id}")
    page = await me.send(page, page.form_with("slug"), {"slug": "wORDS"})
    assert page.status == 422
    assert page.error("slug")
    response = await me.client.get("/ui/mcp/slug?slug=WORDS", headers=me.cookie())
    assert "You have an instance with this slug" in response.text
    assert (await me.client.get("/ui/mcp/slug?slug=other", headers=me.cookie())).text == ""
    assert "1 to 24" in (await me.client.get("/ui/mcp/slug?slug=%21", headers=me.cookie())).text


async def test_a_value_is_never_sent_back(
    me: ScriptlessBrowser, local_site: InProcessApp, server: RegistryServer
) -> None:
    key = server.choices[1].id
    page = await me.get(f"/ui/mcp/new?server={server.id}")
    sent = {"slug": "bad slug", "choice_id": key, f"value-{key}": SECRET}
    page = await me.send(page, page.form_with("slug"), sent)
    assert page.status == 422
    assert SECRET not in page.html
    page = await me.send(page, page.form_with("slug"), {**sent, "slug": "keyed"})
    assert SECRET not in page.html
    edit = await me.get(f"{page.path}/edit")
    assert SECRET not in edit.html
    assert "A value is stored. Leave empty to keep it." in edit.text
    saved_page = await me.send(edit, edit.form_with("slug"), {"name": "Keyed"})
    assert saved_page.h1 == "Keyed"
    user = await local_site.services.people.local_user()
    (instance, _), *_ = await local_site.services.registry.list_instances(user.id)
    assert (instance.slug, instance.name, instance.value) == ("keyed", "Keyed", SECRET)


async def test_an_instance_that_signs_in_elsewhere_says_that_a_step_is_left(
    me: ScriptlessBrowser, server: RegistryServer
) -> None:
    page = await me.get(f"/ui/mcp/new?server={server.id}")
    page = await me.send(page, page.form_with("slug"), {"slug": "acc", "choice_id": server.choices[2].id})
    assert "One step left: connect" in page.text
    assert page.root.one("button", formaction=f"{page.path}/connect").text == "Connect"
    assert "Connect it to see its tools" in page.text
    row = (await me.get("/ui/mcp")).root.one("li", data_state="pending")
    assert "Not connected" in row.text
    assert row.all("button", formaction=f"{page.path}/connect")


async def test_a_disabled_server_is_not_offered(
    me: ScriptlessBrowser, local_site: InProcessApp, server: RegistryServer
) -> None:
    await local_site.services.registry.set_server_enabled(server.id, False)
    assert "Words" not in (await me.get("/ui/mcp/new")).text
    page = await me.get(f"/ui/mcp/new?server={server.id}")
    assert "is disabled" in page.flash


# Seeing and changing.


async def test_the_list_can_be_searched_and_paged(
    me: ScriptlessBrowser, local_site: InProcessApp, server: RegistryServer
) -> None:
    user = await local_site.services.people.local_user()
    for number in range(120):
        draft = InstanceDraft(server.id, server.choices[0].id, f"n-{number:03}", f"Number {number:03}")
        await local_site.services.registry.create_instance(user.id, draft)
    page = await me.get("/ui/mcp")
    assert len(page.root.one("ul", class_="rows").children) // 2 <= 100
    assert "Number 000" in page.text
    assert "Number 110" not in page.text
    assert "Page 1 of 2" in page.text
    page = await me.get(page.root.one("a", rel="next").attrs["href"])
    assert "Number 110" in page.text
    at = page.root.all("li", data_state="ready")[5].attrs["id"].removeprefix("i-")
    page = await me.press(page, f"/ui/mcp/{at}/disable")
    assert page.path == "/ui/mcp?page=2"
    page = await me.send(page, page.form_with("q"), {"q": "number 007"})
    assert "1 instance" in page.text
    assert "Number 007" in page.text
    for odd in ("page=0", "page=-1", "page=99999", "page=x", "page=9999999999999999999"):
        assert (await me.get(f"/ui/mcp?{odd}")).status == 200


async def test_an_instance_is_switched_off_and_on_again(
    me: ScriptlessBrowser, local_site: InProcessApp, server: RegistryServer
) -> None:
    at = f"/ui/mcp/{await create_instance(local_site, server)}"
    page = await me.press(await me.get("/ui/mcp"), f"{at}/disable")
    assert page.path == "/ui/mcp"
    assert "“Words” is disabled." in page.flash
    assert "Disabled" in page.root.one("li", data_state="disabled").text
    assert "Enable it to see its tools" in (await me.get(at)).text
    page = await me.press(page, f"{at}/enable")
    assert "Ready" in page.root.one("li", data_state="ready").text
    assert (await me.get("/ui/mcp")).flash == ""


async def test_a_test_shows_its_outcome(
    me: ScriptlessBrowser, local_site: InProcessApp, server: RegistryServer, words: ListeningProgram
) -> None:
    at = f"/ui/mcp/{await create_instance(local_site, server)}"
    page = await me.press(await me.get("/ui/mcp"), f"{at}/test")
    assert "is working: 4 tools" in page.flash
    words.stop()
    page = await me.press(await me.get(at), f"{at}/test")
    assert page.path == at
    assert page.root.one("div", id="flash").all("div", class_="bad")
    assert "Failed" in page.root.one("dl").text
    assert "refused" in page.flash
    words.start()
    page = await me.press(await me.get("/ui/mcp"), f"{at}/test")
    assert "is working" in page.flash
    assert page.root.all("li", data_state="ready")


async def test_deleting_asks_again(
    me: ScriptlessBrowser, local_site: InProcessApp, server: RegistryServer
) -> None:
    at = f"/ui/mcp/{await create_instance(local_site, server)}"
    page = await me.get(f"{at}/delete")
    assert page.h1 == "Delete “Words”?"
    assert (await me.get(at)).status == 200
    page = await me.send(page, f"{at}/delete")
    assert page.path == "/ui/mcp"
    assert "“Words” was deleted." in page.flash
    assert (await me.get(at)).status == 404


# Tools.


async def test_the_tools_are_those_of_now(
    me: ScriptlessBrowser, local_site: InProcessApp, server: RegistryServer
) -> None:
    at = f"/ui/mcp/{await create_instance(local_site, server)}"
    page = await me.get(at)
    assert "echo" not in page.text
    assert page.root.one("section", id="tools").attrs["data-load"] == f"{at}/tools"
    assert page.root.one("main").all("a", href=f"{at}/tools")
    page = await me.get(f"{at}/tools")
    rows = {
        row.one(class_="row-title").text: row.text for row in page.root.one("ul", id="tool-list").all("li")
    }
    assert len(rows) == 4
    assert "read-only idempotent open world ≈" in rows["echo"]
    assert "writes destructive ≈" in rows["wipe"]
    assert "Not available: this tool can change data" in rows["wipe"]
    assert "2 tools skipped" in page.text
    part = await me.client.get(f"{at}/tools", headers={**me.cookie(), "toolyard-part": "1"})
    assert part.text.lstrip().startswith("<section")


async def test_a_server_that_fails_is_told_in_full(
    me: ScriptlessBrowser, local_site: InProcessApp, hostile_http: ListeningProgram
) -> None:
    draft = ServerDraft("Web page", f"{hostile_http.url}/html/k?when=always", private_addresses=True)
    server = await local_site.services.registry.add_server(draft)
    at = f"/ui/mcp/{await create_instance(local_site, server)}"
    page = await me.get(f"{at}/tools")
    assert page.status == 200
    assert "Couldn’t reach the server" in page.text
    assert "html" in page.root.one("section", id="tools").text.lower()
    assert "Failed" in page.root.one("dl").text


async def test_a_filter_lets_all_some_or_none_through(
    me: ScriptlessBrowser, local_site: InProcessApp, server: RegistryServer
) -> None:
    at = f"/ui/mcp/{await create_instance(local_site, server)}"
    user = await local_site.services.people.local_user()

    async def send(kind: str, tools: list[str]) -> ScriptlessPage:
        page = await me.get(f"{at}/tools")
        return await me.send(page, page.form_with("filter"), {"filter": kind, "tool": tools})

    async def read_tool_filter() -> tuple[str, ...] | None:
        return (await local_site.services.registry.list_instances(user.id))[0][0].tool_filter

    page = await send("some", ["echo", "gone-meanwhile"])
    assert "2 tools enabled" in page.flash
    assert await read_tool_filter() == ("echo", "gone-meanwhile")
    page = await me.get(f"{at}/tools")
    boxes = {each.attrs["value"]: "checked" in each.attrs for each in page.root.all("input", class_="pick")}
    assert boxes["echo"]
    assert sum(boxes.values()) == 1
    assert "no longer offered: gone-meanwhile" in page.text
    assert "New tools stay off" in page.text
    assert "1 of 4 usable" in page.text
    await send("none", ["echo"])
    assert await read_tool_filter() == ()
    assert "0 of 4 usable" in (await me.get(f"{at}/tools")).text
    await send("all", [])
    assert await read_tool_filter() is None
    page = await send("some", [f"tool-{number}-{'x' * 60}" for number in range(10_000)])
    assert "10,000 tools enabled" in page.flash
    assert len(await read_tool_filter() or ()) == 10_000
    await send("all", [])
    page = await send("some", [f"tool-{number}" for number in range(10_001)])
    assert page.flash.startswith("The filter has 10,001 entries")
    assert await read_tool_filter() is None


async def test_the_home_page_counts_the_tools_of_all_instances(
    me: ScriptlessBrowser, local_site: InProcessApp, server: RegistryServer
) -> None:
    for number in range(7):
        await create_instance(local_site, server, f"words-{number}")
    await local_site.client().get("/api/v1/tools?fresh=true")
    items = (await local_site.client().get("/api/v1/status")).json["items"]
    tools = sum(each["tool_count"] for each in items)
    assert tools > 7 * 4
    tile = next(
        each for each in (await me.get("/ui/")).root.all("div", class_="tile") if "Tools" in each.text
    )
    assert tile.one("b").text == str(tools)


async def test_a_tool_is_tried_with_a_form_from_its_schema(
    me: ScriptlessBrowser, local_site: InProcessApp, server: RegistryServer
) -> None:
    at = f"/ui/mcp/{await create_instance(local_site, server)}"
    page = await me.get(f"{at}/tool?name=echo")
    labels = {each.attrs["for"]: each.text for each in page.root.all("label") if "for" in each.attrs}
    fields = {text.split(" ")[0]: name for name, text in labels.items()}
    form = page.form_with("json")
    sent = {
        fields["text"]: "hello",
        fields["times"]: "3",
        fields["loud"]: "true",
        fields["more"]: '{"a": [1]}',
    }
    answered_page = await me.send(page, form, sent)
    assert answered_page.status == 200
    assert '{"text": "hello", "times": 3, "loud": true, "more": {"a": [1]}}' in answered_page.text
    assert dict(answered_page.fields(answered_page.form_with("json")))[fields["text"]] == "hello"
    bad = await me.send(page, form, {fields["times"]: "three", fields["more"]: "{"})
    assert bad.status == 422
    assert "“times” must be a whole number." in bad.error(fields["times"])
    assert "“more” must be valid JSON." in bad.error(fields["more"])
    written_page = await me.send(page, form, {"json": '{"any": "thing"}'})
    assert '{"any": "thing"}' in written_page.text
    for text in ("[1]", "{", "[" * 100_000):
        assert (await me.send(page, form, {"json": text})).status == 422


async def test_a_tool_that_may_not_be_called_says_why(
    me: ScriptlessBrowser, local_site: InProcessApp, server: RegistryServer
) -> None:
    at = f"/ui/mcp/{await create_instance(local_site, server)}"
    page = await me.get(f"{at}/tool?name=wipe")
    assert "You can’t call it: this tool can change data, and such tools are turned off." in page.text
    assert not page.root.all("textarea", id="json")
    decides = page.root.one("li", class_="decides")
    assert decides.text.startswith("Changing data")
    assert "(this rule decides)" in decides.text
    assert "readOnlyHint is false" in decides.text
    csrf = dict(page.fields(page.root.one("form", id="action-form")))["csrf"]
    answer = await me.client.ask(
        "POST", f"{at}/tool?name=wipe", data={"csrf": csrf, "json": "{}"}, headers=me.cookie()
    )
    assert "The call failed" in answer.text
    assert (await me.get(f"{at}/tool?name=nothing")).status == 404


async def test_a_tools_own_error_and_a_dead_server_are_told_in_full(
    me: ScriptlessBrowser, local_site: InProcessApp, server: RegistryServer, words: ListeningProgram
) -> None:
    at = f"/ui/mcp/{await create_instance(local_site, server)}"
    page = await me.get(f"{at}/tools")
    marked_row = next(row for row in page.root.all("li") if "A name that is markup" in row.text)
    page = await me.get(marked_row.one("a", class_="button").attrs["href"])
    page = await me.send(page, page.form_with("json"))
    assert "Tool error" in page.text
    words.stop()
    page = await me.send(page, page.form_with("json"))
    assert page.status == 200
    assert "The call failed" in page.text
    assert "refused" in page.text


async def test_a_state_that_is_stored_is_shown(
    me: ScriptlessBrowser, local_site: InProcessApp, server: RegistryServer
) -> None:
    id_ = await create_instance(local_site, server, choice=2)
    reason = "The provider no longer accepts it"
    await local_site.services.database.registry.set_instance_state(id_, InstanceState.NEEDS_REAUTH, reason)
    page = await me.get("/ui/mcp")
    row = page.root.one("li", data_state="needs_reauth")
    assert "Needs sign-in again" in row.text
    assert reason in row.text
    assert row.one("button", formaction=f"/ui/mcp/{id_}/connect").text == "Reconnect"
    home = await me.get("/ui/")
    assert "Reconnect “Words”" in home.text
