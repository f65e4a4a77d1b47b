"""The functions of ours that one warm ``tools/call`` through the gateway runs, by count.

python bench/calls.py [--cpu CALLS]

The web application runs in this process on a real socket, with accounts, an API token, policy and audit, in
front of a stdio server. A call is warm after some others. Counted are the Python frames of files in
``src/toolyard`` that are entered between a request and its response: a generator or coroutine counts once,
however often it resumes, and a comprehension counts as part of its function. Work of timers and of the audit
writer that runs after the response is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import toolyard
from harness.processes import BENCH
from toolyard.agents.definitions.watch import LoadedAgents
from toolyard.config import load_config, load_settings
from toolyard.core.services import Services
from toolyard.types.account import Right, Role, TokenScope
from toolyard.web.app import make_app
from toolyard.web.public_urls import PublicUrls
from toolyard.web.server.run import HttpServer
from toolyard.web.server.socket import open_listener

SOURCE = str(Path(toolyard.__file__).parent)
WARM_CALLS = 50
META = "io.modelcontextprotocol"
COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}


class CallCounter:
    """Counts the frames of this package that are entered while it is on."""

    def __init__(self) -> None:
        self.counts: Counter[CodeType] = Counter()
        self._frames: set[FrameType] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(SOURCE) or code.co_name in COMPREHENSIONS:
            return
        if frame not in self._frames:
            # Kept, so that no later frame has the same identity.
            self._frames.add(frame)
            self.counts[code] += 1

    def print_report(self) -> None:
        files = Counter[str]()
        for code, count in self.counts.items():
            files[os.path.relpath(code.co_filename, SOURCE)] += count
        for file, total in files.most_common():
            print(f"{total:4}  {file}")
            for code, count in self.counts.most_common():
                if os.path.relpath(code.co_filename, SOURCE) == file:
                    print(f"      {count:3}  {code.co_qualname}")
        print(f"{sum(files.values())} calls in {len(files)} files")


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


async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
    body = await reader.readexactly(length)
    if b'"content"' not in body:
        raise RuntimeError(f"{lines[0]}: {body[:500]!r}")


async def measure(folder: Path, cpu_calls: int) -> None:
    server = {"command": sys.executable, "args": ["-m", "servers.stdio"], "cwd": str(BENCH)}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"one": server}}))
    configuration = load_config(folder / "mcp.json", data_dir=folder, cwd=folder, env=dict(os.environ))
    settings = load_settings(folder, env={}, overrides={"people_mode": "password"})
    listener = open_listener("127.0.0.1", 0)
    links = PublicUrls(settings).build_links(listener.address)
    agents = LoadedAgents(folder / "AGENTS.md", ())
    services = await Services.open(configuration, settings, folder, agents, links)
    running = HttpServer(make_app(services), listener)
    await running.start()
    try:
        user = await services.database.accounts.add_user("bench", Role.USER)
        await services.database.accounts.set_password_hash(user.id, "none that fits")
        _, token = await services.people.create_token(
            user, "bench", TokenScope(frozenset({Right.CALL})), None
        )
        host, _, port = listener.address.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        request = build_request(token, listener.address)
        for _ in range(WARM_CALLS):
            await call(reader, writer, request)
        if cpu_calls:
            started = time.process_time()
            for _ in range(cpu_calls):
                await call(reader, writer, request)
            print(f"{(time.process_time() - started) / cpu_calls * 1e6:.0f} µs of CPU per call")
        counter = CallCounter()
        # The writer of the audit log works in between; it belongs to no call.
        await asyncio.sleep(0.5)
        await call(reader, writer, request)
        sys.setprofile(counter)
        await call(reader, writer, request)
        sys.setprofile(None)
        counter.print_report()
        writer.close()
    finally:
        services.stop()
        await running.drain()
        await running.wait_for_shutdown_work(services.end_work())
        await running.cancel_open_requests()
        await services.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cpu", type=int, default=0, metavar="CALLS", help="also measure the CPU of CALLS")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), parser.parse_args().cpu))


if __name__ == "__main__":
    main()
