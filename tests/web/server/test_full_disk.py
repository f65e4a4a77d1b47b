"""A disk that is full: no tool call is made without its entry in the audit log, and /readyz says so."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.web.conftest import Opening

CALL = "/api/v1/tools/demo_weekday/call"
ARGUMENTS = {"arguments": {"date": "2026-07-28"}}
HANG_GUARD = 120

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small filesystem")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Write until nothing more fits."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as out:
        for size in (65_536, 4_096, 1):
            with contextlib.suppress(OSError):
                while True:
                    out.write(b"x" * size)
    return filler


async def calls_of(services: Any, action: str) -> int:
    audit_entries = await services.services.database.audit.entries(
        before=None, limit=1_000, action=action, actor=None
    )
    return len([entry for entry in audit_entries if entry.outcome in ("ok", "")])


async def test_calls_are_refused_while_the_audit_log_cannot_be_written(
    small_disk: Path, open_site: Opening, demo: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    services = await open_site({"demo": demo}, data=small_disk / "data", people_mode="password")
    ann = await services.person("Ann")
    assert (await ann.token.post(CALL, ARGUMENTS)).status == 200
    filler = fill(small_disk)
    call_count = 1
    async with asyncio.timeout(HANG_GUARD):
        while (answer := await ann.token.post(CALL, ARGUMENTS)).status == 200:
            call_count += 1
    assert answer.status == 503
    assert answer.json["type"] == "urn:toolyard:problem:audit-unavailable"
    assert "audit log cannot be written" in answer.json["detail"]
    assert answer.headers["Retry-After"]
    ready = await ann.token.get("/readyz")
    assert (ready.status, ready.text) == (503, "the audit log cannot be written\n")
    await asyncio.sleep(3)
    warnings = [each for each in caplog.records if "queued): " in each.getMessage()]
    assert len(warnings) == 1
    filler.unlink()
    async with asyncio.timeout(HANG_GUARD):
        while (await ann.token.get("/readyz")).status != 200:
            await asyncio.sleep(0.1)
    assert (await ann.token.post(CALL, ARGUMENTS)).status == 200
    async with asyncio.timeout(HANG_GUARD):
        while await calls_of(services, "tool.call") != call_count + 1:
            await asyncio.sleep(0.1)


async def test_a_strict_log_has_the_entry_before_the_call_is_made(
    small_disk: Path, open_site: Opening, demo: dict[str, Any]
) -> None:
    services = await open_site(
        {"demo": demo}, data=small_disk / "data", people_mode="password", audit="strict"
    )
    ann = await services.person("Ann")
    assert (await ann.token.post(CALL, ARGUMENTS)).status == 200
    fill(small_disk)
    call_count = 1
    async with asyncio.timeout(HANG_GUARD):
        while (answer := await ann.token.post(CALL, ARGUMENTS)).status == 200:
            call_count += 1
    assert answer.json["type"] == "urn:toolyard:problem:audit-unavailable"
    # Every call that was made has been on the disk since before it was made.
    assert await calls_of(services, "tool.call.start") == call_count


async def test_the_one_local_user_is_not_held_up(
    small_disk: Path, open_site: Opening, demo: dict[str, Any]
) -> None:
    services = await open_site({"demo": demo}, data=small_disk / "data")
    client = services.client()
    assert (await client.post(CALL, ARGUMENTS)).status == 200
    fill(small_disk)
    async with asyncio.timeout(HANG_GUARD):
        while not services.services.database.audit.is_failing:
            assert (await client.post(CALL, ARGUMENTS)).status == 200
    assert (await client.post(CALL, ARGUMENTS)).status == 200
    assert (await client.get("/readyz")).status == 200
