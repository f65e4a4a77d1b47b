"""``/ui/catalog`` and ``/api/v1/catalog``: known servers are found, added with a press, and recognised."""

from __future__ import annotations

import json
import sys

import pytest
from tests.conftest import ProgramStarter
from tests.ports import free_port
from tests.public_registry import serve_public_registry
from tests.web.conftest import ROOT, InProcessApp, Opening
from tests.web.pages.test_render import check
from tests.web.scriptless_browser import ScriptlessBrowser, ScriptlessPage

from toolyard.config.known_servers import KnownServer, KnownVariable, SignInMethod
from toolyard.types.account import Role
from toolyard.types.registry import AuthKind, ServerDraft
from toolyard.web.servers.new_servers import ServerCatalog


def build_known_server(
    id: str, url: str, *variables: KnownVariable, sign_in: SignInMethod = SignInMethod.NONE
) -> KnownServer:
    headers = {"headers": {"Authorization": "Bearer ${TOKEN}"}} if sign_in is SignInMethod.KEY else {}
    entry = {"type": "http", "url": url, **headers}
    return KnownServer(id, id.title(), f"Tools of {id}.", entry, sign_in, variables)


def offer(local: InProcessApp, *servers: KnownServer) -> None:
    local.part(ServerCatalog).known = {each.id: each for each in servers}


@pytest.fixture
def docs(start_program: ProgramStarter) -> str:
    return f"{start_program(sys.executable, ROOT / 'tests/servers/docs_server.py', '{port}').url}/mcp"


async def press_add(browser: ScriptlessBrowser, known_id: str, **values: str) -> ScriptlessPage:
    page = await browser.get("/ui/catalog")
    return await browser.send(page, f"/ui/catalog/{known_id}", values)


async def test_every_known_server_has_a_card_and_words_find_some(local_site: InProcessApp) -> None:
    me = ScriptlessBrowser(local_site.client())
    page = await me.get("/ui/catalog")
    check(page)
    cards = page.root.all("li", class_="known")
    assert len(cards) == len(local_site.part(ServerCatalog).known)
    assert "local program" not in cards[0].text, "those that need no more than a press come first"
    known_servers = (await me.get("/ui/catalog?q=jira+issues")).root.all("li", class_="known")
    assert [each.one("h2").text for each in known_servers] == ["Atlassian"]
    nothing = await me.get("/ui/catalog?q=no+such+thing")
    assert "Nothing found" in nothing.text
    for path in ("/ui/mcp", "/ui/admin/mcp"):
        assert (await me.get(path)).root.one("main").all("a", href="/ui/catalog")


async def test_a_local_server_shows_the_command_and_no_button(local_site: InProcessApp) -> None:
    card = (await ScriptlessBrowser(local_site.client()).get("/ui/catalog?q=filesystem")).root.one(
        "li", id="known-filesystem"
    )
    assert not card.all("form")
    command = card.one("pre").text
    assert command.endswith(" add filesystem")
    assert f"--data-dir {local_site.services.data_dir}" in command
    assert "FOLDER" in card.text
    answer = await local_site.client().post("/api/v1/catalog/filesystem", {})
    assert (answer.status, "starts a program" in answer.text) == (422, True)


@pytest.mark.parametrize("mode", ["none", "password"])
async def test_one_press_adds_a_remote_server_and_ends_at_its_tools(
    open_site: Opening, docs: str, mode: str
) -> None:
    local = await open_site({}, people_mode=mode)
    offer(local, build_known_server("docs", docs))
    client = local.client() if mode == "none" else (await local.person("root", Role.ADMIN)).browser
    me = ScriptlessBrowser(client)
    page = await press_add(me, "docs")
    assert "is a private address" in page.text
    page = await me.send(page, "/ui/admin/mcp/new", press=("do", "allow-private"))
    assert page.path.startswith("/ui/mcp/"), page.text
    tools = await me.get(f"{page.path}/tools")
    assert tools.root.all("a", href=f"{page.path}/tool?name=query-docs")
    card = (await me.get("/ui/catalog")).root.one("li", id="known-docs")
    (server,) = await local.services.registry.list_servers()
    assert (server.name, server.description) == ("Docs", "Tools of docs.")
    assert card.all("a", href=f"/ui/admin/mcp/{server.id}")
    assert not card.all("form")
    if mode == "password":
        entries = await local.services.database.audit.entries(before=None, limit=9, action=None, actor=None)
        assert [each.action for each in entries][:2] == ["instance.create", "server.add"]


