"""A thousand calls while their server is killed and started again: every one ends, none runs twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.tasks import cancel
from tests.tool_calls import call_tool

from toolyard.clients import ConnectionManager
from toolyard.clients.connector import ConnectionManagerLimits
from toolyard.errors import OutcomeUnknown, ServerError
from toolyard.types.server import HttpSpec, RestartPolicy, Server, StdioSpec

from .conftest import PYTHONS, SDK_SERVER, ServerPrograms

pytestmark = pytest.mark.timeout(400)

CALL_COUNT = 1000
AT_ONCE = 64
BETWEEN_KILLS = 80
"""Calls that are answered before the server is killed again."""


async def storm(manager: ConnectionManager, kill: object, journal: Path) -> Counter[str]:
    """Calls at full concurrency with kills in between; what became of each."""
    outcomes: dict[str, str] = {}
    numbers = iter(range(CALL_COUNT))

    async def caller() -> None:
        for number in numbers:
            key = f"call-{number}"
            try:
                async with asyncio.timeout(60):
                    result = await call_tool(manager, "s", "record", {"key": key})
                assert result["content"][0]["text"] == key
                outcomes[key] = "done"
            except ServerError as error:
                outcomes[key] = type(error).__name__
                await asyncio.sleep(0.25)

    def count_done() -> int:
        return sum(outcome == "done" for outcome in outcomes.values())

    async def killer() -> None:
        while len(outcomes) < CALL_COUNT - AT_ONCE:
            before = count_done()
            while count_done() < before + BETWEEN_KILLS:
                await asyncio.sleep(0.01)
            await kill()  # type: ignore[operator]

    killing = asyncio.ensure_future(killer())
    await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
    await cancel(killing)
    assert len(outcomes) == CALL_COUNT
    counts = Counter(journal.read_text().split())
    assert [key for key, times in counts.items() if times > 1] == [], "executed twice"
    for key, outcome in outcomes.items():
        if outcome == "done":
            assert counts[key] == 1
        elif outcome != OutcomeUnknown.__name__:
            assert counts[key] == 0, f"{key} ran, but its caller was told {outcome}"
    assert len(set(outcomes.values())) > 1, "nothing was ever killed in the middle"
    return Counter(outcomes.values())


@pytest.mark.parametrize("sdk", ["sdk1", "sdk2"])
@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
async def test_every_call_over_http_ends_and_none_runs_twice(
    leaks: None, transport: str, sdk: str, serve: ServerPrograms, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    site = serve(PYTHONS[sdk], SDK_SERVER, transport, "--port", "{port}", "--journal", journal)
    path = "sse" if transport == "sse" else "mcp"

    async def kill() -> None:
        site.stop()
        await asyncio.to_thread(site.start)

    async with ConnectionManager([Server("s", HttpSpec(f"http://127.0.0.1:{site.port}/{path}"))]) as manager:
        outcomes = await storm(manager, kill, journal)
    assert outcomes["done"] > 0


@pytest.mark.parametrize("sdk", ["sdk1", "sdk2"])
async def test_every_call_over_stdio_ends_and_none_runs_twice(leaks: None, sdk: str, tmp_path: Path) -> None:
    limits = ConnectionManagerLimits(restart_delays=(0.05,) * 100)
    journal = tmp_path / "journal"
    journal.touch()
    spec = StdioSpec(PYTHONS[sdk], (str(SDK_SERVER), "stdio", "--journal", str(journal)))
    server = Server("s", spec, restart=RestartPolicy.ON_FAILURE)
    async with ConnectionManager([server], limits=limits) as manager:

        async def kill() -> None:
            pid = manager.status("s").pid
            if pid is not None and manager.status("s").state == "ready":
                os.kill(pid, signal.SIGKILL)

        outcomes = await storm(manager, kill, journal)
        assert outcomes["done"] > 0
