"""Who may make the server read a body, and how much all bodies may hold, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.loop_watch import LoopWatch
from tests.web.conftest import InProcessApp, SignedInUser

from toolyard.web.app import AppTimeouts
from toolyard.web.middleware.request_body import RequestBodyLimits

if TYPE_CHECKING:
    from tests.web.conftest import Opening, Starting

MEBIBYTE_BYTES = 1024 * 1024
JSON = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"


class Upload:
    """A request whose body is sent by hand."""

    def __init__(self, local: Any, path: str, length: int, *headers: str, method: str = "POST") -> None:
        self.port = urlsplit(local.url).port
        lines = (f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {length}", *headers)
        self.head = ("\r\n".join(lines) + "\r\n" + JSON + "\r\n").encode()

    async def open(self) -> Upload:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(self.head)
        return self

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def status(self) -> int:
        """Read the head of the response, and as much of the body as it announces."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 20)
        self.headers = head.decode("latin-1").lower()
        for line in self.headers.split("\r\n"):
            if line.startswith("content-length:"):
                await self.reader.readexactly(int(line.partition(":")[2]))
        return int(head.split()[1])

    def close(self) -> None:
        self.writer.close()


def as_token(person: SignedInUser) -> str:
    return f"Authorization: Bearer {person.secret}"


def as_browser(person: SignedInUser) -> str:
    return f"Cookie: {person.browser.headers['Cookie']}"


@pytest.fixture
async def password_site(open_site: Opening) -> InProcessApp:
    return await open_site(people_mode="password")


async def wait_for_body_bytes(local: InProcessApp, count: int) -> None:
    """Wait until the bodies of known users hold so many bytes."""
    async with asyncio.timeout(30):
        while local.part(RequestBodyLimits).user_memory.held_bytes != count:
            await asyncio.sleep(0.01)


# Strangers.

REFUSED_REQUESTS = [
    ("POST", "/api/v1/tokens", 401),
    ("PATCH", "/api/v1/users/x", 401),
    ("POST", "/api/v1/nothing", 401),
    ("POST", "/mcp", 401),
    ("POST", "/mcp/instances/x", 401),
    ("POST", "/ui/tokens", 303),
    ("POST", "/ui/theme", 303),
    ("POST", "/ui/sign-out", 303),
    ("POST", "/healthz", 405),
    ("POST", "/nothing", 404),
]


