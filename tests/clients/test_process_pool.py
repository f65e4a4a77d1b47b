"""Processes of stdio servers that several connection managers share."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.tool_calls import call_tool

from toolyard.clients import ConnectionManager
from toolyard.clients.process_pool import ProcessPool
from toolyard.errors import Unreachable
from toolyard.types.account import Principal
from toolyard.types.server import Server, StdioSpec, Trust

ODD = str(Path(__file__).parent.parent / "gateway/passthrough_server.py")
Until = Callable[..., Awaitable[None]]


def server(*, env: Mapping[str, str] | None = None, **more: Any) -> Server:
    return Server("one", StdioSpec(sys.executable, ("-I", "-S", ODD, "one"), env or {}), **more)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def start(manager: ConnectionManager, principal: Principal) -> int:
    await call_tool(manager, "one", "odd", {}, principal=principal)
    pid = manager.status("one", principal=principal).pid
    assert pid is not None
    return pid


async def test_managers_of_one_pool_share_the_process_of_equal_servers(wait_until: Until) -> None:
    pool, ann = ProcessPool(), Principal("ann")
    first, second = (ConnectionManager([server()], processes=pool) for _ in range(2))
    pid = await start(first, ann)
    assert await start(second, ann) == pid
    await first.close_all()
    assert is_running(pid)
    assert await start(second, ann) == pid
    await second.close_all()
    await pool.close()
    await wait_until(lambda: not is_running(pid))


@pytest.mark.parametrize(
    "other", [server(env={"TOKEN": "b"}), server(env={"PATH": "/nowhere"}), server(trust=Trust.UNTRUSTED)]
)
async def test_another_environment_or_trust_is_another_process(other: Server) -> None:
    pool, ann = ProcessPool(), Principal("ann")
    managers = [ConnectionManager([each], processes=pool) for each in (server(env={"TOKEN": "a"}), other)]
    assert len({await start(manager, ann) for manager in managers}) == 2
    for manager in managers:
        await manager.close_all()
    await pool.close()


async def test_a_status_names_all_processes_and_their_differences() -> None:
    pool, ann = ProcessPool(), Principal("ann")
    managers = [ConnectionManager([server(env={"TOKEN": each})], processes=pool) for each in "ab"]
    pids = {await start(manager, ann) for manager in managers}
    processes = managers[0].status("one", principal=ann).processes
    assert {each.pid for each in processes} == pids
    for each in processes:
        assert each.launch is not None
        assert each.launch.endswith(", with its own TOKEN")
    for manager in managers:
        await manager.close_all()
    await pool.close()


async def test_another_person_has_another_process() -> None:
    pool = ProcessPool()
    manager = ConnectionManager([server()], processes=pool)
    assert await start(manager, Principal("ann")) != await start(manager, Principal("bob"))
    await manager.close_all()
    await pool.close()


async def test_notifications_of_a_shared_process_reach_all_its_managers() -> None:
    pool, ann = ProcessPool(), Principal("ann")
    log_entries: list[tuple[int, str]] = []

    def listen(number: int) -> Callable[[str, str, Mapping[str, Any]], None]:
        return lambda server_id, method, params: log_entries.append((number, method))

    managers = [ConnectionManager([server()], processes=pool, on_notification=listen(n)) for n in range(2)]
    for manager in managers:
        await start(manager, ann)
    await call_tool(managers[0], "one", "completed", {}, principal=ann)
    assert log_entries == [(n, "notifications/elicitation/complete") for n in range(2)]
    for manager in managers:
        await manager.close_all()
    await pool.close()


async def test_the_limit_of_a_pool_counts_the_processes_of_all_managers() -> None:
    pool = ProcessPool(1)
    managers = [ConnectionManager([server(env={"N": str(n)})], processes=pool) for n in range(2)]
    await start(managers[0], Principal("local"))
    with pytest.raises(Unreachable, match="which is the maximum"):
        await start(managers[1], Principal("local"))
    for manager in managers:
        await manager.close_all()
    await pool.close()
