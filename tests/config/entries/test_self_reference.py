"""Entries that start Toolyard itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolyard.config import load_config
from toolyard.config.importers.merge import plan_import


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "toolyard", "args": ["stdio"]},
        {"command": "/opt/bin/toolyard", "args": ["--data-dir", "{data}", "stdio", "--agent", "x"]},
        {"command": "uvx", "args": ["toolyard", "stdio", "--data-dir={data}"]},
        {"command": "python3", "args": ["-m", "toolyard", "stdio"], "env": {"TOOLYARD_DATA_DIR": "{data}"}},
    ],
)
def test_an_entry_that_starts_this_toolyard_is_disabled(
    entry: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    data = tmp_path / ".local/share/toolyard"
    data.mkdir(parents=True)
    text = json.dumps({"mcpServers": {"me": entry}}).replace("{data}", str(data))
    (data / "mcp.json").write_text(text)
    server = load_config(cwd=tmp_path, env={}, data_dir=data).servers["me"]
    assert not server.enabled
    assert "starts this Toolyard itself" in (server.disabled_reason or "")


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "toolyard", "args": ["stdio", "--data-dir", "/another"]},
        {"command": "toolyard-notes", "args": ["stdio"]},
        {"command": "toolyard", "args": ["--version"]},
    ],
)
def test_other_entries_are_not(entry: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"other": entry}}))
    assert load_config(cwd=tmp_path, env={}, data_dir=tmp_path).servers["other"].enabled


def test_import_skips_the_entry_that_connect_wrote(tmp_path: Path) -> None:
    file = tmp_path / ".mcp.json"
    entries = {"toolyard": {"command": "toolyard", "args": ["stdio"]}, "other": {"command": "x"}}
    file.write_text(json.dumps({"mcpServers": entries}))
    plan = plan_import([file], tmp_path / "mcp.json")
    assert [server.id for server in plan.added] == ["other"]
    assert [(hint.path, hint.message) for hint in plan.hints] == [
        ("toolyard", "skipped, because it starts Toolyard itself")
    ]