@pytest.mark.parametrize(("method", "path", "status"), REFUSED_REQUESTS)
async def test_a_stranger_is_answered_before_the_body_is_read(
    password_site: InProcessApp, method: str, path: str, status: int
) -> None:
    for proof in ("X: y", "Authorization: Bearer ty_" + "x" * 43, "Cookie: toolyard=" + "x" * 43):
        if path.startswith("/ui") and proof.startswith("Authorization"):
            continue
        upload = await Upload(password_site, path, MEBIBYTE_BYTES, proof, method=method).open()
        assert await upload.status() == status, proof
        assert "connection: close" not in upload.headers
        # What comes of the body all the same is discarded, and the connection stays usable.
        await upload.send(b" " * MEBIBYTE_BYTES + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await upload.status() == 200
        upload.close()


async def test_in_the_mode_proxy_the_proxys_header_is_enough_to_be_read(open_site: Opening) -> None:
    local: InProcessApp = await open_site(people_mode="proxy", trusted_proxies=("127.0.0.1",))
    stranger = await Upload(local, "/api/v1/chats", 2).open()
    assert await stranger.status() == 401
    upload = await Upload(local, "/api/v1/chats", 2, "Remote-User: ann").open()
    await upload.send(b"{}")
    assert await upload.status() == 201
    for each in (stranger, upload):
        each.close()


async def test_open_forms_hold_little_and_take_nothing_from_known_users(open_site: Opening) -> None:
    local: InProcessApp = await open_site(people_mode="password")
    ann = await local.person("ann")
    full = local.part(RequestBodyLimits).anonymous_memory
    forms = [await Upload(local, "/ui/sign-in", 60_000).open() for _ in range(17)]
    for form in forms:
        await form.send(b"x" * 59_999)
    async with asyncio.timeout(30):
        while full.held_bytes != 17 * 59_999:
            await asyncio.sleep(0.01)
    one_more = await Upload(local, "/ui/invite/x", 60_000).open()
    await one_more.send(b"x" * 60_000)
    assert await one_more.status() == 503
    assert "retry-after: 1\r\n" in one_more.headers
    assert (await ann.token.post("/api/v1/chats", {})).status == 201
    for form in (*forms, one_more):
        form.close()
    async with asyncio.timeout(30):
        while full.held_bytes:
            await asyncio.sleep(0.01)


async def test_strangers_with_large_bodies_do_not_fill_the_memory(serve: Starting) -> None:
    site = await serve({}, TOOLYARD_PEOPLE_MODE="password")
    before = _resident(site.process.pid)
    piece = b" " * (64 * 1024)

    async def push(path: str) -> None:
        upload = await Upload(site, path, 8 * MEBIBYTE_BYTES).open()
        # All but the last byte, as fast as the server takes it, or until it hangs up.
        with contextlib.suppress(ConnectionError):
            for _ in range(8 * MEBIBYTE_BYTES // len(piece) - 1):
                await upload.send(piece)
            await upload.send(piece[1:])
        uploads.append(upload)

    uploads: list[Upload] = []
    async with asyncio.timeout(120):
        await asyncio.gather(*(push(("/api/v1/chats", "/mcp", "/ui/chat")[n % 3]) for n in range(45)))
        # The server has handled what was sent once it answers on a connection of its own.
        last = await Upload(site, "/healthz", 0, method="GET").open()
        assert await last.status() == 200
    grown = _resident(site.process.pid) - before
    for upload in (*uploads, last):
        upload.close()
    assert grown < 64 * MEBIBYTE_BYTES


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no such process")


# Known users.


@pytest.mark.parametrize("path", ["/api/v1/chats", "/mcp", "/ui/chat"])
async def test_one_person_holds_so_much_and_no_more(open_site: Opening, path: str) -> None:
    local: InProcessApp = await open_site(
        people_mode="password", request_memory_per_person=8 * MEBIBYTE_BYTES
    )
    ann, ben = await local.person("ann"), await local.person("ben")
    first = await Upload(local, "/api/v1/chats", 8 * MEBIBYTE_BYTES, as_token(ann)).open()
    await first.send(b" " * (8 * MEBIBYTE_BYTES - 100))
    await wait_for_body_bytes(local, 8 * MEBIBYTE_BYTES - 100)
    proof = as_browser if path.startswith("/ui") else as_token
    second = await Upload(local, path, 200, proof(ann)).open()
    await second.send(b" " * 200)
    assert await second.status() == 503
    assert "retry-after: 1\r\n" in second.headers
    other = await Upload(local, path, 200, proof(ben)).open()
    await other.send(b" " * 200)
    assert await other.status() in (400, 403, 422), "it was read, and is nothing that makes sense"
    await first.send(b" " * 98 + b"{}")
    assert await first.status() == 201
    await wait_for_body_bytes(local, 0)
    again = await Upload(local, path, 200, proof(ann)).open()
    await again.send(b" " * 200)
    assert await again.status() in (400, 403, 422)
    for each in (first, second, other, again):
        each.close()


async def test_a_form_with_files_counts_for_the_memory_of_its_user(open_site: Opening) -> None:
    """Its texts, and the beginnings of its files, are held while it arrives."""
    local: InProcessApp = await open_site(
        people_mode="password", request_memory_per_person=8 * MEBIBYTE_BYTES
    )
    ann = await local.person("ann")
    kind = "Content-Type: multipart/form-data; boundary=x"
    forms = [await Upload(local, "/ui/chat", 200, as_browser(ann), kind).open() for _ in range(2)]
    await wait_for_body_bytes(local, 8 * MEBIBYTE_BYTES)
    third = await Upload(local, "/ui/chat", 200, as_browser(ann), kind).open()
    assert await third.status() == 503
    for each in (*forms, third):
        each.close()
    await wait_for_body_bytes(local, 0)


async def test_the_files_of_forms_fill_the_temporary_folder_with_so_much_and_no_more(
    open_site: Opening,
) -> None:
    """They are there until the form is complete, before any quota is checked."""
    local: InProcessApp = await open_site(
        people_mode="password", attachment_bytes=MEBIBYTE_BYTES, attachments_per_message=1
    )
    ann, ben = await local.person("ann"), await local.person("ben")
    boundary = "Content-Type: multipart/form-data; boundary=x"
    part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
    files = local.part(RequestBodyLimits).form_files
    forms: list[Upload] = []

    async def begin(person: SignedInUser, count: int) -> Upload:
        form = await Upload(local, "/ui/chat", 3 * MEBIBYTE_BYTES, as_browser(person), boundary).open()
        forms.append(form)
        await form.send(part + b"x" * (count - len(part)))
        return form

    await begin(ann, 2 * MEBIBYTE_BYTES)
    async with asyncio.timeout(20):
        while files.held_bytes != 2 * MEBIBYTE_BYTES:
            await asyncio.sleep(0.01)
    assert await (await begin(ann, MEBIBYTE_BYTES + 100_000)).status() == 503
    await begin(ben, MEBIBYTE_BYTES)
    async with asyncio.timeout(20):
        while files.held_bytes != 3 * MEBIBYTE_BYTES:
            await asyncio.sleep(0.01)
    for each in forms:
        each.close()
    async with asyncio.timeout(20):
        while files.held_bytes:
            await asyncio.sleep(0.01)


async def test_all_together_hold_so_much_and_no_more(open_site: Opening) -> None:
    local: InProcessApp = await open_site(people_mode="password", request_memory=9 * MEBIBYTE_BYTES)
    ann, ben = await local.person("ann"), await local.person("ben")
    first = await Upload(local, "/mcp", 8 * MEBIBYTE_BYTES, as_token(ann)).open()
    await first.send(b" " * (8 * MEBIBYTE_BYTES - 1))
    await wait_for_body_bytes(local, 8 * MEBIBYTE_BYTES - 1)
    second = await Upload(local, "/mcp", 2 * MEBIBYTE_BYTES, as_token(ben)).open()
    await second.send(b" " * 2 * MEBIBYTE_BYTES)
    assert await second.status() == 503
    # Who leaves in the middle leaves nothing behind.
    first.close()
    await wait_for_body_bytes(local, 0)
    third = await Upload(local, "/mcp", 2 * MEBIBYTE_BYTES, as_token(ben)).open()
    await third.send(b" " * 2 * MEBIBYTE_BYTES)
    assert await third.status() == 400
    for each in (second, third):
        each.close()


async def test_the_local_user_is_known_without_credentials(open_site: Opening) -> None:
    local: InProcessApp = await open_site()
    upload = await Upload(local, "/api/v1/chats", 100_000).open()
    await upload.send(b"{" + b" " * 99_998 + b"}")
    assert await upload.status() == 201
    upload.close()


async def test_a_request_that_expects_to_be_asked_for_its_body_is_asked_only_when_known(
    password_site: InProcessApp,
) -> None:
    ann = await password_site.person("ann")
    for proof, first in ((as_token(ann), 100), ("X: y", 401)):
        upload = await Upload(password_site, "/api/v1/chats", 2, "Expect: 100-continue", proof).open()
        assert await upload.status() == first
        if first == 100:
            await upload.send(b"{}")
            assert await upload.status() == 201
        else:
            assert "connection: close" in upload.headers
        upload.close()


async def test_the_clock_of_a_body_runs_for_known_users_too(open_site: Opening) -> None:
    local: InProcessApp = await open_site(people_mode="password", timeouts=AppTimeouts(body=0.2))
    ann = await local.person("ann")
    for path in ("/api/v1/chats", "/mcp"):
        upload = await Upload(local, path, 100, as_token(ann)).open()
        assert await upload.status() == 408
        assert "connection: close" in upload.headers
        upload.close()
    await wait_for_body_bytes(local, 0)


@pytest.mark.parametrize("escapes", [b"%41" * 690_000, b"%zz%" * 500_000])
async def test_other_tasks_run_while_a_long_form_is_decoded(open_site: Opening, escapes: bytes) -> None:
    local: InProcessApp = await open_site()
    page = await local.client().get("/ui/chat")
    cookie = page.headers["Set-Cookie"].partition(";")[0]
    proof = re.search(r'name="csrf" value="([^"]+)"', page.text)
    assert proof is not None
    headers = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
    body = b"csrf=%b&do=unknown&text=%b" % (proof[1].encode(), escapes)
    async with LoopWatch() as watch:
        answer = await local.client(**headers).post("/ui/chat/none", data=io.BytesIO(body))
    assert answer.status == 404
    assert watch.longest_seconds < 0.15


async def test_a_form_with_too_many_fields_is_refused(open_site: Opening) -> None:
    local: InProcessApp = await open_site()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await local.client(**headers).post("/ui/chat", data=io.BytesIO(b"a&" * 20_000))
    assert answer.status == 400
    assert "at most 10,500 fields" in answer.text