async def test_a_server_with_a_key_asks_for_the_key_alone(local_site: InProcessApp, docs: str) -> None:
    offer(local_site, build_known_server("docs", docs, sign_in=SignInMethod.KEY))
    page = await press_add(ScriptlessBrowser(local_site.client()), "docs")
    assert page.path.startswith("/ui/mcp/new?server=")
    assert "Value for the header Authorization" in page.text
    assert "the word Bearer" in page.text
    (server,) = await local_site.services.registry.list_servers()
    assert [each.kind for each in server.choices] == [AuthKind.HEADER]


async def test_a_value_in_the_address_is_asked_for(local_site: InProcessApp) -> None:
    port = free_port()
    offer(
        local_site,
        build_known_server(
            "own", "http://127.0.0.1:${PORT}/mcp", KnownVariable("PORT", "its port", secret=False)
        ),
    )
    me = ScriptlessBrowser(local_site.client())
    page = await press_add(me, "own", **{"value-PORT": str(port)})
    assert page.root.one("input", id="url").attrs["value"] == f"http://127.0.0.1:{port}/mcp"
    assert (await press_add(me, "own")).status == 422


async def test_an_address_that_does_not_answer_ends_in_a_message(local_site: InProcessApp) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    offer(local_site, build_known_server("gone", url))
    me = ScriptlessBrowser(local_site.client())
    page = await me.send(await press_add(me, "gone"), "/ui/admin/mcp/new", press=("do", "allow-private"))
    assert "Couldn’t find out how to sign in" in page.text
    assert "refused" in page.text
    answer = await local_site.client().post("/api/v1/catalog/gone", {"private_addresses": True})
    assert (answer.status, answer.json["type"]) == (502, "urn:toolyard:problem:unreachable")
    assert await local_site.services.registry.list_servers() == []


async def test_servers_of_files_are_recognised(open_site: Opening) -> None:
    stdio = {"command": "npx", "args": ["-y", "@scope/pkg@1.2", "x"], "enabled": False}
    local = await open_site({"mine": stdio, "far": {"url": "https://FAR.example/mcp/", "enabled": False}})
    entry = {"command": "npx", "args": ["-y", "@scope/pkg"]}
    program = KnownServer("pkg", "Pkg", "A package.", entry, SignInMethod.NONE)
    offer(
        local,
        program,
        build_known_server("far-away", "https://far.example/mcp"),
        build_known_server("other", "https://o.example/mcp"),
    )
    items = (await local.client().get("/api/v1/catalog")).json["items"]
    added_by_id = {each["id"]: each["added"] and each["added"]["id"] for each in items}
    assert added_by_id == {"pkg": "mine", "far-away": "far", "other": None}
    page = await ScriptlessBrowser(local.client()).get("/ui/catalog")
    assert page.root.one("li", id="known-pkg").all("a", href="/ui/admin/mcp/files/mine")


async def test_the_api_adds_a_server_once(password_site: InProcessApp, docs: str) -> None:
    root, ann = await password_site.person("root", Role.ADMIN), await password_site.person("ann")
    offer(password_site, build_known_server("docs", docs))
    assert (await ann.token.post("/api/v1/catalog/docs", {})).status == 403
    response = await root.token.post("/api/v1/catalog/docs", {})
    assert (response.status, "private" in response.text) == (502, True)
    created_response = await root.token.post("/api/v1/catalog/docs", {"private_addresses": True})
    assert (created_response.status, created_response.json["name"], created_response.json["url"]) == (
        201,
        "Docs",
        docs,
    )
    again = await root.token.post("/api/v1/catalog/docs", {"private_addresses": True})
    assert (again.status, "is already there as 'Docs'" in again.text) == (409, True)
    assert (await root.token.post("/api/v1/catalog/nothing", {})).status == 404
    (item,) = (await ann.token.get("/api/v1/catalog?q=docs")).json["items"]
    assert item["added"] == {"origin": "registry", "id": created_response.json["id"], "name": "Docs"}


async def test_users_connect_to_added_servers(password_site: InProcessApp) -> None:
    offer(
        password_site,
        build_known_server("docs", "https://docs.example/mcp"),
        build_known_server("other", "https://other.example/mcp"),
    )
    server = await password_site.services.registry.add_server(ServerDraft("D", "https://docs.example/mcp/"))
    page = await ScriptlessBrowser((await password_site.person("ann")).browser).get("/ui/catalog")
    check(page)
    assert page.root.one("li", id="known-docs").all("a", href=f"/ui/mcp/new?server={server.id}")
    assert not page.root.one("main").all("form", method="post")


# Pasted texts.


async def paste(browser: ScriptlessBrowser, text: str) -> ScriptlessPage:
    return await browser.send(await browser.get("/ui/catalog"), "/ui/catalog", {"text": text})


