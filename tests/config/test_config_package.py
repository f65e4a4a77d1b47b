"""The package as a whole: public names, speed, shipped files."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import toolyard.config
from toolyard.config import Configuration, example_config, load_config, parse_config

Write = Callable[[Path, object], Path]


def test_every_public_name_is_there() -> None:
    assert toolyard.config.__all__ == sorted(
        toolyard.config.__all__, key=lambda name: (name != name.upper(), name)
    )
    for name in toolyard.config.__all__:
        assert getattr(toolyard.config, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        toolyard.config.nonsense  # noqa: B018


def test_the_public_surface_is_a_decision() -> None:
    assert set(toolyard.config.__all__) == {
        *(
            "FileApproval",
            "FileApprovals",
            "ConfigDiff",
            "ConfigBroken",
            "ConfigChange",
            "Configuration",
            "ImportPlan",
        ),
        *(
            "ImportedServer",
            "LogFormat",
            "LogLevel",
            "PeopleMode",
            "ClientFile",
            "RegistrationPreference",
            "Review",
        ),
        *("ReviewedServer", "SETTINGS", "Setting", "SettingValue", "Settings", "WriteTools", "approve_file"),
        *(
            "default_data_dir",
            "diff_configurations",
            "discover_config_path",
            "example_config",
            "user_client_files",
            "load_config",
        ),
        *(
            "load_settings",
            "parse_config",
            "plan_import",
            "project_client_files",
            "read_approvals",
            "review_file",
        ),
        *("watch_config", "write_import"),
    }


def test_loading_a_configuration_loads_no_heavy_library(data_dir: Path, write: Write) -> None:
    write(data_dir / "mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    code = (
        "import sys; from toolyard.config import load_config, load_settings;"
        f"load_config(cwd={str(data_dir)!r}, data_dir={str(data_dir)!r}, env={{}});"
        f"load_settings({str(data_dir)!r}, env={{}});"
        "heavy = {'asyncio', 'watchfiles', 'tomllib', 'platformdirs', 'pydantic', 'json', 'difflib'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.strip() == "[]"


def test_the_shipped_example_is_valid_and_enables_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(example_config())
    configuration: Configuration = load_config(file, env={}, cwd=tmp_path, data_dir=tmp_path)
    assert [server.id for server in configuration.servers.values() if server.enabled] == []
    assert configuration.servers["context7"].transport.url == "https://mcp.context7.com/mcp"
    assert configuration.hints == ()


def test_the_example_works_once_it_is_switched_on() -> None:
    text = (
        example_config().replace('"enabled": false', '"enabled": true').replace('// "headers"', '"headers"')
    )
    server = parse_config(text, env={"CONTEXT7_API_KEY": "k"}).servers["context7"]
    assert server.enabled
    assert server.transport.headers == {"CONTEXT7_API_KEY": "k"}


def test_a_thousand_servers_load_in_a_blink(tmp_path: Path, write: Write) -> None:
    entry = {
        "trust": "trusted",
        "label": "A server",
        "transport": {
            "type": "http",
            "url": "https://host.example/mcp",
            "headers": {"Authorization": "Bearer ${T}"},
        },
        "timeouts": {"connect": 10, "silence": 20},
        "allowTools": ["read*", "search"],
    }
    servers = {f"server-{number}": entry for number in range(1000)}
    file = write(tmp_path / "c.json", json.dumps({"servers": servers}, indent=2))
    spent: list[float] = []
    for _ in range(5):
        begin = time.process_time()
        configuration = load_config(file, env={"T": "t"}, cwd=tmp_path, data_dir=tmp_path)
        spent.append(time.process_time() - begin)
    assert len(configuration.servers) == 1000
    # More than ten times the duration on a quiet machine.
    assert min(spent) < 1.0
