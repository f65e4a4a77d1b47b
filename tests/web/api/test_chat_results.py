"""What calls in a chat came to: whole texts, pictures and files that run nowhere, and the chat as a file."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from markdown_it import MarkdownIt
from tests.web.chat.chat_client import (
    begin,
    models_at,
    of_kind,
    open_stream,
    results_server,
    run,
    say,
    wait_for_end,
)

from toolyard.agents.chat.markdown_export import format_code_fence

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram
    from tests.web.conftest import Opening

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SCRIPT = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
PAGE = b"<html><script>alert(1)</script></html>"


@pytest.fixture
async def local(open_site: Opening) -> Any:
    return await open_site({"chat": results_server()})


async def result_of(client: Any, chat: str, name: str, **arguments: Any) -> Any:
    turn = await run(client, chat, name, **arguments)
    return next(each for each in await wait_for_end(client, chat, turn - 1) if each.name == "result")


@pytest.mark.parametrize("size", [50_000, 5_000_000])
async def test_the_whole_text_of_a_long_result(local: Any, size: int) -> None:
    """Also of one that is too long for a model, which gets its head, its tail and a handle."""
    client = local.client()
    chat = await begin(client)
    event = await result_of(client, chat, "chat_long", size=size)
    assert len(event.body["text"]) == 4_000
    assert (event.body["length"] == size) is (event.body["handle"] is None)
    answer = await client.get(f"/api/v1/chats/{chat}/results/{event.seq}")
    assert answer.status == 200
    assert answer.text == "0123456789" * (size // 10)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    inert(answer)


def inert(answer: Any) -> None:
    """A browser runs nothing of it."""
    policies = answer.headers.getall("content-security-policy")
    assert "sandbox; default-src 'none'" in policies
    assert "allow-scripts" not in str(policies)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("mime", "data", "media_type", "shown"),
    [
        ("image/png", PNG, "image/png", True),
        ("IMAGE/PNG; charset=x", PNG, "image/png", True),
        ("audio/wav", b"RIFF", "audio/wav", True),
        ("image/svg+xml", SCRIPT, "image/svg+xml", False),
        ("image/svg+xml; charset=utf-8", SCRIPT, "image/svg+xml", False),
        ("text/html", PAGE, "application/octet-stream", False),
        ("application/xhtml+xml", PAGE, "application/octet-stream", False),
        ("text/javascript", b"alert(1)", "application/octet-stream", False),
        ("application/pdf", b"%PDF-1.4", "application/pdf", False),
        ("application/x-unheard-of", b"?", "application/octet-stream", False),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
async def test_media_have_their_bytes_and_a_type_that_runs_nothing(
    local: Any, mime: str, data: bytes, media_type: str, shown: bool
) -> None:
    client = local.client()
    chat = await begin(client)
    event = await result_of(client, chat, "chat_media", mime=mime, data=base64.b64encode(data).decode())
    assert [each["size"] for each in event.body["media"]] == [len(data)]
    path = f"/api/v1/chats/{chat}/results/{event.seq}/media"
    answer = await client.get(f"{path}/0")
    assert (answer.status, answer.body) == (200, data)
    assert answer.headers["content-type"] == media_type
    disposition = answer.headers["content-disposition"]
    assert disposition.startswith("inline;" if shown else "attachment;")
    assert f'filename="result-{event.seq}-0.' in disposition
    assert "set-cookie" not in answer.headers
    inert(answer)
    assert (await client.get(f"{path}/1")).status == 404


async def test_only_results_have_results(local: Any) -> None:
    client = local.client()
    chat = await begin(client)
    event = await result_of(client, chat, "chat_long", size=10)
    calls = await of_kind(client, chat, "call")
    for seq in (calls[0]["seq"], event.seq + 100):
        for path in ("", "/media/0"):
            answer = await client.get(f"/api/v1/chats/{chat}/results/{seq}{path}")
            assert (answer.status, answer.json["type"]) == (404, "urn:toolyard:problem:not-found")
    for seq in ("0", "-1", "x", str(2**63)):
        assert (await client.get(f"/api/v1/chats/{chat}/results/{seq}")).status == 422
    other = await begin(client)
    assert (await client.get(f"/api/v1/chats/{other}/results/{event.seq}")).status == 404


# Export.


async def test_a_chat_is_one_markdown_file(open_site: Opening, model_program: ListeningProgram) -> None:
    local = await open_site({"chat": results_server()}, models=models_at(model_program.url))
    client = local.client()
    chat = await begin(client, title='Long "things" & more/../')
    text = 'think Hmm.\nsay Let me see.\ncall chat_long {"size": 90000}\nthen\nsay It is **long**.'
    await say(client, chat, text)
    await wait_for_end(client, chat)
    answer = await client.get(f"/api/v1/chats/{chat}/export")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="long-things-more.md"'
    inert(answer)
    tokens = MarkdownIt().parse(answer.text)
    headings = [tokens[n + 1].content for n, each in enumerate(tokens) if each.type == "heading_open"]
    assert headings[:2] == ['Long "things" & more/../', "You"]
    assert "`chat_long` (chat)" in headings
    fences = [each.content for each in tokens if each.type == "fence"]
    assert any("0123456789" * 9_000 in each for each in fences), "more than the model got"
    assert any('"size": 90000' in each for each in fences)
    assert "It is **long**." in answer.text
    assert "> Hmm." in answer.text


async def test_a_fence_holds_with_any_text_of_a_tool(open_site: Opening) -> None:
    local = await open_site({"chat": results_server()}, write_tools="allow")
    client = local.client()
    chat = await begin(client)
    tricks = "x\n```\n# Not a heading\n`````\n``\n<script>"
    await result_of(client, chat, "chat_write", text=tricks)
    tokens = MarkdownIt().parse((await client.get(f"/api/v1/chats/{chat}/export")).text)
    headings = [tokens[n + 1].content for n, each in enumerate(tokens) if each.type == "heading_open"]
    assert headings == ["chat_write", "You ran `chat_write`", "`chat_write` (chat)"]
    assert [each.content for each in tokens if each.type == "fence"][-1] == f"wrote {tricks}\n"
    assert not [each for each in tokens if each.type == "html_block"]


@pytest.mark.parametrize("before", [0, 999_997, 1_000_000, 2_999_999])
def test_a_fence_is_longer_than_a_run_that_crosses_parts(before: int) -> None:
    first_line = format_code_fence("x" * before + "`" * 7 + "x`` " * 10).split("\n")[1]
    assert first_line == "`" * 8


async def test_the_export_has_a_question_and_its_answer_without_the_values(local: Any) -> None:
    client = local.client()
    chat = await begin(client)
    await run(client, chat, "chat_ask")
    async with open_stream(client, chat) as stream:
        event_body = await stream.until("question")
        reply = {"action": "accept", "content": {"city": "Oslo"}}
        await client.post(f"/api/v1/chats/{chat}/questions/{event_body.body['id']}", reply)
        await stream.until("end")
    text = (await client.get(f"/api/v1/chats/{chat}/export")).text
    assert "Where do you live?" in text
    assert "You replied: accept." in text
    message_seq = (await of_kind(client, chat, "answered"))[0]["seq"]
    assert (await client.get(f"/api/v1/chats/{chat}/results/{message_seq}")).status == 404


async def test_the_export_has_the_text_of_a_running_turn_so_far(
    open_site: Opening, model_program: ListeningProgram
) -> None:
    local = await open_site(models=models_at(model_program.url))
    client = local.client()
    chat = await begin(client, title="T")
    await say(client, chat, "say Half an answer", "hold")
    async with open_stream(client, chat) as stream:
        event_text = ""
        while "answer" not in event_text:
            event_text += (await stream.until("text")).body["delta"]
        assert "Half an answer" in (await client.get(f"/api/v1/chats/{chat}/export")).text
        await client.post(f"/api/v1/chats/{chat}/stop")
        await stream.until("end")
    answer = (await client.get(f"/api/v1/chats/{chat}/export")).text
    assert answer.count("Half an answer") == 2, "what was asked for, and what came"
    assert "The turn ended: stopped" in answer