async def test_a_pasted_url_or_entry_is_added(local_site: InProcessApp, docs: str) -> None:
    me = ScriptlessBrowser(local_site.client())
    for name, text in (("docs-server", docs), ("Mine", json.dumps({"mcpServers": {"Mine": {"url": docs}}}))):
        page = await paste(me, text)
        page = await me.send(page, "/ui/admin/mcp/new", press=("do", "allow-private"))
        assert page.path.startswith("/ui/mcp/"), page.text
        assert page.root.one("h1").text == name


async def test_a_key_in_a_pasted_entry_is_left_out_and_said_so(local_site: InProcessApp) -> None:
    me, secret = ScriptlessBrowser(local_site.client()), "sk-abcdefghijklmnopqrst"
    page = await paste(me, json.dumps({"url": "https://x.example/mcp", "headers": {"X-Key": secret}}))
    assert "The key in the entry is not stored." in page.text
    assert secret not in page.html
    assert page.root.one("input", id="choices-0-key").attrs["value"] == "X-Key"
    assert await local_site.services.registry.list_servers() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "neither a URL nor an entry"),
        ("nothing", "neither a URL"),
        ("{", "Not valid JSON"),
        ('{"command": "npx", "args": ["x"]}', "starts a program"),
        ('{"a": {"url": "https://a.example"}, "b": {"url": "https://b.example"}}', "2 servers"),
        ("https://a.example https://b.example", "neither a URL"),
    ],
)
async def test_a_text_that_is_not_one_server_is_explained(
    local_site: InProcessApp, text: str, words: str
) -> None:
    page = await paste(ScriptlessBrowser(local_site.client()), text)
    assert page.status == 422
    alert = page.root.one("div", class_="alert")
    assert words in alert.text
    assert words in page.root.one("p", id="text-error").text
    assert [each.attrs["href"] for each in alert.all("a")] == ["#text"]
    assert page.root.one("textarea", id="text").text == " ".join(text.split())


async def test_an_admin_searches_the_public_registry_by_a_button_only(open_site: Opening) -> None:
    with serve_public_registry() as registry:
        team = await open_site({}, people_mode="password", public_registry=registry.url)
        admin = ScriptlessBrowser((await team.person("root", Role.ADMIN)).browser)
        assert not (await admin.get("/ui/catalog")).root.all("section", id="public")
        page = await admin.get("/ui/catalog?q=example")
        assert registry.paths == []
        found_page = await admin.send(page, "/ui/catalog/_public")
        check(found_page)
        assert registry.paths == ["/v0.1/servers?search=example&limit=20&version=latest"]
        section = found_page.root.one("section", id="public")
        assert [each.text for each in section.all("h3")] == ["io.example/weather", "io.example/remote"]
        weather, remote = section.all("li", class_="known")
        assert weather.one("pre").text.endswith(" add io.example/weather")
        assert not weather.all("form")
        assert "not checked" in remote.text
        form = await admin.send(found_page, "/ui/catalog/_public/add")
        check(form)
        assert form.h1 == "Add a server"
        assert form.value("url") == "https://MCP_IO_EXAMPLE__REMOTE_TENANT.example/mcp"
        assert form.value("name") == "io.example/remote"
        assert "In the URL, replace MCP_IO_EXAMPLE__REMOTE_TENANT: Tenant." in form.text
        assert await team.services.registry.list_servers() == []
        ann = await team.person("ann")
        browser = ScriptlessBrowser(ann.browser)
        assert not (await browser.get("/ui/catalog?q=example")).root.all("section", id="public")


async def test_a_public_registry_that_fails_or_finds_nothing_says_so(open_site: Opening) -> None:
    with serve_public_registry() as registry:
        local = await open_site({}, public_registry=registry.url)
        me = ScriptlessBrowser(local.client())
        nothing = await me.send(await me.get("/ui/catalog?q=zzz"), "/ui/catalog/_public")
        assert "No server matches your search." in nothing.root.one("section", id="public").text
        page = await me.send(await me.get("/ui/catalog?q=example"), "/ui/catalog/_public")
    refused_page = await me.send(page, "/ui/catalog/_public/add")
    assert "The public registry was not searched" in refused_page.text


async def test_without_the_setting_the_public_registry_is_off(local_site: InProcessApp) -> None:
    me = ScriptlessBrowser(local_site.client())
    page = await me.get("/ui/catalog?q=github")
    assert not page.root.all("section", id="public")
    client = local_site.client()
    assert (await client.post("/api/v1/catalog/_public", {})).status == 404
