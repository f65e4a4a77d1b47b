from __future__ import annotations

import codecs
import json
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolyard.config import (
    ImportPlan,
    load_config,
    plan_import,
    project_client_files,
    user_client_files,
    write_import,
)
from toolyard.config.importers.merge import insert_servers
from toolyard.config.sources.json_document import read_json
from toolyard.errors import ConfigError
from toolyard.gateway.client_snippets import CLIENT_FORMATS
from toolyard.types.server import StdioSpec

Write = Callable[[Path, object], Path]
NOW = datetime(2026, 7, 28, 12, 30, 45, tzinfo=UTC)


def flat(**commands: str) -> dict[str, Any]:
    return {"mcpServers": {key: {"command": command} for key, command in commands.items()}}


def read_import(plan: ImportPlan) -> dict[str, Any]:
    return json.loads(plan.after)["mcpServers"]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data" / "mcp.json"


def test_several_files_become_one_that_loads(tmp_path: Path, target: Path, write: Write) -> None:
    claude = write(tmp_path / "claude_desktop_config.json", flat(files="npx"))
    opencode = write(
        tmp_path / "opencode.json", {"mcp": {"search": {"type": "local", "command": ["uvx", "s"]}}}
    )
    codex = write(tmp_path / "config.toml", '[mcp_servers.docs]\nurl = "https://h/mcp"\n')
    plan = plan_import([claude, opencode, codex], target)
    assert [(server.id, server.client) for server in plan.added] == [
        ("files", "Claude Desktop"),
        ("search", "opencode"),
        ("docs", "Codex"),
    ]
    assert not target.exists()
    assert write_import(plan) is None
    configuration = load_config(target, env={}, cwd=tmp_path, data_dir=tmp_path)
    assert list(configuration.servers) == ["files", "search", "docs"]
    assert configuration.servers["search"].transport == StdioSpec(
        "uvx", ("s",), folder=str(tmp_path / "servers/search")
    )
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_existing_entries_of_the_target_are_kept_with_comments_and_backed_up(
    tmp_path: Path, target: Path, write: Write
) -> None:
    before = """{
  // my servers
  "mcpServers": {
    "mine": {"command": "x"}, // the best one
  },
  "bundles": {"b": {"serverId": "mine", "mode": "meta"}},
}
"""
    write(target, before)
    plan = plan_import([write(tmp_path / "o.json", flat(other="y"))], target)
    backup = write_import(plan, now=NOW)
    assert backup == target.with_name("mcp.json.bak-20260728123045")
    assert backup.read_text() == before
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    after = target.read_text()
    assert "// my servers" in after
    assert "// the best one" in after
    configuration = load_config(target, env={}, cwd=tmp_path, data_dir=tmp_path)
    assert set(configuration.servers) == {"mine", "other"}
    assert set(configuration.bundles) == {"b"}


def test_a_backup_never_replaces_another(tmp_path: Path, target: Path, write: Write) -> None:
    write(target, flat(a="x"))
    for number in range(3):
        source = write(tmp_path / "o.json", flat(**{f"n{number}": "y"}))
        write_import(plan_import([source], target), now=NOW)
    assert sorted(path.name for path in target.parent.iterdir()) == [
        "mcp.json",
        "mcp.json.bak-20260728123045",
        "mcp.json.bak-20260728123045-2",
        "mcp.json.bak-20260728123045-3",
    ]


def test_a_file_without_mcpservers_gets_them(tmp_path: Path, target: Path, write: Write) -> None:
    own = {"servers": {"a": {"trust": "trusted", "transport": {"type": "stdio", "command": "x"}}}}
    write(target, f"// ours\n{json.dumps(own)}")
    write_import(plan_import([write(tmp_path / "o.json", flat(b="y"))], target))
    assert set(load_config(target, env={}, cwd=tmp_path, data_dir=tmp_path).servers) == {"a", "b"}


def test_the_same_server_is_not_taken_twice(tmp_path: Path, target: Path, write: Write) -> None:
    one = write(tmp_path / "one.json", flat(a="x"))
    two = write(tmp_path / "two.json", {"mcpServers": {"a": {"type": "stdio", "command": "x", "args": []}}})
    plan = plan_import([one, two], target)
    assert [server.id for server in plan.added] == ["a"]
    assert [server.id for server in plan.same] == ["a"]
    write_import(plan)
    again = plan_import([one, two], target)
    assert again.added == ()
    assert again.after == again.before


