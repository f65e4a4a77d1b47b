"""All that a soak runs: MCP servers, a model, the processes of Toolyard, and where they store things."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import NODE, ROOT, ProgramStarter
from tests.faults.store_faults import cluster
from tests.ports import free_port
from tests.soak.accounts import SoakAccount, create_accounts
from tests.soak.replicas import SoakReplica

SERVERS = ROOT / "tests/servers"
KEY = "a key that all replicas have"
REPLICAS = {"one": 1, "three": 3}
AGENTS = """## Clerk
---
description: Looks things up at the desk
tools: [desk_*]
---
Look things up.
"""


@dataclass
class SoakEnvironment:
    """What runs. ``shop`` and ``docs`` are registry servers that others may have instances of."""

    replicas: list[SoakReplica]
    people: list[SoakAccount]
    origins: dict[str, str]
    registered: dict[str, str] = field(default_factory=dict[str, str])
    """Ids of registry servers by name."""
    _turns: Iterator[int] = field(default_factory=itertools.count)

    def following(self) -> SoakReplica:
        """The next one, as a balancer goes round."""
        return self.in_turn()[0]

    def in_turn(self) -> list[SoakReplica]:
        """All of them, the next one first, the others for where nobody listens there."""
        first = next(self._turns) % len(self.replicas)
        return [*self.replicas[first:], *self.replicas[:first]]


@contextlib.contextmanager
def origins() -> Iterator[dict[str, str]]:
    """Servers that others wrote and ours, and the model, by name, each a program that listens."""
    programs = ProgramStarter()

    def quiet(words: str, **env: str) -> str:
        return programs("sh", "-c", f"exec {words} >/dev/null 2>&1", **env).url

    try:
        python, node = sys.executable, shutil.which("node") or "node"
        yield {
            "every": f"{quiet(f'{node} {NODE}/mcp-server-everything streamableHttp', PORT='{port}')}/mcp",
            "shop": f"{quiet(f'{python} {SERVERS}/sdk_server.py streamable-http --port {{port}}')}/mcp",
            "docs": f"{quiet(f'{python} {SERVERS}/docs_server.py {{port}}')}/mcp",
            "model": f"{quiet(f'{python} {SERVERS}/openai_server.py {{port}} --forget')}/v1",
        }
    finally:
        programs.stop()


def config(origin_urls: dict[str, str], folder: Path) -> dict[str, Any]:
    """Shared servers over HTTP and stdio, and one of which everybody has a process of their own."""
    desk = [str(SERVERS / "chat_server.py"), str(folder / "journal")]
    return {
        "every": {"type": "http", "url": origin_urls["every"], "shared": True},
        "desk": {"command": sys.executable, "args": ["-I", "-S", *desk], "shared": True, "stopWhenIdle": 5},
        "own": {
            "command": sys.executable,
            "args": ["-I", "-S", str(SERVERS / "tiny_server.py")],
            "stopWhenIdle": 5,
        },
    }


def _replica(number: int, folder: Path, origin_urls: dict[str, str], **more: str) -> SoakReplica:
    folder.mkdir()
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": config(origin_urls, folder)}))
    (folder / "AGENTS.md").write_text(AGENTS)
    model = {"fake": {"model": "openai:fake-1", "base_url": origin_urls["model"], "api_key": "good"}}
    settings = {
        "TOOLYARD_PEOPLE_MODE": "password",
        "TOOLYARD_WRITE_TOOLS": "ask",
        "TOOLYARD_MAX_STDIO_SERVERS": "200",
        "TOOLYARD_MODELS": json.dumps(model),
        **more,
    }
    return SoakReplica(number, free_port(), folder, settings)


@contextlib.asynccontextmanager
async def open_environment(shape: str, users: int) -> AsyncIterator[SoakEnvironment]:
    """All of it, until the end: one process on SQLite, or three on one PostgreSQL."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolyard-soak-")))
        url = None if shape == "one" else stack.enter_context(cluster()).get_uri()
        key = None if url is None else KEY
        shared_env = {} if url is None else {"TOOLYARD_DATABASE_URL": url, "TOOLYARD_SECRET_KEY": KEY}
        origin_urls = stack.enter_context(origins())
        replicas = [
            _replica(number, folder / f"replica-{number}", origin_urls, **shared_env)
            for number in range(REPLICAS[shape])
        ]
        people = await create_accounts(replicas[0].folder, url, key, users)
        try:
            await asyncio.gather(*(each.start() for each in replicas))
            yield SoakEnvironment(replicas, people, origin_urls)
            await asyncio.gather(*(each.stop() for each in replicas))
        finally:
            for each in replicas:
                each.kill()
