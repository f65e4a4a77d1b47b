"""``/ui/admin/mcp`` without script: adding, editing, viewing and deleting servers; servers from files."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import ListeningProgram, ProgramStarter
from tests.web.conftest import ROOT, InProcessApp, Opening
from tests.web.scriptless_browser import ScriptlessBrowser

from toolyard.auth.storage import issuer_digest
from toolyard.types.account import Role
from toolyard.types.registry import AuthKind, ChoiceDraft, InstanceDraft, RegistrationMethod, ServerDraft

SECRET = "client-s3cret"


@pytest.fixture
async def me(local_site: InProcessApp) -> ScriptlessBrowser:
    return ScriptlessBrowser(local_site.client())


async def test_a_server_is_added(me: ScriptlessBrowser, local_site: InProcessApp) -> None:
    page = await me.get("/ui/admin/mcp/new")
    sent = {
        "name": "GitHub",
        "url": "https://api.github.test/mcp",
        "trust": "untrusted",
        "allow_tools": "get_*\n search_code ,\n\n",
        "description": "Code\r\nand issues",
        "choices-0-kind": "oauth",
        "choices-0-registration": "entered",
        "choices-0-client_id": "abc",
        "choices-0-client_secret": SECRET,
        "choices-0-scopes": "repo  read:org",
    }
    page = await me.send(page, "/ui/admin/mcp/new", sent)
    assert page.status == 200
    assert page.h1 == "GitHub"
    assert "“GitHub” was added." in page.flash
    (server,) = await local_site.services.registry.list_servers()
    ((instance, _),) = await local_site.services.registry.list_instances("local")
    assert page.path == f"/ui/mcp/{instance.id}"
    page = await me.get(f"/ui/admin/mcp/{server.id}")
    assert SECRET not in page.html
    assert "client secret stored" in page.text
    assert page.root.one("section", id="contents").attrs["data-load"] == f"{page.path}/contents"
    assert server.allow_tools == ("get_*", "search_code")
    assert server.description == "Code\nand issues"
    (choice,) = server.choices
    assert choice.client_secret == SECRET
    assert choice.scopes == ("repo", "read:org")
    assert "GitHub" in (await me.get("/ui/admin/mcp")).text


async def test_a_server_that_cannot_be_reached_is_added_if_the_admin_insists(
    me: ScriptlessBrowser, local_site: InProcessApp
) -> None:
    at = "/ui/admin/mcp/new"
    sent = {"url": "http://127.0.0.1:9/mcp", "private_addresses": "yes"}
    page = await me.send(await me.get(at), at, sent, press=("do", "save"))
    assert "Couldn’t find out how to sign in" in page.text
    assert "cannot be reached" in page.text
    assert page.value("choices-0-kind") == "auto"
    assert not await local_site.services.registry.list_servers()
    page = await me.send(page, at, press=("do", "add-anyway"))
    (server,) = await local_site.services.registry.list_servers()
    assert (server.name, [choice.kind for choice in server.choices]) == ("local", [AuthKind.OAUTH])
    ((instance, _),) = await local_site.services.registry.list_instances("local")

    # An attempt to use it does not take the button away.
    at = f"/ui/mcp/{instance.id}"
    for _ in range(2):
        assert [each for each in page.root.all("button") if each.text == "Connect"]
        await local_site.client().post(f"/api/v1/instances/{instance.id}/test")
        page = await me.get(at)
    assert "cannot be reached" in page.text


async def test_a_private_address_is_allowed_in_place(
    open_site: Opening, start_program: ProgramStarter
) -> None:
    site = await open_site({}, people_mode="password")
    ada = ScriptlessBrowser((await site.person("ada", "admin")).browser)
    docs = start_program(sys.executable, ROOT / "tests/servers/docs_server.py", "{port}").url
    server = await site.services.registry.add_server(ServerDraft("Docs", f"{docs}/mcp"))
    at = f"/ui/admin/mcp/{server.id}"
    page = await ada.get(f"{at}/contents")
    assert "its address is private" in page.text
    page = await ada.press(page, f"{at}/allow-private")
    assert page.path == at
    assert "query-docs" in (await ada.get(f"{at}/contents")).text


async def test_a_preview_leads_to_the_sign_in_that_the_server_asks_for(
    open_site: Opening, start_program: ProgramStarter
) -> None:
    site = await open_site({}, people_mode="password")
    ada = ScriptlessBrowser((await site.person("ada", "admin")).browser)
    program = start_program(sys.executable, "-I", ROOT / "tests/oauth/authorization_server.py", "{port}").url
    at = "/ui/admin/mcp/new"
    sent = {"url": f"{program}/mcp", "private_addresses": "yes"}
    page = await ada.send(await ada.get(at), at, sent, press=("do", "save"))
    (server,) = await site.services.registry.list_servers()
    assert page.path == f"/ui/admin/mcp/{server.id}"
    assert [choice.kind for choice in server.choices] == [AuthKind.OAUTH]
    page = await ada.get(f"{page.path}/contents")
    assert "Needs sign-in (OAuth found at http://127.0.0.1:" in page.text
    for _ in range(2):
        leaving = await ada.press(page, f"/ui/admin/mcp/{server.id}/connect")
        assert leaving.h1 == "Sign in to “local”"
    entries = await site.services.database.audit.entries(before=None, limit=9, action=None, actor=None)
    assert [each.action for each in entries].count("instance.create") == 1
    assert [each.action for each in entries].count("instance.connect") == 2


async def test_a_server_without_sign_in_connects_though_its_entry_expects_one(
    open_site: Opening, start_program: ProgramStarter
) -> None:
    site = await open_site({}, people_mode="password")
    ann = await site.person("ann")
    docs = start_program(sys.executable, ROOT / "tests/servers/docs_server.py", "{port}").url
    draft = ServerDraft("Docs", f"{docs}/mcp", private_addresses=True, choices=(ChoiceDraft("oauth"),))
    server = await site.services.registry.add_server(draft)
    instance = await site.services.registry.create_instance(ann.user.id, InstanceDraft(server.id))
    browser = ScriptlessBrowser(ann.browser)
    page = await browser.press(await browser.get("/ui/mcp"), f"/ui/mcp/{instance.id}/connect")
    assert page.path == f"/ui/mcp/{instance.id}"
    assert "“Docs” is connected. The server needs no sign-in." in page.flash


async def test_bad_input_is_told_beside_its_field_and_kept(
    me: ScriptlessBrowser, local_site: InProcessApp
) -> None:
    await local_site.services.registry.add_server(ServerDraft("Taken", "https://x.test/mcp"))
    page = await me.get("/ui/admin/mcp/new")
    sent = {
        "name": "",
        "url": "ftp://nothing",
        "trust": "untrusted",
        "deny_tools": "fine\n" + "x" * 300,
        "choices-0-kind": "header",
        "choices-0-key": "not a header",
        "choices-0-client_secret": SECRET,
    }
    page = await me.send(page, "/ui/admin/mcp/new", sent)
    assert page.status == 422
    assert page.error("name") == "Name must not be empty."
    assert "URL does not begin with http:// or https://." in page.error("url")
    assert "Allowed tools is required for an untrusted server" in page.error("allow_tools")
    assert "Denied tools (entry 2) has 300 characters" in page.error("deny_tools")
    assert "is not a valid header name" in page.error("choices-0-key")
    assert page.value("url") == "ftp://nothing"
    assert page.value("choices-0-key") == "not a header"
    assert SECRET not in page.html
    assert "Enter it again" in page.error("choices-0-client_secret")
    page = await me.send(
        page, "/ui/admin/mcp/new", {"name": "tAKEN", "url": "https://y.test/", "trust": "trusted"}
    )
    assert page.status == 422
    page = await me.send(page, "/ui/admin/mcp/new", {"choices-0-kind": "public", "deny_tools": ""})
    assert page.status == 422
    assert page.error("name")
    assert len(await local_site.services.registry.list_servers()) == 1


async def test_ways_to_sign_in_are_added_and_removed_without_script(
    me: ScriptlessBrowser, local_site: InProcessApp
) -> None:
    page = await me.get("/ui/admin/mcp/new")
    page = await me.send(
        page,
        "/ui/admin/mcp/new",
        {"name": "Many", "url": "https://m.test/", "choices-0-client_secret": SECRET},
        press=("do", "add"),
    )
    assert page.status == 200
    assert SECRET not in page.html
    assert "Enter it again" in page.error("choices-0-client_secret")
    assert page.value("name") == "Many"
    page = await me.send(
        page, "/ui/admin/mcp/new", {"choices-1-kind": "header", "choices-1-key": "X-Key"}, press=("do", "add")
    )
    page = await me.send(page, "/ui/admin/mcp/new", {"choices-2-kind": "public"}, press=("do", "remove-0"))
    assert page.value("choices-0-key") == "X-Key"
    page = await me.send(page, "/ui/admin/mcp/new", press=("do", "save"))
    assert page.status == 200
    (server,) = await local_site.services.registry.list_servers()
    assert [choice.kind for choice in server.choices] == [AuthKind.HEADER, AuthKind.PUBLIC]
    assert server.choices[0].key == "X-Key"


async def test_editing_keeps_unchanged_fields(me: ScriptlessBrowser, local_site: InProcessApp) -> None:
    choices = (
        ChoiceDraft("oauth", "Account", client_id="abc", client_secret=SECRET),
        ChoiceDraft("header", key="X-K"),
    )
    server = await local_site.services.registry.add_server(
        ServerDraft(
            "GitHub", "https://g.test/mcp", choices=choices, deny_tools=("delete_*",), private_addresses=True
        )
    )
    at = f"/ui/admin/mcp/{server.id}/edit"
    page = await me.get(at)
    assert SECRET not in page.html
    assert "A secret is stored. Leave empty to keep it." in page.text
    page = await me.send(page, at, {"description": "New words"}, press=("do", "save"))
    assert "“GitHub” was saved." in page.flash
    saved_server = await local_site.services.registry.get_server(server.id)
    assert saved_server.description == "New words"
    assert saved_server.choices == server.choices
    assert saved_server.deny_tools == ("delete_*",)
    assert saved_server.private_addresses
    page = await me.send(await me.get(at), at, {"choices-0-drop_secret": "yes"}, press=("do", "save"))
    assert (await local_site.services.registry.get_server(server.id)).choices[0].client_secret is None
    assert (await local_site.services.registry.get_server(server.id)).choices[
        0
    ].registration is RegistrationMethod.AUTO


async def test_automatic_sign_in_keeps_a_method_of_the_kind_that_is_found(
    me: ScriptlessBrowser, local_site: InProcessApp, start_program: ProgramStarter
) -> None:
    program = start_program(sys.executable, "-I", ROOT / "tests/oauth/authorization_server.py", "{port}").url
    account = ChoiceDraft("oauth", "Account", client_id="abc", client_secret=SECRET, issuer=program)
    registry = local_site.services.registry
    server = await registry.add_server(
        ServerDraft("Guarded", f"{program}/mcp", choices=(account,), private_addresses=True)
    )
    at = f"/ui/admin/mcp/{server.id}/edit"
    page = await me.send(await me.get(at), at, {"choices-0-kind": "auto"}, press=("do", "save"))
    assert "“Guarded” was saved." in page.flash
    assert (await registry.get_server(server.id)).choices == server.choices

    # Of another kind, it becomes a new method, without the label of the former.
    key = ChoiceDraft("header", "Key of the team", key="X-Key")
    server = await registry.edit_server(server.id, replace(server.to_draft(), choices=(key,)))
    page = await me.send(await me.get(at), at, {"choices-0-kind": "auto"}, press=("do", "save"))
    (choice,) = (await registry.get_server(server.id)).choices
    assert (choice.kind, choice.label) == (AuthKind.OAUTH, "Sign in with OAuth")
    assert choice.id != server.choices[0].id


async def test_a_server_is_disabled_enabled_and_deleted(
    me: ScriptlessBrowser, local_site: InProcessApp
) -> None:
    server = await local_site.services.registry.add_server(ServerDraft("Docs", "https://d.test/mcp"))
    user = await local_site.services.people.local_user()
    await local_site.services.registry.create_instance(user.id, InstanceDraft(server.id))
    at = f"/ui/admin/mcp/{server.id}"
    page = await me.press(await me.get("/ui/admin/mcp"), f"{at}/disable")
    assert "“Docs” is disabled." in page.flash
    assert "Disabled" in page.root.one("li", id=f"s-{server.id}").text
    assert "1 instance" in page.root.one("li", id=f"s-{server.id}").text
    assert "admin has disabled the server" in (await me.get("/ui/mcp")).text
    page = await me.press(page, f"{at}/enable")
    assert (await local_site.services.registry.get_server(server.id)).enabled
    page = await me.get(f"{at}/delete")
    assert "This also deletes 1 instance" in page.text
    page = await me.send(page, f"{at}/delete")
    assert page.path == "/ui/admin/mcp"
    assert "“Docs” was deleted." in page.flash
    assert "The registry is empty" in (await me.get("/ui/mcp")).text
    assert (await me.get(at)).status == 404


async def test_viewing_shows_the_features_of_the_server(
    me: ScriptlessBrowser, local_site: InProcessApp, start_program: ProgramStarter
) -> None:
    words = start_program("python3", ROOT / "tests/servers/hostile_markup_server.py", "{port}")
    server = await local_site.services.registry.add_server(
        ServerDraft("Words", f"{words.url}/mcp", private_addresses=True)
    )
    at = f"/ui/admin/mcp/{server.id}"
    page = await me.get(at)
    assert "echo" not in page.text
    page = await me.get(f"{at}/contents")
    section = page.root.one("section", id="contents").text
    for words_there in ("2025-", "Capabilities", "Resources", "Prompts", "read-only", "destructive", "≈"):
        assert words_there in section
    part = await me.client.get(f"{at}/contents", headers={**me.cookie(), "toolyard-part": "1"})
    assert part.text.lstrip().startswith("<section")


async def test_viewing_shows_the_whole_error(
    me: ScriptlessBrowser, local_site: InProcessApp, hostile_http: ListeningProgram
) -> None:
    for mode, words in (("html", "HTML"), ("redirects_for_ever", "redirect"), ("bad_json", "JSON")):
        url = f"{hostile_http.url}/{mode.replace('_', '-')}/k?when=always"
        server = await local_site.services.registry.add_server(ServerDraft(mode, url, private_addresses=True))
        page = await me.get(f"/ui/admin/mcp/{server.id}/contents")
        assert page.status == 200
        assert "Couldn’t reach the server" in page.text
        assert words.lower() in page.root.one("section", id="contents").text.lower()


async def test_hostile_words_stay_words(
    me: ScriptlessBrowser, local_site: InProcessApp, start_program: ProgramStarter
) -> None:
    """The reader of ``browsing`` fails where markup of a server gets into the page: its tags do not nest."""
    words = start_program("python3", ROOT / "tests/servers/hostile_markup_server.py", "{port}")
    markup = '"><script>x</script>'
    server = await local_site.services.registry.add_server(
        ServerDraft(markup, f"{words.url}/mcp?{markup[2:9]}", private_addresses=True, description=markup)
    )
    user = await local_site.services.people.local_user()
    instance = await local_site.services.registry.create_instance(
        user.id, InstanceDraft(server.id, name=markup)
    )
    for path in (
        "/ui/",
        "/ui/mcp",
        "/ui/mcp/new",
        f"/ui/mcp/new?server={server.id}",
        f"/ui/mcp/{instance.id}",
        f"/ui/mcp/{instance.id}/tools",
        f"/ui/mcp/{instance.id}/edit",
        f"/ui/mcp/{instance.id}/delete",
        f"/ui/mcp/{instance.id}/tool?name=echo",
        "/ui/admin/mcp",
        f"/ui/admin/mcp/{server.id}",
        f"/ui/admin/mcp/{server.id}/contents",
        f"/ui/admin/mcp/{server.id}/edit",
        f"/ui/admin/mcp/{server.id}/delete",
        "/ui/admin/audit",
        "/ui/tokens",
        "/ui/connect",
        f"/ui/mcp?q={markup}",
        f"/ui/admin/mcp?q={markup}",
    ):
        page = await me.get(path)
        assert page.status == 200, path
        scripts = [each.attrs.get("src", "").split("?")[0] for each in page.root.all("script")]
        assert all(re.fullmatch(r"/static/[a-z-]+\.js", each) for each in scripts), path
        assert not [each for each in page.root.all("img") if "onerror" in each.attrs], path
        assert "\u202e" not in page.html, path
        assert not [each for each in page.root.all("a") if each.attrs["href"].startswith("javascript:")]
    page = await me.get(f"/ui/mcp/{instance.id}/tool?name=echo")
    page = await me.send(page, page.form_with("json"), {"json": '{"text": "</code><script>y</script>"}'})
    assert page.status == 200
    assert not [each for each in page.root.all("script") if each.text or "src" not in each.attrs]


# Servers from files.


async def test_servers_from_files_stand_beside_with_their_place(
    open_site: Opening, demo: dict[str, object]
) -> None:
    local = await open_site(
        {"demo": demo, "broken": {"command": "no-such-command"}, "off": {**demo, "enabled": False}}
    )
    me = ScriptlessBrowser(local.client())
    await local.services.configured_servers.connect_shared()
    page = await me.get("/ui/admin/mcp")
    row = page.root.one("li", id="f-broken")
    assert "mcp.json:1" in row.text
    assert "Failed" in row.text
    assert "command not found: no-such-command" in row.text.lower()
    assert "Disabled" in page.root.one("li", id="f-off").text
    assert not page.root.one("li", id="f-off").all("button")
    assert "3 tools" in page.root.one("li", id="f-demo").text
    page = await me.press(page, "/ui/admin/mcp/files/broken/restart")
    assert "is being restarted" in page.flash
    assert not page.root.all("a", href="/ui/admin/mcp/files/broken/edit")
    page = await me.get("/ui/admin/mcp/files/demo/contents")
    assert "weekday" in page.text
    page = await me.get("/ui/admin/mcp/files/demo/tool?name=weekday")
    answered_page = await me.send(page, page.form_with("json"), {"json": '{"date": "2026-07-28"}'})
    assert "Tuesday" in answered_page.text
    assert (await me.get("/ui/admin/mcp/files/nothing")).status == 404


async def test_a_token_in_the_path_of_an_address_is_not_shown(open_site: Opening) -> None:
    token = "NmFmZGU0Yzk3ZTQ2NGY1YThiOTM4MGM2"
    entry = {"url": f"http://127.0.0.1:1/s/{token}/mcp", "enabled": False}
    local = await open_site({"hosted": entry})
    page = await ScriptlessBrowser(local.client()).get("/ui/admin/mcp/files/hosted")
    assert "http://127.0.0.1:1/s/***/mcp" in page.text
    assert token not in page.text


async def test_arguments_and_environment_of_a_command_are_not_shown(open_site: Opening) -> None:
    entry = {"command": sys.executable, "args": ["-c", "0", "--key", SECRET], "env": {"KEY": SECRET}}
    web = {"url": f"https://x.test/mcp?key={SECRET}", "headers": {"X": SECRET}}
    local = await open_site({"it": entry, "web": web})
    me = ScriptlessBrowser(local.client())
    for path in (
        "/ui/admin/mcp",
        "/ui/admin/mcp/files/it",
        "/ui/admin/mcp/files/it/contents",
        "/ui/admin/mcp/files/web",
    ):
        assert SECRET not in (await me.get(path)).html


async def test_others_see_files_servers_without_their_place(password_site: InProcessApp) -> None:
    bob = ScriptlessBrowser((await password_site.person("bob", Role.USER)).browser)
    page = await bob.get("/ui/")
    assert "demo" in page.text
    assert str(Path(password_site.services.data_dir)) not in page.html


async def test_the_redirect_address_of_the_issuer_is_shown_and_confirmed(
    me: ScriptlessBrowser, local_site: InProcessApp
) -> None:
    issuer = "https://login.example"
    choice = ChoiceDraft("oauth", registration="entered", client_id="abc", issuer=issuer)
    server = await local_site.services.registry.add_server(
        ServerDraft("Entered", "https://x.test/mcp", choices=(choice,))
    )
    page = await me.get(f"/ui/admin/mcp/{server.id}/edit")
    value = page.root.one("input", id="choices-0-redirect_uri").attrs["value"]
    assert value == f"{local_site.url}/ui/auth/mcp/callback/{issuer_digest(issuer)}"
    await me.send(page, f"/ui/admin/mcp/{server.id}/edit", {"choices-0-issuer_redirect": "on"})
    (saved_choice,) = (await local_site.services.registry.get_server(server.id)).choices
    assert (saved_choice.issuer, saved_choice.issuer_redirect) == (issuer, True)


async def test_two_issuers_on_the_shared_redirect_address_are_a_warning(
    me: ScriptlessBrowser, local_site: InProcessApp
) -> None:
    for name in ("One", "Two"):
        issuer = f"https://login.{name.lower()}.example"
        choice = ChoiceDraft("oauth", registration="entered", client_id="abc", issuer=issuer)
        await local_site.services.registry.add_server(
            ServerDraft(name, "https://x.test/mcp", choices=(choice,))
        )
        is_warned = "Shared redirect URI" in (await me.get("/ui/admin/mcp")).text
        assert is_warned == (name == "Two")