def test_another_server_of_the_same_name_gets_a_number_and_the_old_one_stays(
    tmp_path: Path, target: Path, write: Write
) -> None:
    write(target, flat(a="mine"))
    one, two = write(tmp_path / "one.json", flat(a="x")), write(tmp_path / "two.json", flat(a="y"))
    plan = plan_import([one, two], target)
    assert read_import(plan) == {"a": {"command": "mine"}, "a-2": {"command": "x"}, "a-3": {"command": "y"}}
    assert any("imported as 'a-2'" in hint.message for hint in plan.hints)
    write_import(plan)
    assert plan_import([one, two], target).added == ()


def test_names_that_cannot_be_ids_are_changed(tmp_path: Path, target: Path, write: Write) -> None:
    names = ["@scope/pkg", "github.com/a/b", "x" * 80, "a\x1bb", "/"]
    plan = plan_import([write(tmp_path / "o.json", flat(**dict.fromkeys(names, "x")))], target)
    assert set(read_import(plan)) == {"scope-pkg", "github.com-a-b", "x" * 64, "a-b", "server"}
    assert len(plan.hints) == 5


def test_a_number_fits_into_a_long_name(tmp_path: Path, target: Path, write: Write) -> None:
    write(target, flat(**{"x" * 64: "mine"}))
    plan = plan_import([write(tmp_path / "o.json", flat(**{"x" * 64: "other"}))], target)
    assert plan.added[0].id == "x" * 62 + "-2"


def test_an_entry_that_cannot_be_used_is_skipped_and_told(tmp_path: Path, target: Path, write: Write) -> None:
    raw = {"mcpServers": {"ws": {"type": "ws", "url": "wss://h"}, "none": {}, "fine": {"command": "x"}}}
    plan = plan_import([write(tmp_path / "o.json", raw)], target)
    assert [server.id for server in plan.added] == ["fine"]
    assert {hint.path for hint in plan.hints if "skipped" in hint.message} == {"ws", "none"}


def test_a_file_that_cannot_be_read_is_a_hint_and_the_others_go_on(
    tmp_path: Path, target: Path, write: Write
) -> None:
    fine = write(tmp_path / "o.json", flat(a="x"))
    plan = plan_import([tmp_path / "nowhere.json", write(tmp_path / "broken.json", "{oops"), fine], target)
    assert [server.id for server in plan.added] == ["a"]
    assert len(plan.hints) == 2


def test_a_target_that_is_broken_is_never_replaced(tmp_path: Path, target: Path, write: Write) -> None:
    write(target, "{oops")
    with pytest.raises(ConfigError):
        plan_import([write(tmp_path / "o.json", flat(a="x"))], target)
    assert target.read_text() == "{oops"


def test_a_target_that_changed_meanwhile_is_not_overwritten(
    tmp_path: Path, target: Path, write: Write
) -> None:
    source = write(tmp_path / "o.json", flat(a="x"))
    plan = plan_import([source], target)
    write(target, flat(b="y"))
    with pytest.raises(ConfigError, match="changed while the import was prepared"):
        write_import(plan)
    assert [path.name for path in target.parent.iterdir()] == ["mcp.json"]


def test_a_target_that_is_a_link_stays_one(tmp_path: Path, target: Path, write: Write) -> None:
    real = write(tmp_path / "dotfiles" / "mcp.json", flat(a="x"))
    target.parent.mkdir()
    target.symlink_to(real)
    write_import(plan_import([write(tmp_path / "o.json", flat(b="y"))], target))
    assert target.is_symlink()
    assert set(json.loads(real.read_text())["mcpServers"]) == {"a", "b"}


@pytest.mark.parametrize(
    "before", ["{\n}", '{\n"mcpServers": {}}', '{"mcpServers": {\n"z": {"command": "y"}}}']
)
def test_line_endings_and_byte_order_mark_of_the_target_are_kept(
    tmp_path: Path, target: Path, write: Write, before: str
) -> None:
    target.parent.mkdir()
    target.write_bytes(codecs.BOM_UTF8 + before.replace("\n", "\r\n").encode())
    servers = {"a": {"command": "x", "env": {"A": "1"}}, "b": {"command": "y"}}
    write_import(plan_import([write(tmp_path / "other.json", {"mcpServers": servers})], target))
    after = target.read_bytes()
    assert after.startswith(codecs.BOM_UTF8)
    assert after.count(b"\n") == after.count(b"\r\n")
    assert json.loads(after.decode("utf-8-sig"))["mcpServers"].keys() >= servers.keys()


