"""The functions of ours that one warm use of an interface runs, by count.

python bench/calls.py [gateway|console|tool-page] [--cpu CALLS]

The web application runs in this process on a real socket, with accounts, policy and audit, in front of a
stdio server. A use is warm after some others:

- gateway: one ``tools/call`` with an API token, from the request to its response
- console: one run of a tool in the console of a chat whose page is open, from the form that is sent until the
  page's stream has shown the result and the end of the turn
- tool-page: one run of a tool on its own page, from the form that is sent to the page with the result

Counted are the Python frames of files in ``src/toolyard`` that are entered meanwhile, in every thread: a
generator or coroutine counts once, however often it resumes, and a comprehension counts as part of its
function. Generated methods of dataclasses have no file, and do not count. Reads of properties are counted
apart: to their caller they are attributes, and most compute next to nothing. Work of timers and of the audit
writer that runs afterwards is not counted, and a use during which the listener for changes of the SQLite file
polled is counted again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cached_property
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import aiohttp

import toolyard
from harness.processes import BENCH
from toolyard.agents.definitions.watch import LoadedAgents
from toolyard.config import load_config, load_settings
from toolyard.core.services import Services
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.types.account import Right, Role, TokenScope
from toolyard.web.access.cookies import cookie_name
from toolyard.web.app import make_app
from toolyard.web.http_server.run import HttpServer
from toolyard.web.http_server.socket import open_listener
from toolyard.web.public_urls import PublicUrls
from toolyard.web.ui.components.responses import FRAGMENT_HEADER

SOURCE = str(Path(toolyard.__file__).parent)
WARM_USES = {"gateway": 50, "console": 5, "tool-page": 5}
META = "io.modelcontextprotocol"
COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}
TOOL_PAGE = "/ui/admin/mcp/files/one/tool?name=echo"
POLL = {DatabaseExecutor.file_version.__code__}
"""The poll of the database, which happens every 0.2 s and belongs to no use."""
Use = Callable[[], Awaitable[None]]


class CallCounter:
    """Counts the frames of this package that are entered while it is on, in threads started after it."""

    def __init__(self) -> None:
        self.counts: Counter[CodeType] = Counter()
        self.is_on = False
        self._frames: set[FrameType] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if not self.is_on or event != "call" or code.co_name in COMPREHENSIONS:
            return
        # Templates are compiled and run by Jinja.
        is_ours = code.co_filename.startswith(SOURCE) and code.co_filename.endswith(".py")
        if is_ours and frame not in self._frames:
            # Kept, so that no later frame has the same identity.
            self._frames.add(frame)
            self.counts[code] += 1

    def print_report(self) -> None:
        files = Counter[str]()
        reads = {code for code in self.counts if is_property(code)}
        property_reads = sum(self.counts.pop(code) for code in reads)
        for code, count in self.counts.items():
            files[os.path.relpath(code.co_filename, SOURCE)] += count
        for file, total in files.most_common():
            print(f"{total:4}  {file}")
            for code, count in self.counts.most_common():
                if os.path.relpath(code.co_filename, SOURCE) == file:
                    print(f"      {count:3}  {code.co_qualname}")
        print(f"{property_reads:4}  reads of properties")
        print(f"{sum(files.values())} calls in {len(files)} files")


def is_property(code: CodeType) -> bool:
    """Return True if the code is that of a property of a class in its module."""
    module = os.path.relpath(code.co_filename, SOURCE).removesuffix(".py").replace(os.sep, ".")
    found_module: object = sys.modules.get(f"toolyard.{module}")
    for name in code.co_qualname.split("."):
        found_module = vars(found_module).get(name) if hasattr(found_module, "__dict__") else None
    return isinstance(found_module, property | cached_property)


# The gateway.


def build_request(token: str, address: str) -> bytes:
    params: dict[str, Any] = {
        "name": "one_echo",
        "arguments": {"text": "hello"},
        "_meta": {f"{META}/protocolVersion": "2026-07-28", f"{META}/clientCapabilities": {}},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = (
        "POST /mcp HTTP/1.1",
        f"Host: {address.removeprefix('http://')}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        "Mcp-Name: one_echo",
        f"Authorization: Bearer {token}",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


async def call_gateway(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
    body = await reader.readexactly(length)
    if b'"content"' not in body:
        raise RuntimeError(f"{lines[0]}: {body[:500]!r}")


@contextlib.asynccontextmanager
async def open_gateway_client(services: Services, address: str) -> AsyncIterator[Use]:
    user = await services.database.accounts.add_user("bench", Role.USER)
    await services.database.accounts.set_password_hash(user.id, "none that fits")
    _, token = await services.people.create_token(user, "bench", TokenScope(frozenset({Right.CALL})), None)
    host, _, port = address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    request = build_request(token, address)
    yield lambda: call_gateway(reader, writer, request)
    writer.close()


# The browser.


@contextlib.asynccontextmanager
async def open_browser(services: Services, address: str) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a browser with a signed-in admin."""
    user = await services.database.accounts.add_user("bench", Role.ADMIN)
    await services.database.accounts.set_password_hash(user.id, "none that fits")
    cookies = {cookie_name(services.settings): await services.people.begin_session(user)}
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(address, cookies=cookies, cookie_jar=jar) as session:
        yield session


