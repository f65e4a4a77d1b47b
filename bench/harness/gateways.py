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

import psutil

from harness.asking import Peer
from harness.processes import BENCH, ROOT, worker
from toolyard.config.settings import Settings
from toolyard.model.people import Right, Role, TokenScope
from toolyard.people import People
from toolyard.store import Database

__all__ = ["GATEWAYS", "direct", "toolyard"]

ENVIRONMENTS = ROOT / ".envs"
MANY = 500
STDIO = (sys.executable, "-m", "servers.stdio")
"""The same origin, for those who can only start their server."""


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
        people = People(database.people, Settings())
        user = await database.people.add_user("bench", Role.USER)
        # Somebody without a password has no account that counts.
        await database.people.set_password_hash(user.id, "none that fits")
        _, text = await people.make_token(user, "bench", TokenScope(frozenset({Right.CALL})), None)
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
        yield Peer("forwarder", one.hello, names, psutil.Process(one.process.pid))


@contextlib.asynccontextmanager
async def toolyard(urls: list[str]) -> AsyncGenerator[Peer]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        servers = {f"s{n}": {"url": url, "type": "http", "shared": True} for n, url in enumerate(urls)}
        (Path(folder) / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        text = await token(Path(folder))
        words = (sys.executable, "-m", "toolyard", "serve", "--port", str(port))
        env = {
            "TOOLYARD_DATA_DIR": folder,
            "TOOLYARD_PEOPLE_MODE": "password",
            "TOOLYARD_WRITE_TOOLS": "allow",
        }
        async with program(port, *words, **env) as process:
            names = [f"s{n}_echo" for n in range(len(urls))]
            yield Peer("toolyard", port, names, process, token=text, sessions=MANY)


@contextlib.asynccontextmanager
async def fastmcp(urls: list[str]) -> AsyncGenerator[Peer]:
    port, python = free_port(), str(ENVIRONMENTS / "bench-fastmcp/bin/python")
    async with program(port, python, "-m", "peers.fastmcp_proxy", str(port), *urls) as process:
        names = [f"s{n}_echo" for n in range(len(urls))]
        yield Peer("fastmcp", port, names, process, sessions=MANY)


@contextlib.asynccontextmanager
async def mcp_proxy(urls: list[str]) -> AsyncGenerator[Peer]:
    """It starts one server for all clients."""
    port, mine = free_port(), str(ENVIRONMENTS / "bench-mcp-proxy/bin/mcp-proxy")
    async with program(port, mine, "--port", str(port), "--log-level", "ERROR", "--", *STDIO) as process:
        yield Peer("mcp-proxy", port, ["echo"], process, legacy=True, sessions=MANY)


@contextlib.asynccontextmanager
async def supergateway(urls: list[str]) -> AsyncGenerator[Peer]:
    """It starts a server for each session; without sessions it would start one for each request."""
    port, modules = free_port(), ENVIRONMENTS / "bench-node/node_modules"
    words = ("--outputTransport", "streamableHttp", "--stateful", "--port", str(port), "--logLevel", "none")
    script = str(modules / "supergateway/dist/index.js")
    async with program(port, "node", script, "--stdio", shlex.join(STDIO), *words) as process:
        yield Peer("supergateway", port, ["echo"], process, legacy=True, sessions=1)


GATEWAYS = {
    "forwarder": forwarder,
    "toolyard": toolyard,
    "fastmcp": fastmcp,
    "mcp-proxy": mcp_proxy,
    "supergateway": supergateway,
}


def _listens(process: psutil.Process, port: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(one.laddr.port == port for one in process.net_connections("tcp") if one.status == "LISTEN")
    return False