def test_a_new_data_directory_is_private(tmp_path: Path, target: Path, write: Write) -> None:
    other = write(tmp_path / "other.json", flat(a="x"))
    umask = os.umask(0)
    try:
        write_import(plan_import([other], target))
    finally:
        os.umask(umask)
    assert stat.S_IMODE(target.parent.stat().st_mode) == 0o700


def test_variables_are_carried_over_and_not_filled_in(
    tmp_path: Path, target: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "sk-secret")
    raw = {"mcpServers": {"a": {"url": "https://h", "headers": {"Authorization": "Bearer ${TOKEN}"}}}}
    plan = plan_import([write(tmp_path / "o.json", raw)], target)
    assert b"${TOKEN}" in plan.after
    assert b"sk-secret" not in plan.after


def test_secrets_of_other_clients_do_not_show_in_the_plan(tmp_path: Path, target: Path, write: Write) -> None:
    raw = {"mcpServers": {"a": {"command": "x", "env": {"K": "sk-secret"}}}}
    assert "sk-secret" not in repr(plan_import([write(tmp_path / "o.json", raw)], target))


@pytest.mark.parametrize(
    ("platform", "desktop", "code"),
    [
        ("darwin", "Library/Application Support/Claude", "Library/Application Support/Code/User/mcp.json"),
        ("linux", ".config/Claude", ".config/Code/User/mcp.json"),
        ("win32", "AppData/Roaming/Claude", "AppData/Roaming/Code/User/mcp.json"),
    ],
)
def test_the_known_places_depend_on_the_platform(platform: str, desktop: str, code: str) -> None:
    home = Path("/home/ada")
    places = user_client_files(home, platform)
    paths = {place.path for place in places}
    assert home / desktop / "claude_desktop_config.json" in paths
    assert home / code in paths
    assert {home / ".claude.json", home / ".cursor/mcp.json", home / ".codex/config.toml"} <= paths
    assert home / ".config/opencode/opencode.json" in paths
    assert {place.client for place in places} == {
        client_format.title for client_format in CLIENT_FORMATS.values()
    }


def test_variables_name_other_folders_of_clients() -> None:
    env = {"XDG_CONFIG_HOME": "/conf", "CLAUDE_CONFIG_DIR": "/claude", "CODEX_HOME": "/codex"}
    places = {place.path for place in user_client_files("/home/ada", "linux", env)}
    config_paths = {"/claude/.claude.json", "/codex/config.toml"}
    config_paths |= {"/conf/opencode/opencode.json", "/conf/zed/settings.json"}
    assert {Path(each) for each in config_paths} <= places
    assert Path("/conf/Code/User/mcp.json") in places
    relative = {"XDG_CONFIG_HOME": "conf"}
    assert user_client_files("/home/ada", "linux", relative) == user_client_files("/home/ada", "linux")


def test_the_places_of_a_project() -> None:
    paths = {place.path for place in project_client_files("/p")}
    assert {Path("/p/.mcp.json"), Path("/p/.vscode/mcp.json"), Path("/p/.cursor/mcp.json")} <= paths


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(["mcpServers", "servers", "x"]), st.dictionaries(st.text(), json_values)),
    st.dictionaries(st.text(), json_values, min_size=1),
    st.sampled_from([None, 2]),
)
def test_inserting_adds_exactly_the_entries_and_the_result_is_plain_json(
    root: dict[str, Any], entries: dict[str, Any], indent: int | None
) -> None:
    fresh = {key: value for key, value in entries.items() if key not in root.get("mcpServers", {})}
    after = insert_servers(json.dumps(root, indent=indent), fresh) if fresh else json.dumps(root)
    expected = {**root, "mcpServers": {**root.get("mcpServers", {}), **fresh}} if fresh else root
    assert json.loads(after) == expected
    assert read_json(after).duplicate_keys == ()
