"""The gateways under measurement, each as a process, in front of the same origins."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import psutil

from harness.processes import BENCH, ROOT, worker
from harness.raw_http_client import Peer
from toolyard.accounts import AccountService
from toolyard.config.settings.table import Settings
from toolyard.store import Database
from toolyard.types.account import Right, Role, TokenScope

__all__ = ["GATEWAYS", "direct", "toolyard", "toolyard_servers"]

ENVIRONMENTS = ROOT / ".envs"
MANY = 500
STDIO = (sys.executable, "-m", "servers.stdio")
"""The same origin, for those who can only start their server."""
SDK = (sys.executable, "-m", "servers.sdk")
"""A server as most are that are started."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.asynccontextmanager
async def program(port: int, *words: str, **env: str) -> AsyncGenerator[psutil.Process]:
    """A program, once it listens. Raises RuntimeError where it ends instead."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *words, cwd=BENCH, stdin=quiet, stdout=quiet, stderr=quiet, env={**os.environ, **env}
    )
    try:
        async with asyncio.timeout(60):
            while True:
                if process.returncode is not None:
                    raise RuntimeError(f"{words[0]} ended with {process.returncode}")
                with contextlib.suppress(OSError):
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                await asyncio.sleep(0.05)
        yield psutil.Process(process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def token(folder: Path) -> str:
    """The text of a new token that may call."""
    database = await Database.open(folder, url=None, secret_key=None)
    try:
        people = AccountService(database.accounts, Settings())
        user = await database.accounts.add_user("bench", Role.USER)
        # Somebody without a password has no account that counts.
        await database.accounts.set_password_hash(user.id, "none that fits")
        _, text = await people.create_token(user, "bench", TokenScope(frozenset({Right.CALL})), None)
        return text
    finally:
        await database.close()


def direct(urls: list[str]) -> Peer:
    """The first origin alone."""
    port = int(urls[0].split(":")[2].split("/")[0])
    listening = next(one for one in psutil.process_iter() if _listens(one, port))
    return Peer("direct", port, ["echo"], listening)


@contextlib.asynccontextmanager
async def forwarder(urls: list[str]) -> AsyncGenerator[Peer]:
    async with worker("forwarder", sys.executable, "peers.forwarder", *urls) as one:
        names = [f"{n}_echo" for n in range(len(urls))]
        yield Peer("forwarder", one.hello, names, psutil.Process(one.process.pid), protocol=False)


def toolyard(urls: list[str]) -> contextlib.AbstractAsyncContextManager[Peer]:
    servers = {f"s{n}": {"url": url, "type": "http", "shared": True} for n, url in enumerate(urls)}
    return toolyard_servers("toolyard", servers, sessions=MANY)


def toolyard_sdk(urls: list[str]) -> contextlib.AbstractAsyncContextManager[Peer]:
    """In front of one server made with the SDK."""
    server_entry = {"command": SDK[0], "args": SDK[1:], "cwd": str(BENCH), "shared": True}
    return toolyard_servers("toolyard, SDK server", {"s0": server_entry}, sessions=1)


@contextlib.asynccontextmanager
async def toolyard_servers(name: str, servers: dict[str, Any], sessions: int) -> AsyncGenerator[Peer]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        text = await token(Path(folder))
        words = (sys.executable, "-m", "toolyard", "serve", "--port", str(port))
        env = {
            "TOOLYARD_DATA_DIR": folder,
            "TOOLYARD_PEOPLE_MODE": "password",
            "TOOLYARD_WRITE_TOOLS": "allow",
        }
        async with program(port, *words, **env) as process:
            names = [f"{server}_echo" for server in servers]
            yield Peer(name, port, names, process, token=text, sessions=sessions)


@contextlib.asynccontextmanager
async def fastmcp(urls: list[str]) -> AsyncGenerator[Peer]:
    port, python = free_port(), str(ENVIRONMENTS / "bench-fastmcp/bin/python")
    async with program(port, python, "-m", "peers.fastmcp_proxy", str(port), *urls) as process:
        names = [f"s{n}_echo" for n in range(len(urls))]
        yield Peer("fastmcp", port, names, process, sessions=MANY)


@contextlib.asynccontextmanager
async def mcp_proxy(urls: list[str]) -> AsyncGenerator[Peer]:
    """It starts one server for all clients."""
    port, proxy_program = free_port(), str(ENVIRONMENTS / "bench-mcp-proxy/bin/mcp-proxy")
    async with program(
        port, proxy_program, "--port", str(port), "--log-level", "ERROR", "--", *STDIO
    ) as process:
        yield Peer("mcp-proxy", port, ["echo"], process, legacy=True, sessions=MANY)


@contextlib.asynccontextmanager
async def supergateway(urls: list[str]) -> AsyncGenerator[Peer]:
    """As it comes: HTTP with SSE, one server for all clients, whose every answer goes to each of them."""
    async with _supergateway() as (port, process):
        yield Peer("supergateway", port, ["echo"], process, legacy=True, sessions=MANY, stream="/sse")


@contextlib.asynccontextmanager
async def supergateway_stateful(urls: list[str]) -> AsyncGenerator[Peer]:
    """Streamable HTTP, a server for each session; without sessions it would start one for each request."""
    words = ("--outputTransport", "streamableHttp", "--stateful", "--logLevel", "none")
    async with _supergateway(*words) as (port, process):
        yield Peer("supergateway, stateful", port, ["echo"], process, legacy=True, sessions=1)


@contextlib.asynccontextmanager
async def supergateway_sdk(urls: list[str]) -> AsyncGenerator[Peer]:
    """As it comes, logs included, in front of one server made with the SDK."""
    async with _supergateway("--logLevel", "info", server=SDK) as (port, process):
        name = "supergateway, SDK server"
        yield Peer(name, port, ["echo"], process, legacy=True, sessions=1, stream="/sse")


@contextlib.asynccontextmanager
async def _supergateway(
    *words: str, server: tuple[str, ...] = STDIO
) -> AsyncGenerator[tuple[int, psutil.Process]]:
    port, modules = free_port(), ENVIRONMENTS / "bench-node/node_modules"
    script = str(modules / "supergateway/dist/index.js")
    proxy_command = ("--stdio", shlex.join(server), "--port", str(port), *(words or ("--logLevel", "none")))
    async with program(port, "node", script, *proxy_command) as process:
        yield port, process


GATEWAYS = {
    "forwarder": forwarder,
    "toolyard": toolyard,
    "fastmcp": fastmcp,
    "mcp-proxy": mcp_proxy,
    "supergateway": supergateway,
    "supergateway, stateful": supergateway_stateful,
    "toolyard, SDK server": toolyard_sdk,
    "supergateway, SDK server": supergateway_sdk,
}


def _listens(process: psutil.Process, port: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(one.laddr.port == port for one in process.net_connections("tcp") if one.status == "LISTEN")
    return False