@contextlib.asynccontextmanager
async def open_console(services: Services, address: str) -> AsyncIterator[Use]:
    async with open_browser(services, address) as session:
        form = {"do": "run", "tool": "one_echo", "arg-0": "hello"}
        async with session.get("/ui/chat?run=") as page:
            form["csrf"] = read_csrf(await page.text())
        async with session.post("/ui/chat", data=form) as page:
            chat_path, text = page.url.path, await page.text()
        while 'data-state="idle"' not in text:
            async with session.get(chat_path) as page:
                text = await page.text()
        after = find_one(r'data-after="(\d+)"', text)
        async with session.get(f"{chat_path}/stream?after={after}") as stream:

            async def run() -> None:
                async with session.post(chat_path, data=form, headers={FRAGMENT_HEADER: "1"}) as response:
                    if response.status != 204:
                        raise RuntimeError(f"{response.status}: {await response.text()}")
                if "hello" not in (page_text := await wait_until_idle(stream)):
                    raise RuntimeError(f"the page does not show the result: {page_text}")

            yield run


async def wait_until_idle(stream: aiohttp.ClientResponse) -> str:
    """Return what the stream of a chat's page sends until its turn has ended."""
    text = ""
    async for line in stream.content:
        text += line.decode()
        if '"state":"idle"' in text:
            return text
    raise RuntimeError("the stream ended")


@contextlib.asynccontextmanager
async def open_tool_page(services: Services, address: str) -> AsyncIterator[Use]:
    async with open_browser(services, address) as session:
        async with session.get(TOOL_PAGE) as page:
            form = {"arg-0": "hello", "csrf": read_csrf(await page.text())}

        async def run() -> None:
            async with session.post(TOOL_PAGE, data=form) as response:
                if response.status != 200 or 'id="result"' not in await response.text():
                    raise RuntimeError(f"{response.status}: {await response.text()}")

        yield run


def read_csrf(page: str) -> str:
    return find_one(r'name="csrf" value="([0-9a-f]+)"', page)


def find_one(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise RuntimeError(f"the page has no {pattern}")
    return match[1]


INTERFACES = {"gateway": open_gateway_client, "console": open_console, "tool-page": open_tool_page}


# Measuring.


async def measure(folder: Path, interface: str, cpu_calls: int) -> None:
    server = {"command": sys.executable, "args": ["-m", "servers.stdio"], "cwd": str(BENCH)}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"one": server}}))
    configuration = load_config(folder / "mcp.json", data_dir=folder, cwd=folder, env=dict(os.environ))
    settings = load_settings(folder, env={}, overrides={"people_mode": "password"})
    counter = CallCounter()
    if not cpu_calls:
        threading.setprofile(counter)
    listener = open_listener("127.0.0.1", 0)
    links = PublicUrls(settings).build_links(listener.address)
    agents = LoadedAgents(folder / "AGENTS.md", ())
    services = await Services.open(configuration, settings, folder, agents, links)
    http_server = HttpServer(make_app(services), listener)
    await http_server.start()
    try:
        async with INTERFACES[interface](services, listener.address) as use:
            for _ in range(WARM_USES[interface]):
                await use()
            if cpu_calls:
                start = time.process_time()
                for _ in range(cpu_calls):
                    await use()
                print(f"{(time.process_time() - start) / cpu_calls * 1e6:.0f} µs of CPU per use")
                return
            # The writer of the audit log works in between; it belongs to no call.
            await asyncio.sleep(0.5)
            await use()
            sys.setprofile(counter)
            while not counter.counts or counter.counts.keys() & POLL:
                counter.counts.clear()
                counter.is_on = True
                await use()
                counter.is_on = False
            sys.setprofile(None)
            counter.print_report()
    finally:
        services.stop()
        await http_server.drain()
        await http_server.wait_for_shutdown_work(services.end_work())
        await http_server.cancel_open_requests()
        await services.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("interface", nargs="?", choices=tuple(INTERFACES), default="gateway")
    parser.add_argument(
        "--cpu", type=int, default=0, metavar="CALLS", help="measure the CPU of CALLS instead"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), options.interface, options.cpu))


if __name__ == "__main__":
    main()
