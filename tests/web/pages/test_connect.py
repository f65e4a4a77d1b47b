"""The page that connects other clients: its snippets work as they stand, with the token that it makes."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.test_client_snippets import URL_KEYS
from tests.web.conftest import InProcessApp, Opening
from tests.web.scriptless_browser import ScriptlessBrowser, ScriptlessPage

from toolyard.gateway.client_snippets import CLIENT_FORMATS
from toolyard.types.account import Right, TokenScope
from toolyard.types.agent import Agent

REQUEST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def entry(page: ScriptlessPage, label: str = "the entry") -> Any:
    """What a snippet says, read as the client would."""
    (block,) = page.root.all("pre", aria_label=label)
    text = "".join(child for child in block.one("code").children if isinstance(child, str))
    if text.startswith("["):
        return tomllib.loads(text)["mcp_servers"]["toolyard"]
    (servers,) = json.loads(text).values()
    return servers["toolyard"]


async def test_alone_no_token_is_needed_and_a_program_can_be_started(local_site: InProcessApp) -> None:
    me = ScriptlessBrowser(local_site.client())
    for client in CLIENT_FORMATS:
        page = await me.get(f"/ui/connect?client={client}")
        assert page.status == 200
        assert not page.root.all("form", method="post", action="/ui/connect")
        assert "toolyard" in json.dumps(entry(page, "the entry for the local command"))
        if client != "claude-desktop":
            assert entry(page)[URL_KEYS.get(client, "url")] == f"{local_site.url}/mcp"
            assert "headers" not in entry(page)
    assert "local commands only" in (await me.get("/ui/connect?client=claude-desktop")).text
    answer = await local_site.client(Accept="application/json, text/event-stream").post("/mcp", REQUEST)
    assert answer.status == 200


async def test_a_snippet_for_a_program_uses_our_own_settings(local_site: InProcessApp) -> None:
    page = await ScriptlessBrowser(local_site.client()).get("/ui/connect?client=cursor")
    local_entry, folder = entry(page, "the entry for the local command"), local_site.services.data_dir
    places = ["--data-dir", str(folder), "--config", str(folder / "mcp.json")]
    program = [str(Path(sys.executable).with_name("toolyard"))]
    assert [local_entry["command"], *local_entry["args"]] == [*program, *places, "stdio"]
    assert f"{' '.join([*program, *places])} connect cursor --write" in page.text


async def test_a_local_command_works_as_copied(local_site: InProcessApp, tmp_path: Path) -> None:
    for client in ("claude-desktop", "codex", "vscode"):
        page = await ScriptlessBrowser(local_site.client()).get(f"/ui/connect?client={client}")
        made = entry(page, "the entry for the local command")
        # A client that a desktop starts has neither the PATH nor the folder of this process.
        process = await asyncio.create_subprocess_exec(
            made["command"],
            *made["args"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TOOLYARD_STANDALONE": "1"},
        )
        requests = [
            REQUEST,
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        ]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"".join(json.dumps(each).encode() + b"\n" for each in requests))
        async with asyncio.timeout(60):
            while (answer := json.loads(await process.stdout.readline())).get("id") != 2:
                pass
        assert "demo_count" in [tool["name"] for tool in answer["result"]["tools"]]
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 60)


@pytest.mark.parametrize("client", [name for name in CLIENT_FORMATS if name != "claude-desktop"])
async def test_a_token_is_made_for_the_client_and_opens_the_address(
    password_site: InProcessApp, client: str
) -> None:
    person = await password_site.person("bob")
    bob = ScriptlessBrowser(person.browser)
    page = await bob.get(f"/ui/connect?client={client}&offer=server%2Fdemo")
    assert not page.root.all("pre", aria_label="the entry for the local command")
    response = await bob.send(page, page.root.one("form", method="post", action="/ui/connect"))
    assert response.status == 200
    text = response.root.one("input", id="token-text").attrs["value"]
    assert re.fullmatch(r"ty_[\w-]{20,}", text)
    shown_entry = entry(response)
    headers = shown_entry.get("headers") or shown_entry["http_headers"]
    url = shown_entry[URL_KEYS.get(client, "url")]
    assert url == f"{password_site.url}/mcp/servers/demo"
    assert headers == {"Authorization": f"Bearer {text}"}
    principal = await password_site.services.people.authenticate_token(text)
    assert principal is not None
    assert (principal[0].name, principal[0].scope) == (
        CLIENT_FORMATS[client].title,
        TokenScope(frozenset({Right.CALL}), servers=("demo",)),
    )
    accept = {"Accept": "application/json, text/event-stream", **headers}
    path = url.removeprefix(password_site.url)
    assert (await password_site.client(**accept).post(path, REQUEST)).status == 200
    assert (await password_site.client(**accept).get("/api/v1/tools")).status == 403
    assert text not in (await bob.get(f"/ui/connect?client={client}")).html
    assert CLIENT_FORMATS[client].title in (await bob.get("/ui/tokens")).text


async def test_each_offer_has_its_address_and_its_bounds(open_site: Opening, demo: dict[str, Any]) -> None:
    agent = Agent(id="code-reader", name="Code Reader", prompt="Read.")
    local = await open_site({"demo": demo}, people_mode="password", agents=(agent,))
    bob = ScriptlessBrowser((await local.person("bob")).browser)
    page = await bob.get("/ui/connect?client=cursor&offer=agent%2Fcode-reader")
    assert entry(page)["url"] == f"{local.url}/mcp/agents/code-reader"
    page = await bob.send(page, page.root.one("form", method="post", action="/ui/connect"))
    principal = await local.services.people.authenticate_token(
        page.root.one("input", id="token-text").attrs["value"]
    )
    assert principal is not None
    assert principal[0].scope == TokenScope(frozenset({Right.CALL}), agents=("code-reader",))
    tabs = [each.attrs["href"] for each in page.root.one("nav", aria_label="Clients").all("a")]
    assert "/ui/connect?client=codex&offer=agent%2Fcode-reader" in tabs
    for nonsense in ("offer=agent%2Fabsent", "client=absent", "offer=%00"):
        page = await bob.get(f"/ui/connect?{nonsense}")
        assert page.status == 200
        assert entry(page)["url"] == f"{local.url}/mcp"


async def test_where_there_are_too_many_tokens_the_page_says_so(password_site: InProcessApp) -> None:
    person = await password_site.person("bob")
    bob = ScriptlessBrowser(person.browser)
    page = await bob.get("/ui/connect")
    for number in range(199):
        await password_site.services.people.create_token(
            person.user, f"t{number}", TokenScope(frozenset({Right.CALL})), None
        )
    again = await bob.send(page, page.root.one("form", method="post", action="/ui/connect"))
    assert again.status == 422
    assert "already have 200 tokens" in again.text


async def test_a_form_of_elsewhere_and_a_token_make_none(password_site: InProcessApp) -> None:
    person = await password_site.person("bob")
    answer = await password_site.client(**person.browser.headers, Origin=password_site.url).ask(
        "POST",
        "/ui/connect",
        data="client=cursor",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert answer.status == 403
    assert (await person.token.get("/ui/connect")).status == 403
    assert (await password_site.client().get("/ui/connect")).status == 303
