"""The key ``sessions`` of an entry, in both dialects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolyard.config import load_config
from toolyard.errors import ConfigError
from toolyard.types.server import SessionPolicy


def load(folder: Path, section: str, **keys: Any) -> Any:
    entry: dict[str, Any] = {"command": "true", **keys}
    if section == "servers":
        entry = {"trust": "trusted", "transport": {"type": "stdio", "command": "true"}, **keys}
    path = folder / "mcp.json"
    path.write_text(json.dumps({section: {"one": entry}}))
    return load_config(path, data_dir=folder)


@pytest.mark.parametrize("section", ["servers", "mcpServers"])
def test_clients_share_a_process_unless_the_entry_says_otherwise(tmp_path: Path, section: str) -> None:
    assert load(tmp_path, section).servers["one"].sessions is SessionPolicy.SHARED
    own = load(tmp_path, section, sessions="per-client").servers["one"]
    assert own.sessions is SessionPolicy.PER_CLIENT


@pytest.mark.parametrize("keys", [{"sessions": "mine"}, {"sessions": "per-client", "shared": True}])
def test_an_unknown_or_contradicting_policy_is_a_problem(tmp_path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="sessions"):
        load(tmp_path, "servers", **keys)
    assert load(tmp_path, "mcpServers", **keys).servers["one"].problems
