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

_BLOCKED_SECONDS = 0.3


def beside(file: Path, others: bytes, work: Callable[[], Any]) -> Future[Any]:
    """Start ``work`` while another process holds the file and is about to write ``others``."""
    with ThreadPoolExecutor(1) as threads:
        with lock_for_editing(file):
            begun = threads.submit(work)
            assert wait([begun], _BLOCKED_SECONDS).not_done, "it did not wait"
            file.write_bytes(others)
        wait([begun], 30)
    return begun


def test_who_does_not_come_to_an_end_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with (
        lock_for_editing(tmp_path / "mcp.json"),
        pytest.raises(TimeoutError, match="another program has been writing there"),
        lock_for_editing(tmp_path / "mcp.lock", timeout_seconds=0.1),
    ):
        pytest.fail("both were the only one")
    with lock_for_editing(tmp_path / "mcp.lock"):
        pass


def test_an_import_waits_and_then_sees_what_was_written(tmp_path: Path) -> None:
    source, target = tmp_path / "cursor.json", tmp_path / "data" / "mcp.json"
    source.write_text(json.dumps({"mcpServers": {"mine": {"command": "x"}}}))
    target.parent.mkdir()
    plan = plan_import([source], target)
    done = beside(target, b"{}", lambda: write_import(plan))
    with pytest.raises(ConfigError, match="changed while the import was prepared"):
        done.result()
    assert target.read_bytes() == b"{}"


def test_an_entry_for_a_client_waits_and_then_sees_what_was_written(tmp_path: Path) -> None:
    file = tmp_path / "client.json"
    plan = plan_edits(file, [EntryEdit(("mcpServers", "toolyard"), {"command": "toolyard"})])
    done = beside(file, b"{}", lambda: write_entry(plan, private=False))
    with pytest.raises(ConfigError, match="changed while its new content was prepared"):
        done.result()
    assert file.read_bytes() == b"{}"


def test_two_approvals_are_both_remembered(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    record_approval(other, b"{}", tmp_path / "elsewhere")
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    theirs = approvals_path(tmp_path / "elsewhere").read_bytes()
    beside(approvals_path(data_dir), theirs, lambda: record_approval(one, b"{}", data_dir)).result()
    approvals = read_approvals(data_dir)
    assert (approvals.find(one) is not None, approvals.find(other) is not None) == (True, True)
