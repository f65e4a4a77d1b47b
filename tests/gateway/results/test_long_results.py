"""Results that are too much for a model, at the gateway: head, tail and a link that their owner can read."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import aiohttp
import pytest
from tests.gateway.conftest import (
    LARGE,
    LONG_LIST_DEADLINE,
    LegacyClient,
    ModernClient,
    Reply,
    passthrough_entry,
)
from tests.gateway.large_results_server import data, words
from tests.web.conftest import InProcessApp

from toolyard.meta_tools.meta_tools import missing_result_message
from toolyard.store.sql.tables import results
from toolyard.types.account import Right, TokenScope

LONG_RESULT_CHARACTERS = 150_000
UNKNOWN_RESOURCE = "toolyard://results/r0123456789abcdef0123"


async def client(http: aiohttp.ClientSession, url: str, version: str, **head: str) -> ModernClient:
    if version == "2026-07-28":
        return ModernClient(http, url, headers=head)
    old = LegacyClient(http, url, headers=head, version=version)
    await old.begin()
    return old


async def read(client: ModernClient, uri: str) -> dict[str, Any]:
    (content,) = (await client.ask("resources/read", {"uri": uri})).result["contents"]
    assert content["uri"] == uri
    return content


def uri_in(reply: Reply) -> str:
    """The address that the text names, for whoever does not see links."""
    match = re.search(r"resources/read of (\S+) reads", json.dumps(reply.result["content"]))
    assert match is not None
    return match[1]


@pytest.fixture
async def large(open_site: Any) -> InProcessApp:
    return await open_site(
        {"large": LARGE, "one": passthrough_entry("one")}, list_deadline=LONG_LIST_DEADLINE
    )


ERAS = ["2026-07-28", "2025-11-25", "2025-06-18"]


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("address", ["mcp", "mcp/servers/large"])
async def test_a_long_text_has_a_link_to_the_whole(
    large: InProcessApp, http: aiohttp.ClientSession, version: str, address: str
) -> None:
    here = await client(http, f"{large.url}/{address}", version)
    reply = await here.call("large_text" if address == "mcp" else "text", {"size": LONG_RESULT_CHARACTERS})
    text, link = reply.result["content"]
    assert len(text["text"]) <= 64_000
    assert text["text"].startswith("line 0\n")
    assert text["text"].endswith(words(LONG_RESULT_CHARACTERS)[-1000:])
    assert link["type"] == "resource_link"
    assert (link["mimeType"], link["size"]) == ("text/plain", LONG_RESULT_CHARACTERS)
    assert link["name"]
    assert link["uri"] == uri_in(reply)
    assert await read(here, link["uri"]) == {
        "uri": link["uri"],
        "mimeType": "text/plain",
        "text": words(LONG_RESULT_CHARACTERS),
    }


@pytest.mark.parametrize("version", ["2025-03-26", "2024-11-05"])
async def test_a_revision_without_links_gets_the_address_in_the_text(
    large: InProcessApp, http: aiohttp.ClientSession, version: str
) -> None:
    here = await client(http, f"{large.url}/mcp", version)
    for tool, size in (
        ("text", LONG_RESULT_CHARACTERS),
        ("file", LONG_RESULT_CHARACTERS),
        ("loose", LONG_RESULT_CHARACTERS),
    ):
        reply = await here.call(f"large_{tool}", {"size": size})
        assert {block["type"] for block in reply.result["content"]} == {"text"}
        assert "result_read" not in json.dumps(reply.result)
        assert await read(here, uri_in(reply))


async def test_a_client_that_names_no_revision_gets_no_link(
    large: InProcessApp, http: aiohttp.ClientSession
) -> None:
    reply = await LegacyClient(http, f"{large.url}/mcp").call("large_text", {"size": LONG_RESULT_CHARACTERS})
    assert [block["type"] for block in reply.result["content"]] == ["text"]


async def test_a_link_is_read_in_parts(large: InProcessApp, http: aiohttp.ClientSession) -> None:
    here = ModernClient(http, f"{large.url}/mcp")
    uri = uri_in(await here.call("large_text", {"size": LONG_RESULT_CHARACTERS}))
    core, next_uri = "", f"{uri}?offset=0&length=99999"
    while next_uri is not None:
        part = await read(here, next_uri)
        core += part["text"]
        next_uri = part.get("_meta", {}).get("toolyard/next")
        assert next_uri is None or part["_meta"]["toolyard/total"] == LONG_RESULT_CHARACTERS
    assert core == words(LONG_RESULT_CHARACTERS)
    assert (await read(here, f"{uri}?offset=7"))["text"] == words(LONG_RESULT_CHARACTERS)[7:]
    assert (await read(here, f"{uri}?length=7"))["text"] == words(LONG_RESULT_CHARACTERS)[:7]
    assert (await read(here, f"{uri}?offset=99999999999"))["text"] == ""


async def test_pieces_become_one_text_and_the_servers_own_links_stay(
    large: InProcessApp, http: aiohttp.ClientSession
) -> None:
    here = ModernClient(http, f"{large.url}/mcp")
    text, link, own = (await here.call("large_pieces", {"size": 40_000})).result["content"]
    assert len(text["text"]) <= 64_000
    assert own["uri"] == "large://x"
    assert (await read(here, link["uri"]))["text"] == "a" * 40_000 + "\n" + "b" * 40_000


@pytest.mark.parametrize("version", ERAS)
async def test_a_large_file_is_read_by_its_link(
    large: InProcessApp, http: aiohttp.ClientSession, version: str
) -> None:
    here = await client(http, f"{large.url}/mcp/servers/large", version)
    reply = await here.call("file", {"size": LONG_RESULT_CHARACTERS})
    content, about, link = reply.result["content"]
    assert content["text"] == "see"
    assert re.search(r"large://f: application/zip, 150,000 bytes, sha256 [0-9a-f]{16};", about["text"])
    assert (link["mimeType"], link["size"]) == ("application/zip", LONG_RESULT_CHARACTERS)
    whole = await read(here, link["uri"])
    assert (whole["blob"], whole["mimeType"]) == (data(LONG_RESULT_CHARACTERS), "application/zip")
    part = await read(here, f"{link['uri']}?offset=256&length=512")
    assert base64.b64decode(part["blob"]) == bytes(range(256)) * 2
    assert part["_meta"] == {
        "toolyard/next": f"{link['uri']}?offset=768&length=512",
        "toolyard/total": LONG_RESULT_CHARACTERS,
    }


async def test_short_results_pass_unchanged(large: InProcessApp, http: aiohttp.ClientSession) -> None:
    here = ModernClient(http, f"{large.url}/mcp")
    for tool, size in (("text", 64_000), ("file", 40_000), ("picture", 5_000_000), ("promised", 60_000)):
        content = (await here.call(f"large_{tool}", {"size": size})).result["content"]
        assert "toolyard://" not in json.dumps(content)
    assert content == [{"type": "text", "text": words(60_000)}]


async def test_a_picture_that_no_model_takes_is_a_link(
    large: InProcessApp, http: aiohttp.ClientSession
) -> None:
    here = ModernClient(http, f"{large.url}/mcp")
    about, link = (await here.call("large_picture", {"size": 5_000_001})).result["content"]
    assert "image/png, 5,000,001 bytes" in about["text"]
    assert (await read(here, link["uri"]))["blob"] == data(5_000_001)


# Structured content.


async def test_a_promised_text_is_shortened_in_its_place(
    large: InProcessApp, http: aiohttp.ClientSession
) -> None:
    here = ModernClient(http, f"{large.url}/mcp")
    result = (await here.call("large_promised", {"size": LONG_RESULT_CHARACTERS})).result
    assert [block["type"] for block in result["content"]] == ["text", "resource_link"]
    assert len(result["structuredContent"]["result"]) <= 64_000
    assert result["content"][1]["uri"] in result["structuredContent"]["result"]
    assert (await read(here, result["content"][1]["uri"]))["text"] == words(LONG_RESULT_CHARACTERS)


async def test_results_that_cannot_be_shortened_stay_whole_if_a_schema_promises_them(
    large: InProcessApp, http: aiohttp.ClientSession
) -> None:
    result = (
        await ModernClient(http, f"{large.url}/mcp").call("large_rows", {"size": LONG_RESULT_CHARACTERS})
    ).result
    assert result["content"] == [{"type": "text", "text": "some rows"}]
    assert result["structuredContent"] == {"rows": list(range(LONG_RESULT_CHARACTERS))}


async def test_results_without_a_schema_become_links(
    large: InProcessApp, http: aiohttp.ClientSession
) -> None:
    here = ModernClient(http, f"{large.url}/mcp")
    result = (await here.call("large_loose", {"size": LONG_RESULT_CHARACTERS})).result
    assert "structuredContent" not in result
    content, about, link = result["content"]
    assert content["text"] == "some rows"
    assert "structured content" in about["text"]
    assert json.loads((await read(here, link["uri"]))["text"]) == {
        "rows": list(range(LONG_RESULT_CHARACTERS))
    }


# Through the meta tools.


async def test_the_meta_tools_say_the_handle_and_link_it(
    large: InProcessApp, http: aiohttp.ClientSession
) -> None:
    here = ModernClient(http, f"{large.url}/mcp?mode=meta")
    call_params = {"name": "large_text", "arguments": {"size": LONG_RESULT_CHARACTERS}}
    reply = await here.call("tools_call", call_params)
    handle = json.loads(reply.text)["handle"]
    (_, link) = reply.result["content"]
    assert link["uri"] == f"toolyard://results/{handle}"
    assert (await read(here, link["uri"]))["text"] == words(LONG_RESULT_CHARACTERS)
    old = await client(http, f"{large.url}/mcp?mode=meta", "2025-03-26")
    assert len((await old.call("tools_call", call_params)).result["content"]) == 1


@pytest.mark.parametrize(("tool", "size"), [("file", 3_000), ("picture", 5_000_001)])
async def test_the_meta_tools_read_bytes(
    large: InProcessApp, http: aiohttp.ClientSession, tool: str, size: int
) -> None:
    here = ModernClient(http, f"{large.url}/mcp?mode=meta")
    reply = await here.call("tools_call", {"name": f"large_{tool}", "arguments": {"size": size}})
    (_, link) = reply.result["content"]
    handle = re.search(r'result_read with handle "(\w+)"', json.loads(reply.text)["result"])
    assert handle is not None
    assert link["uri"].endswith(handle[1])
    part = json.loads((await here.call("result_read", {"handle": handle[1], "offset": 16})).text)
    assert part["text"].startswith("00000010  10 11 12")
    assert part["total"] == size
    assert "hex dump" in part["note"]


async def test_where_meta_tools_are_offered_beside_the_text_says_so(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    services = await open_site(
        {"large": LARGE, "far": passthrough_entry("far", trust="untrusted", allowTools=["odd"])},
        write_tools="allow",
        list_deadline=LONG_LIST_DEADLINE,
    )
    here = ModernClient(http, f"{services.url}/mcp")
    assert "result_read" in {tool["name"] for tool in (await here.ask("tools/list")).result["tools"]}
    assert (
        'result_read with handle "r' in (await here.call("large_text", {"size": LONG_RESULT_CHARACTERS})).text
    )


async def test_an_untrusted_servers_text_stays_fenced(open_site: Any, http: aiohttp.ClientSession) -> None:
    services = await open_site(
        {"large": {**LARGE, "trust": "untrusted", "allowTools": ["text"]}},
        write_tools="allow",
        list_deadline=LONG_LIST_DEADLINE,
    )
    here = ModernClient(http, f"{services.url}/mcp?mode=meta")
    reply = await here.call(
        "tools_call", {"name": "large_text", "arguments": {"size": LONG_RESULT_CHARACTERS}}
    )
    text = (await read(here, reply.result["content"][1]["uri"]))["text"]
    assert "untrusted server 'large'" in text.partition("\n")[0]
    assert words(LONG_RESULT_CHARACTERS) in text


# Whose they are.


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("address", ["mcp", "mcp/servers/large", "mcp/servers/one"])
async def test_foreign_expired_and_invented_handles_are_unknown_resources(
    open_site: Any, http: aiohttp.ClientSession, version: str, address: str
) -> None:
    services = await open_site({"large": LARGE, "one": passthrough_entry("one")}, people_mode="password")
    ann, bob = [
        {"Authorization": f"Bearer {(await services.person(name)).secret}"} for name in ("ann", "bob")
    ]
    anns = await client(http, f"{services.url}/mcp", version, **ann)
    uri = uri_in(await anns.call("large_text", {"size": LONG_RESULT_CHARACTERS}))
    assert (await read(anns, uri))["text"] == words(LONG_RESULT_CHARACTERS)
    bobs = await client(http, f"{services.url}/{address}", version, **bob)

    async def read_refusal(client: ModernClient, uri: str) -> Any:
        reply = await client.ask("resources/read", {"uri": uri})
        return reply.status, json.loads(json.dumps(reply.error).replace(uri, "URI"))

    unknown = await read_refusal(bobs, "toolyard://nothing")
    assert await read_refusal(bobs, uri) == unknown
    assert await read_refusal(bobs, f"{uri}?offset=5") == unknown
    assert await read_refusal(bobs, UNKNOWN_RESOURCE) == unknown
    assert await read_refusal(bobs, f"{uri}/../x") == unknown
    executor = services.services.database.executor
    await executor.write(lambda connection: connection.execute(results.update().values(expires_at=1.0)))
    assert await read_refusal(anns, uri) == await read_refusal(anns, "toolyard://nothing")


async def test_a_token_for_one_server_reads_nothing_of_another(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    services = await open_site({"large": LARGE, "one": passthrough_entry("one")})
    uri = uri_in(
        await ModernClient(http, f"{services.url}/mcp").call("large_text", {"size": LONG_RESULT_CHARACTERS})
    )
    assert await read(ModernClient(http, f"{services.url}/mcp/servers/large"), uri)
    elsewhere = await ModernClient(http, f"{services.url}/mcp/servers/one").ask(
        "resources/read", {"uri": uri}
    )
    assert elsewhere.error["code"] == -32602
    team = await open_site({"large": LARGE, "one": passthrough_entry("one")}, people_mode="password")
    person = await team.person("ann")
    scope = TokenScope(frozenset(Right) - {Right.ADMIN}, servers=("one",))
    _, narrow = await team.services.people.create_token(person.user, "narrow", scope, None)
    wide = ModernClient(http, f"{team.url}/mcp", headers={"Authorization": f"Bearer {person.secret}"})
    uri = uri_in(await wide.call("large_text", {"size": LONG_RESULT_CHARACTERS}))
    bearer = {"Authorization": f"Bearer {narrow}"}
    other = ModernClient(http, f"{team.url}/mcp", headers=bearer)
    assert (await other.ask("resources/read", {"uri": uri})).error["code"] == -32602
    handle = uri.rpartition("/")[2]
    through = ModernClient(http, f"{team.url}/mcp?mode=meta", headers=bearer)
    answer = (await through.call("result_read", {"handle": handle})).result["structuredContent"]
    assert answer == {"ok": False, "error": missing_result_message(handle)}
    own = ModernClient(http, f"{team.url}/mcp?mode=meta", headers=wide.headers)
    assert (await own.call("result_read", {"handle": handle})).result["structuredContent"]["ok"]


async def test_a_server_without_resources_has_an_empty_list_of_them(
    large: InProcessApp, http: aiohttp.ClientSession
) -> None:
    here = await client(http, f"{large.url}/mcp/servers/large", "2025-11-25")
    capabilities = (await here.begin()).result["capabilities"]
    assert capabilities["resources"] == {}
    assert (await here.ask("resources/list")).result["resources"] == []
    assert (await here.ask("resources/templates/list")).result["resourceTemplates"] == []
    assert (await here.ask("resources/read", {"uri": "x://y"})).error["code"] == -32602
    assert (await here.ask("prompts/list")).error["code"] == -32601


async def test_a_server_that_is_called_results_keeps_its_resources(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    services = await open_site({"results": passthrough_entry("results"), "one": passthrough_entry("one")})
    here = ModernClient(http, f"{services.url}/mcp")
    response = await here.ask("resources/read", {"uri": "toolyard://results/odd://same"})
    assert response.result["contents"][0]["text"] == "odd://same of results"


async def test_a_toolyard_behind_a_toolyard_is_read(open_site: Any, http: aiohttp.ClientSession) -> None:
    behind = await open_site({"large": LARGE})
    front = await open_site({"up": {"url": f"{behind.url}/mcp/servers/large"}})
    for address, name in (("mcp", "up_text"), ("mcp/servers/up", "text")):
        here = ModernClient(http, f"{front.url}/{address}")
        reply = await here.call(name, {"size": LONG_RESULT_CHARACTERS})
        assert (await read(here, reply.result["content"][1]["uri"]))["text"] == words(LONG_RESULT_CHARACTERS)
        assert len(reply.result["content"]) == 2


async def test_any_replica_reads_it(open_site: Any, http: aiohttp.ClientSession, postgres_url: str) -> None:
    settings = {"database_url": postgres_url, "secret_key": "a key for tests, long enough"}
    here, sites = [await open_site({"large": LARGE}, **settings) for _ in range(2)]
    for tool, kind, whole in (
        ("text", "text", words(LONG_RESULT_CHARACTERS)),
        ("file", "blob", data(LONG_RESULT_CHARACTERS)),
    ):
        uri = uri_in(
            await ModernClient(http, f"{here.url}/mcp").call(
                f"large_{tool}", {"size": LONG_RESULT_CHARACTERS}
            )
        )
        assert (await read(ModernClient(http, f"{sites.url}/mcp"), uri))[kind] == whole
