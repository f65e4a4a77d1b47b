"""Replicas are processes of their own on one database."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.types.registry import InstanceState

if TYPE_CHECKING:
    from tests.registry.conftest import RegistryFixture

pytestmark = pytest.mark.slow

REPLICA = Path(__file__).parent / "replica.py"
KEY = "a key for tests, long enough"


@asynccontextmanager
async def replica(
    data: Path, url: str | None, user: str, instance: str, calls: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A replica that is ready to call."""
    words = (str(data), url or "", KEY, user, instance, str(calls))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(REPLICA),
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def answers(process: asyncio.subprocess.Process) -> list[str]:
    out, _ = await asyncio.wait_for(process.communicate(b"go\n"), 60)
    return out.decode().splitlines()


@pytest.fixture
async def expired_instance(registry_fixture: RegistryFixture) -> Any:
    """An instance that signed in, and whose token has run out."""
    await registry_fixture.program.set(life=1)
    registry_fixture.clock.now = time.time() - 3600
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    await registry_fixture.program.change(life=3600, token_delay=0.3)
    return instance


async def test_fifty_calls_in_two_processes_make_one_refresh(
    registry_fixture: RegistryFixture, expired_instance: Any, database_url: str | None, tmp_path: Path
) -> None:
    args = (tmp_path / "data", database_url, registry_fixture.ann.id, expired_instance.id, 25)
    async with replica(*args) as one, replica(*args) as two:
        texts = await asyncio.gather(answers(one), answers(two))
    assert [line for lines in texts for line in lines] == ["somebody"] * 50
    assert len(await registry_fixture.program.refreshes()) == 1
    assert not await registry_fixture.program.log("reuse")


async def test_a_process_that_starts_after_the_expiry_refreshes_without_anybody(
    registry_fixture: RegistryFixture, expired_instance: Any, database_url: str | None, tmp_path: Path
) -> None:
    async with replica(
        tmp_path / "data", database_url, registry_fixture.ann.id, expired_instance.id, 3
    ) as process:
        assert await answers(process) == ["somebody"] * 3
    assert len(await registry_fixture.program.refreshes()) == 1


async def test_a_process_that_finds_the_sign_in_ended_tells_all_others(
    registry_fixture: RegistryFixture, expired_instance: Any, database_url: str | None, tmp_path: Path
) -> None:
    for token_kind in ("access", "refresh"):
        await registry_fixture.program.forget(token_kind)
    async with replica(
        tmp_path / "data", database_url, registry_fixture.ann.id, expired_instance.id, 5
    ) as process:
        lines = await answers(process)
    assert [line.partition(": ")[0] for line in lines] == ["SignInEnded"] * 5
    assert (await registry_fixture.state(expired_instance))[0] is InstanceState.NEEDS_REAUTH


async def test_a_sign_in_that_another_process_finished_is_found_when_the_server_refuses(
    registry_fixture: RegistryFixture, database_url: str | None, tmp_path: Path
) -> None:
    registry_fixture.clock.now = time.time()
    instance = await registry_fixture.instance()
    async with replica(tmp_path / "data", database_url, registry_fixture.ann.id, instance.id, 5) as process:
        await registry_fixture.sign_in(instance)
        assert await answers(process) == ["somebody"] * 5
