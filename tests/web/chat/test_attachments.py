"""Attachments over HTTP: what is accepted, what the model gets, who reads them, and bad input."""

from __future__ import annotations

import asyncio
import re
import resource
import zlib
from collections.abc import AsyncIterator, Iterable
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import pytest
from sqlalchemy import func, select
from tests.web.chat.chat_client import begin, models_at, of_kind, wait_for_end
from tests.web.server.test_request_bodies import Upload, as_token

from toolyard.store.sql.tables import attachment_chunks, attachments

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram
    from tests.web.conftest import InProcessApp, Opening, Starting


def chunk(name: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")


def png(width: int = 2, height: int = 2) -> bytes:
    """A real picture, if its dimensions are small; otherwise its head claims more than there is."""
    rows = (b"\0" + b"\xd0\x40\x20" * 2) * 2
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\0\0\0"
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


GIF = b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;"
NOTES = "".join(f"line {number}: größe\n" for number in range(2_000))


@pytest.fixture
async def yard(open_site: Opening, model_program: ListeningProgram) -> Any:
    models = models_at(model_program.url)
    models["seeing"] = {**models["fake"], "sees": True, "label": "Sees"}
    local = await open_site(people_mode="password", models=models)
    local.model = model_program
    return local


async def upload(client: Any, name: str, data: Any) -> Any:
    headers = {"Content-Type": "application/octet-stream"}
    content = BytesIO(data) if isinstance(data, bytes) else data
    return await client.post(f"/api/v1/attachments?name={quote(name)}", data=content, headers=headers)


async def _as_stream(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def attach(client: Any, name: str, data: bytes) -> str:
    answer = await upload(client, name, data)
    assert answer.status == 201, answer.text
    return answer.json["id"]


async def send(client: Any, chat: str, text: str, *ids: str) -> Any:
    return await client.post(f"/api/v1/chats/{chat}/messages", {"text": text, "attachments": list(ids)})


async def count_rows(local: InProcessApp) -> tuple[int, ...]:
    def work(connection: Any) -> tuple[int, ...]:
        tables = attachments, attachment_chunks
        return tuple(
            connection.execute(select(func.count()).select_from(each)).scalar_one() for each in tables
        )

    return await local.services.database.executor.read(work)


async def journal(local: Any) -> list[dict[str, Any]]:
    async with local.clients[0].session.get(f"{local.model.url}/journal") as response:
        return await response.json()


# What the model gets.


async def test_a_model_that_sees_gets_the_picture_now_and_in_later_turns(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat, id = await begin(ada, model="seeing"), await attach(ada, "sun set.png", png())
    answer = await send(ada, chat, "image?", id)
    assert answer.status == 202, answer.text
    assert [each.body["text"] for each in await wait_for_end(ada, chat) if each.name == "said"] == [
        "image: yes"
    ]
    turn = (await send(ada, chat, "say later")).json["turn"]
    await wait_for_end(ada, chat, turn)
    for request in await journal(yard):
        content = request["messages"][0]["content"]
        assert [part["type"] for part in content] == ["text", "text", "image_url"]
        assert f'"sun set.png" (image/png, {len(png())} bytes)' in content[1]["text"]
        assert content[2]["image_url"]["url"].startswith("data:image/png;base64,")
    (first, second) = await of_kind(ada, chat, "user")
    attachment = {"id": id, "name": "sun set.png", "mime": "image/png", "size": len(png())}
    assert first["body"]["attachments"] == [attachment]
    assert "attachments" not in second["body"]


async def test_the_model_reads_a_text_file_in_parts(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat, id = await begin(ada, model="fake"), await attach(ada, "notes.txt", NOTES.encode())
    script = f'call result_read {{"handle": "{id}", "offset": 20, "length": 30}}'
    script += f'\ncall result_read {{"handle": "{id}", "grep": "line 1999"}}\nthen\nresults?'
    assert (await send(ada, chat, script, id)).status == 202
    results = [each.body for each in await wait_for_end(ada, chat) if each.name == "result"]
    assert [each["ok"] for each in results] == [True, True]
    texts = " ".join(each["text"].replace("\\n", "\n") for each in results)
    assert NOTES[20:40] in texts
    assert "2000: line 1999: größe" in texts
    (first, *_) = await journal(yard)
    size = len(NOTES.encode())
    assert (
        f'[Attached file "notes.txt" (text/plain, {size:,} bytes). Read it with result_read, handle "{id}".]'
        in (str(first["messages"][0]["content"]))
    )
    assert "result_read" in [tool["function"]["name"] for tool in first["tools"]]
    assert "größe" not in str(first["messages"]), "the content is read by result_read only"


async def test_a_model_that_does_not_see_is_refused_pictures_before_the_message_is_sent(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat, id = await begin(ada, model="fake"), await attach(ada, "x.gif", GIF)
    answer = await send(ada, chat, "image?", id)
    assert (answer.status, answer.json["detail"]) == (409, "fake does not accept images")
    assert "choose a model that does" in answer.json["hint"]
    assert await journal(yard) == []
    # It stays for another model.
    await ada.patch(f"/api/v1/chats/{chat}", {"model": "seeing"})
    assert (await send(ada, chat, "image?", id)).status == 202
    await wait_for_end(ada, chat)
    # After a change back, the picture is named only.
    await ada.patch(f"/api/v1/chats/{chat}", {"model": "fake"})
    turn = (await send(ada, chat, "image?")).json["turn"]
    assert [each.body["text"] for each in await wait_for_end(ada, chat, turn) if each.name == "said"] == [
        "image: no"
    ]
    assert "which is not included here" in str((await journal(yard))[-1]["messages"][0])


async def test_a_retry_sends_the_attachments_again_and_the_export_names_them(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat, id = await begin(ada, model="seeing"), await attach(ada, "x.gif", GIF)
    await send(ada, chat, "image?", id)
    await wait_for_end(ada, chat)
    turn = (await ada.post(f"/api/v1/chats/{chat}/retry")).json["turn"]
    assert [each.body["text"] for each in await wait_for_end(ada, chat, turn) if each.name == "said"] == [
        "image: yes"
    ]
    text = (await ada.get(f"/api/v1/chats/{chat}/export")).text
    assert f"- `x.gif`, `image/gif`, {len(GIF)} bytes" in text


async def test_an_edited_message_keeps_its_attachments_and_gets_more(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat, first = await begin(ada, model="seeing"), await attach(ada, "x.gif", GIF)
    turn = (await send(ada, chat, "say One.", first)).json["turn"]
    await wait_for_end(ada, chat)
    second = await attach(ada, "notes.txt", b"Oslo")
    body = {"text": "image?", "attachments": [second]}
    response = await ada.post(f"/api/v1/chats/{chat}/turns/{turn}/edit", body)
    assert response.status == 202, response.text
    events = await wait_for_end(ada, chat, response.json["turn"])
    assert [each.body["text"] for each in events if each.name == "said"] == ["image: yes"]
    old, new = await of_kind(ada, chat, "user")
    assert [each["name"] for each in old["body"]["attachments"]] == ["x.gif"]
    assert [each["name"] for each in new["body"]["attachments"]] == ["x.gif", "notes.txt"]


async def test_a_refused_edit_leaves_its_attachments_unsent(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat = await begin(ada)
    turn = (await send(ada, chat, "say One.")).json["turn"]
    await wait_for_end(ada, chat)
    await wait_for_end(ada, chat, (await ada.post(f"/api/v1/chats/{chat}/retry")).json["turn"])
    id = await attach(ada, "notes.txt", b"Oslo")
    body = {"text": "say Two.", "attachments": [id]}
    assert (await ada.post(f"/api/v1/chats/{chat}/turns/{turn}/edit", body)).status == 409
    assert (await ada.delete(f"/api/v1/attachments/{id}")).status == 204


# Reading and deletion.


async def test_an_attachment_is_served_as_a_download_under_a_sandbox_policy(yard: Any) -> None:
    ada = await yard.person("ada")
    page = b"<script>alert(1)</script>"
    id = await attach(ada.token, 'pägé "1".html', page)
    answer = await ada.browser.get(f"/api/v1/attachments/{id}")
    assert (answer.status, answer.body) == (200, page)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    disposition = "attachment; filename=\"p?g? '1'.html\"; filename*=UTF-8''p%C3%A4g%C3%A9%20%221%22.html"
    assert answer.headers["content-disposition"] == disposition
    assert "sandbox; default-src 'none'" in answer.headers.getall("content-security-policy")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    picture = await attach(ada.token, "x.gif", GIF)
    answer = await ada.browser.get(f"/api/v1/attachments/{picture}")
    assert (answer.headers["content-type"], answer.body) == ("image/gif", GIF)


async def test_only_its_owner_reads_sends_or_deletes_an_attachment(yard: Any) -> None:
    ada, bob = await yard.person("ada"), await yard.person("bob")
    id = await attach(ada.token, "x.txt", b"hers")
    chat = await begin(bob.token)
    for client in (bob.token, bob.browser):
        assert (await client.get(f"/api/v1/attachments/{id}")).status == 404
        assert (await client.delete(f"/api/v1/attachments/{id}")).status == 404
    assert (await send(bob.token, chat, "Hello", id)).status == 422
    script = f'call result_read {{"handle": "{id}"}}'
    await send(bob.token, chat, script)
    result = next(each for each in await wait_for_end(bob.token, chat) if each.name == "result")
    assert not result.body["ok"]
    assert "hers" not in result.body["text"]
    assert (await yard.client().get(f"/api/v1/attachments/{id}")).status == 401
    wrong_id = id[:-1] + ("0" if id[-1] != "0" else "1")
    assert (await ada.token.get(f"/api/v1/attachments/{wrong_id}")).status == 404
    assert (await ada.token.get(f"/api/v1/attachments/{id}")).text == "hers"


async def test_an_attachment_is_sent_in_one_chat_and_deleted_with_it(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    one, other, id = await begin(ada), await begin(ada), await attach(ada, "x.txt", b"text")
    assert (await send(ada, one, "Hello", id)).status == 202
    await wait_for_end(ada, one)
    answer = await send(ada, other, "Hello", id)
    assert (answer.status, answer.json["type"]) == (422, "urn:toolyard:problem:attachment-refused")
    assert "sent in another chat" in answer.json["detail"]
    assert (await ada.delete(f"/api/v1/attachments/{id}")).status == 404, "it belongs to the message"
    # In the same chat it can be sent again.
    turn = (await send(ada, one, "Again", id)).json["turn"]
    await wait_for_end(ada, one, turn)
    assert (await ada.delete(f"/api/v1/chats/{one}")).status == 204
    assert (await ada.get(f"/api/v1/attachments/{id}")).status == 404
    assert await count_rows(yard) == (0, 0)


async def test_an_attachment_of_a_message_that_a_busy_chat_refuses_can_be_sent_later(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat, id = await begin(ada), await attach(ada, "x.txt", b"text")
    await send(ada, chat, "hold")
    assert (await send(ada, chat, "Hello", id)).json["type"] == "urn:toolyard:problem:chat-busy"
    other = await begin(ada)
    assert (await send(ada, other, "Hello", id)).status == 202


# Bad input.


async def test_a_file_of_100_mb_is_refused_from_its_head(yard: Any) -> None:
    ada = await yard.person("ada")
    for path in ("/api/v1/attachments?name=x.txt", "/ui/chat"):
        big = Upload(yard, path, 300_000_000, as_token(ada))
        if path == "/ui/chat":
            big = Upload(yard, path, 300_000_000, f"Cookie: {ada.browser.headers['Cookie']}")
            big.head = big.head.replace(
                b"application/json\r\nAccept", b"multipart/form-data; boundary=x\r\nAccept"
            )
        else:
            big.head = big.head.replace(b"application/json\r\nAccept", b"application/octet-stream\r\nAccept")
        await big.open()
        assert await big.status() == 413, path
        assert "connection: close" in big.headers
        big.close()
    assert await count_rows(yard) == (0, 0)


async def test_a_file_without_a_declared_length_is_refused_at_the_limit_and_leaves_nothing(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    byte_count = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal byte_count
        while True:
            byte_count += 65_536
            yield b"x" * 65_536

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        answer = await asyncio.wait_for(upload(ada, "endless.txt", endless()), 60)
        assert answer.status == 413
    except aiohttp.ClientError:
        # The connection is closed while the client still sends.
        pass
    assert byte_count < 30_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000
    async with asyncio.timeout(30):
        while await count_rows(yard) != (0, 0):
            await asyncio.sleep(0.01)


REFUSED_FILES = [
    ("empty.txt", b"", "“empty.txt” is empty"),
    ("page.png", b"<html>not a picture</html>", "is not a PNG, JPEG, GIF or WebP image, despite its name"),
    ("half.png", b"\x89PNG\r\n\x1a\nbut not more", "is not a PNG, JPEG, GIF or WebP image"),
    ("paper.pdf", b"%PDF-1.7\n\xe2\xe3\xcf\xd3", "is neither a picture nor a text file"),
    ("latin.txt", "größe".encode("latin-1"), "is neither a picture nor a text file"),
    ("wide.txt", "text".encode("utf-16"), "is neither a picture nor a text file"),
    ("zero.txt", b"text\0text", "is neither a picture nor a text file"),
    ("cut.txt", "grö".encode()[:-1], "is neither a picture nor a text file"),
    ("huge.png", png() + b"\0" * 5_000_000, "models accept images of up to 5,000,000"),
]


@pytest.mark.parametrize(("name", "data", "fault"), REFUSED_FILES, ids=[each[0] for each in REFUSED_FILES])
async def test_a_file_that_no_model_could_use_is_refused_with_the_reason(
    yard: Any, name: str, data: bytes, fault: str
) -> None:
    answer = await upload((await yard.person("ada")).token, name, data)
    assert answer.status == (413 if name == "huge.png" else 422), answer.text
    assert fault in answer.json["detail"]
    if name != "huge.png":
        assert answer.json["hint"] == "attach PNG, JPEG, GIF and WebP pictures, and text files in UTF-8"
    assert await count_rows(yard) == (0, 0)


async def test_a_picture_is_not_decoded_at_any_declared_size(yard: Any) -> None:
    answer = await upload((await yard.person("ada")).token, "bomb.png", png(2**31 - 1, 2**31 - 1))
    assert (answer.status, answer.json["mime"]) == (201, "image/png")


@pytest.mark.parametrize(
    ("name", "stored_name"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ada\\notes.txt", "notes.txt"),
        ("a\x00b\nc\x1b[31m.txt", "a b c [31m.txt"),
        ("photo\u202egpj.exe", "photo gpj.exe"),
        ("zero\u200bwidth\ufeff.txt", "zero width .txt"),
        ("..", "file"),
        ("", "file"),
        ("n" * 300 + ".txt", "n" * 115 + "….txt"),
    ],
)
async def test_a_file_name_has_no_folders_and_no_invisible_characters(
    yard: Any, name: str, stored_name: str
) -> None:
    answer = await upload((await yard.person("ada")).token, name, b"text")
    assert (answer.status, answer.json["name"]) == (201, stored_name)


async def test_a_message_has_at_most_twenty_attachments(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    chat, ids = await begin(ada), [await attach(ada, f"{n}.txt", b"text") for n in range(21)]
    answer = await send(ada, chat, "Hello", *ids)
    assert (answer.status, answer.json["detail"]) == (
        422,
        "the message has 21 attachments; the maximum is 20",
    )
    assert (await send(ada, chat, "Hello", *ids[:20], ids[0])).status == 202


async def test_a_chat_that_is_deleted_meanwhile_loses_nothing_but_itself(yard: Any) -> None:
    ada = (await yard.person("ada")).token
    deleted_chat, id = await begin(ada), await attach(ada, "x.txt", b"text")
    await ada.delete(f"/api/v1/chats/{deleted_chat}")
    assert (await send(ada, deleted_chat, "Hello", id)).status == 404
    assert (await send(ada, await begin(ada), "Hello", id)).status == 202


async def test_an_upload_beyond_the_quota_is_refused_and_leaves_nothing(open_site: Opening) -> None:
    local = await open_site(people_mode="password", attachment_bytes_limit=1_000_000)
    ada = (await local.person("ada")).token
    kept_attachment = await attach(ada, "kept.txt", b"x" * 900_000)
    for size in (200_000, 900_000):
        answer = await upload(ada, "more.txt", b"x" * size)
        assert answer.status == 409, answer.text
        assert "attachment_bytes_limit" in answer.json["hint"]
    assert await count_rows(local) == (1, 4)
    assert (await ada.delete(f"/api/v1/attachments/{kept_attachment}")).status == 204
    await attach(ada, "more.txt", b"x" * 200_000)


async def test_of_uploads_at_once_as_many_are_stored_as_fit(open_site: Opening) -> None:
    local = await open_site(people_mode="password", attachment_bytes_limit=10_000_000)
    ada = (await local.person("ada")).token
    text = b"x" * 3_000_000
    answers = await asyncio.gather(*(upload(ada, f"{number}.txt", text) for number in range(12)))
    assert sorted(answer.status for answer in answers) == [201] * 3 + [409] * 9
    pieces = (bytes(text[start : start + 500_000]) for start in range(0, 500_000, 250_000))
    # An upload of unknown size counts as it arrives.
    assert (await upload(ada, "streamed.txt", _as_stream(pieces))).status == 201


async def test_only_a_body_of_bytes_is_accepted(yard: Any) -> None:
    ada = await yard.person("ada")
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/json"):
        headers = {"Content-Type": kind}
        answer = await ada.browser.post("/api/v1/attachments?name=x", data=b"text", headers=headers)
        assert answer.status == 415, "a form of another site could send it"
        assert "application/octet-stream" in answer.json["detail"]


async def test_an_upload_cut_off_by_kill_9_leaves_one_row_that_expires(serve: Starting) -> None:
    from toolyard.store import Database

    site = await serve()
    half = Upload(site, "/api/v1/attachments?name=x.txt", 5_000_000)
    half.head = half.head.replace(b"application/json\r\nAccept", b"application/octet-stream\r\nAccept")
    await half.open()
    await half.send(b"x" * 1_000_000)
    now = 0.0
    watching = await Database.open(site.data, url=None, secret_key=None, clock=lambda: now)

    async def rows() -> tuple[int, float | None]:
        query = select(func.count(), func.max(attachments.c.expires_at))
        return await watching.executor.read(lambda connection: tuple(connection.execute(query).one()))

    async with asyncio.timeout(30):
        while not (await rows())[0]:
            await asyncio.sleep(0.05)
    site.signal(9)
    await site.ended()
    half.close()
    count, expires_at = await rows()
    assert count == 1
    assert expires_at is not None
    now = expires_at + 1
    await watching.chats.attachments.begin("local", "next.txt")
    assert (await rows())[0] == 1
    await watching.close()


# The form, without the script.


async def form(client: Any, path: str, text: str, *files: tuple[str, bytes], **fields: str) -> Any:
    page = (await client.get(path)).text
    token = re.search(r'name="csrf" value="([^"]+)"', page)
    assert token is not None
    body = aiohttp.FormData({"csrf": token[1], "do": "send", "text": text, **fields})
    for name, data in files or [("", b"")]:
        body.add_field("attachment", data, filename=name, content_type="application/octet-stream")
    return await client.post(path, data=body)


async def test_files_in_the_form_are_sent_without_the_script(yard: Any) -> None:
    ada = await yard.person("ada")
    answer = await form(
        ada.browser, "/ui/chat", "image?", ("a.gif", GIF), ("notes.txt", b"x" * 300_000), model="seeing"
    )
    assert answer.status == 303, answer.text
    chat = answer.headers["location"].split("/")[-1].partition("#")[0]
    assert [each.body["text"] for each in await wait_for_end(ada.token, chat) if each.name == "said"] == [
        "image: yes"
    ]
    (message,) = await of_kind(ada.token, chat, "user")
    assert [each["size"] for each in message["body"]["attachments"]] == [len(GIF), 300_000]
    page = (await ada.browser.get(f"/ui/chat/{chat}")).text
    url = f"/api/v1/attachments/{message['body']['attachments'][0]['id']}"
    assert f'<img src="{url}" alt="a.gif" loading="lazy">' in page
    # A message without files is sent by the same form.
    assert (await form(ada.browser, f"/ui/chat/{chat}", "say ok")).status == 303


async def test_a_refused_file_leaves_the_text_and_the_other_files_in_the_form(yard: Any) -> None:
    ada = await yard.person("ada")
    answer = await form(ada.browser, "/ui/chat", "Look at these", ("a.txt", b"text"), ("b.pdf", b"%PDF\0"))
    assert answer.status == 422
    assert "“b.pdf” is neither a picture nor a text file. Attach PNG, JPEG, GIF" in re.sub(
        r"<[^>]+>|\s+", " ", answer.text
    ).replace("  ", " ")
    assert "Look at these" in answer.text
    matches = re.findall(r'name="attachment" value="(f[0-9a-f]+)"', answer.text)
    assert len(matches) == 1
    again = await form(ada.browser, "/ui/chat", "say ok", model="fake", attachment=matches[0])
    assert again.status == 303, again.text


async def test_a_form_with_too_many_files_is_refused(yard: Any) -> None:
    ada = await yard.person("ada")
    answer = await form(ada.browser, "/ui/chat", "Hello", *[(f"{n}.txt", b"x") for n in range(21)])
    assert answer.status == 422
    assert "A message may have at most 20 attachments" in answer.text
    answer = await form(ada.browser, "/ui/chat", "Hello", *[(f"{n}.txt", b"x") for n in range(101)])
    assert answer.status == 400
    assert (await ada.browser.get("/ui/chat")).status == 200


async def test_the_texts_of_a_form_with_files_are_limited_together(yard: Any) -> None:
    """They are in memory, unlike its files."""
    ada = await yard.person("ada")
    texts = {f"text{n}": "x" * 900_000 for n in range(3)}
    answer = await form(ada.browser, "/ui/chat", "say ok", ("a.txt", b"x"), model="fake", **texts)
    assert answer.status == 413
    assert "at most 2,097,152 bytes" in answer.text
    names = {"x" * 4_000 + str(n): "" for n in range(600)}
    answer = await form(ada.browser, "/ui/chat", "say ok", ("a.txt", b"x"), model="fake", **names)
    assert answer.status == 413
    assert (await form(ada.browser, "/ui/chat", "say ok", ("a.txt", b"x"), model="fake")).status == 303
