"""Locks between processes on one machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolyard.store import locks
from toolyard.store.errors import DatabaseUnavailable


def test_a_lock_is_held_by_one_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with locks.hold_file_lock(path, 1):
        with (
            pytest.raises(DatabaseUnavailable, match="has held the lock"),
            locks.hold_file_lock(path, 0.05),
        ):
            pass
        with locks.hold_file_lock(tmp_path / "y.lock", 1):
            pass
    with locks.hold_file_lock(path, 1):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_lock_file_of_a_dead_process_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "x.lock").write_text("")
    with locks.hold_file_lock(tmp_path / "x.lock", 1):
        assert locks.try_file_lock(tmp_path / "x.lock") is None


def test_the_lock_of_a_removed_file_excludes_no_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our open and our lock, the holder leaves, and somebody else comes with a new file."""
    path = tmp_path / "x.lock"
    holder = locks.try_file_lock(path)
    assert holder is not None
    real = locks._try_lock
    others: list[int | None] = []

    def late(descriptor: int) -> bool:
        monkeypatch.setattr(locks, "_try_lock", real)
        locks.release_file_lock(path, holder)
        others.append(locks.try_file_lock(path))
        return real(descriptor)

    monkeypatch.setattr(locks, "_try_lock", late)
    assert locks.try_file_lock(path) is None
    (other,) = others
    assert other is not None
    locks.release_file_lock(path, other)


def test_a_failed_lock_leaves_no_open_files(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    holder = locks.try_file_lock(path)
    assert holder is not None
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert locks.try_file_lock(path) is None
    assert len(os.listdir("/proc/self/fd")) <= before
    locks.release_file_lock(path, holder)
