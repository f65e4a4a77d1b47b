"""Concurrent changes of one file: no confirmed write is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from toolyard.config import plan_import, read_approvals, write_import
from toolyard.config.file_approvals import approvals_path, record_approval
from toolyard.config.file_edits.entry_edits import EntryEdit, plan_edits, write_entry
from toolyard.config.file_io import lock_for_editing
from toolyard.errors import ConfigError

_BLOCK_SECONDS = 0.3


def beside(file: Path, others: bytes, work: Callable[[], Any]) -> Future[Any]:
    """Start ``work`` while another process holds the file and is about to write ``others``."""
    with ThreadPoolExecutor(1) as threads:
        with lock_for_editing(file):
            write_task = threads.submit(work)
            assert wait([write_task], _BLOCK_SECONDS).not_done, "it did not wait"
            file.write_bytes(others)
        wait([write_task], 30)
    return write_task


def test_the_wait_for_another_writer_is_bounded(tmp_path: Path) -> None:
    with (
        lock_for_editing(tmp_path / "mcp.json"),
        pytest.raises(TimeoutError, match="another program has been writing there"),
        lock_for_editing(tmp_path / "mcp.lock", timeout_seconds=0.1),
    ):
        pytest.fail("both were the only one")
    with lock_for_editing(tmp_path / "mcp.lock"):
        pass


def test_an_import_waits_and_sees_the_earlier_write(tmp_path: Path) -> None:
    source, target = tmp_path / "cursor.json", tmp_path / "data" / "mcp.json"
    source.write_text(json.dumps({"mcpServers": {"mine": {"command": "x"}}}))
    target.parent.mkdir()
    plan = plan_import([source], target)
    outcome = beside(target, b"{}", lambda: write_import(plan))
    with pytest.raises(ConfigError, match="changed while the import was prepared"):
        outcome.result()
    assert target.read_bytes() == b"{}"


def test_an_entry_for_a_client_waits_and_sees_the_earlier_write(tmp_path: Path) -> None:
    file = tmp_path / "client.json"
    plan = plan_edits(file, [EntryEdit(("mcpServers", "toolyard"), {"command": "toolyard"})])
    outcome = beside(file, b"{}", lambda: write_entry(plan, private=False))
    with pytest.raises(ConfigError, match="changed while its new content was prepared"):
        outcome.result()
    assert file.read_bytes() == b"{}"


def test_two_approvals_are_both_remembered(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    record_approval(other, b"{}", tmp_path / "elsewhere")
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    file_bytes = approvals_path(tmp_path / "elsewhere").read_bytes()
    beside(approvals_path(data_dir), file_bytes, lambda: record_approval(one, b"{}", data_dir)).result()
    approvals = read_approvals(data_dir)
    assert (approvals.find(one) is not None, approvals.find(other) is not None) == (True, True)
