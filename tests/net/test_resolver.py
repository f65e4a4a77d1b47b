"""Looking names up: one that nobody answers for holds up no other, and no program that ends."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.tasks import cancel

from toolyard.net.guarded_connector import DaemonThreadResolver


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names under ``.silent`` are not answered for until the test ends; those that were asked for."""
    resolved_names: list[str] = []
    over = threading.Event()
    real = socket.getaddrinfo

    def look(host: str, *arguments: Any, **options: Any) -> Any:
        if not host.endswith(".silent"):
            return real(host, *arguments, **options)
        resolved_names.append(host)
        over.wait(60)
        raise socket.gaierror(socket.EAI_NONAME, "nobody knows")

    monkeypatch.setattr(socket, "getaddrinfo", look)
    yield resolved_names
    over.set()
    for thread in threading.enumerate():
        if thread.name == "toolyard:name":
            thread.join(30)


async def test_a_name_is_looked_up_as_the_system_does_it() -> None:
    addresses = await DaemonThreadResolver().resolve("localhost", 80, socket.AF_UNSPEC)
    assert ("127.0.0.1", 80) in [(each["host"], each["port"]) for each in addresses]


async def test_a_name_that_cannot_be_one_is_told() -> None:
    with pytest.raises((OSError, ValueError)):
        await DaemonThreadResolver().resolve("a" * 300, 80)


async def test_unanswered_names_block_nothing_else(silent: list[str]) -> None:
    resolver = DaemonThreadResolver()
    resolve_tasks = [asyncio.create_task(resolver.resolve(f"n{each}.silent")) for each in range(50)]
    async with asyncio.timeout(30):
        assert await resolver.resolve("localhost", 80, socket.AF_UNSPEC)
        assert await asyncio.to_thread(len, "abc") == 3
    for task in resolve_tasks:
        task.cancel()
    outcomes = await asyncio.gather(*resolve_tasks, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}


async def test_concurrent_lookups_are_limited(silent: list[str]) -> None:
    resolver = DaemonThreadResolver(max_lookups=3)
    resolve_tasks = [asyncio.create_task(resolver.resolve(f"n{each}.silent")) for each in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(socket.gaierror, match="too many DNS lookups"):
        await resolver.resolve("localhost", 80)
    assert len(silent) <= 3
    await cancel(*resolve_tasks)


PROGRAM = textwrap.dedent("""
    import asyncio, socket, time
    socket.getaddrinfo = lambda *_, **__: time.sleep(600)
    from toolyard.clients import ConnectionManager
    from toolyard.errors import Unreachable
    from toolyard.types.server import HttpSpec, Server, Timeouts

    async def main():
        server = Server("far", HttpSpec("http://far.silent/mcp"), timeouts=Timeouts(connect=0.5))
        async with ConnectionManager([server]) as manager:
            try:
                await manager.ensure_connected("far")
            except Unreachable as error:
                print(error.cause)

    asyncio.run(main())
""")


def test_a_program_ends_though_a_name_server_does_not_answer() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert result.stdout == "did not answer within 0.5 s\n"
