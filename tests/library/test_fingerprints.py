"""What is stored of a server is found by a keyed hash of its entry, which reveals nothing of its secrets."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolyard import Toolyard
from toolyard.config.fingerprint_key import fingerprint_key

Recorders = Callable[..., Any]


async def list_stored_hashes(entry: dict[str, Any], folder: Path, **settings: str) -> set[str]:
    """List the tools of a server with that entry; return all hashes that then stand in the data directory."""
    async with Toolyard.open({"mcpServers": {"one": entry}}, data_dir=folder, settings=settings) as yard:
        await yard.call("one_echo")
    connection = sqlite3.connect(folder / "catalogue.db")
    rows = {str(row) for (row,) in connection.execute("SELECT entry_hash FROM catalogue")}
    connection.close()
    assert (folder / "eras.json").stat().st_mode & 0o077 == 0
    eras = set(json.loads((folder / "eras.json").read_text()))
    assert rows
    assert eras
    return rows | eras


async def test_equal_entries_leave_different_hashes_in_every_installation(
    recorder: Recorders, tmp_path: Path
) -> None:
    entry = {**recorder().entry, "env": {"TOKEN": "guessable"}}
    first, second = (
        await list_stored_hashes(entry, tmp_path / "one"),
        await list_stored_hashes(entry, tmp_path / "two"),
    )
    assert not first & second
    assert await list_stored_hashes(entry, tmp_path / "one") == first


async def test_installations_with_the_same_secret_key_agree(recorder: Recorders, tmp_path: Path) -> None:
    entry, key = recorder().entry, "a secret key that replicas share"
    first = await list_stored_hashes(entry, tmp_path / "one", secret_key=key)
    assert await list_stored_hashes(entry, tmp_path / "two", secret_key=key) == first
    assert not (tmp_path / "one" / "fingerprint.key").exists()


def test_the_key_is_private_and_written_once(tmp_path: Path) -> None:
    key = fingerprint_key(None, tmp_path / "data")
    assert len(key) == 32
    assert fingerprint_key(None, tmp_path / "data") == key
    (file,) = (tmp_path / "data").iterdir()
    assert file.stat().st_mode & 0o077 == 0
