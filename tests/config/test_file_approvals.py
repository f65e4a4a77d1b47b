from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolyard.config import (
    Configuration,
    FileApproval,
    FileApprovals,
    approve_file,
    read_approvals,
    review_file,
)
from toolyard.errors import ConfigError
from toolyard.types.server import StdioSpec

Load = Callable[..., Configuration]
Write = Callable[[Path, object], Path]

CONFIG: dict[str, Any] = {
    "mcpServers": {
        "local": {
            "command": "${TOOL}",
            "args": ["--key", "${KEY:-none}"],
            "env": {"A": "${B}"},
            "cwd": "/srv",
        },
        "remote": {"url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        "off": {"command": "x", "enabled": False},
    }
}
ENV = {"TOOL": "npx", "B": "b", "HOST": "h", "TOKEN": "t"}


@pytest.fixture
def project_file(project: Path, write: Write) -> Path:
    return write(project / ".mcp.json", CONFIG)


def test_a_discovered_file_waits_for_approval_and_nothing_expands(load: Load, project_file: Path) -> None:
    configuration = load(env=ENV)
    assert list(configuration.servers) == ["local", "remote", "off"]
    local, remote, off = configuration.servers.values()
    assert not any(server.enabled for server in configuration.servers.values())
    assert local.disabled_reason == f"not approved: run `toolyard approve {project_file}`"
    assert local.transport == StdioSpec("${TOOL}", ("--key", "${KEY:-none}"), {"A": "${B}"}, "/srv")
    assert remote.transport.url == "https://${HOST}/mcp"
    assert remote.transport.headers == {"Authorization": "Bearer ${TOKEN}"}
    assert off.disabled_reason is None
    assert configuration.unapproved == {"local", "remote", "off"}
    assert configuration.waiting == configuration.file == str(project_file)
    assert any("toolyard approve" in (hint.hint or "") for hint in configuration.hints)


def test_no_variable_is_even_looked_at_before(load: Load, project_file: Path) -> None:
    watched_paths: list[str] = []

    class Spy(dict[str, str]):
        def get(self, key: str, default: Any = None) -> Any:
            watched_paths.append(key)
            return super().get(key, default)

        __getitem__ = get

    load(env=Spy(ENV))
    assert not {"TOOL", "KEY", "B", "HOST", "TOKEN"} & {*watched_paths}


def test_once_approved_it_is_used(load: Load, project_file: Path, data_dir: Path) -> None:
    approve_file(project_file, data_dir)
    configuration = load(env=ENV)
    assert configuration.servers["local"].transport == StdioSpec("npx", ("--key", "none"), {"A": "b"}, "/srv")
    assert configuration.servers["remote"].enabled
    assert configuration.waiting is None
    assert configuration.hints == ()


@pytest.mark.parametrize("name", [".mcp.json", "toolyard.mcp.json", ".toolyard/mcp.json"])
def test_servers_of_a_discovered_file_run_in_its_project(
    load: Load, project: Path, data_dir: Path, write: Write, name: str
) -> None:
    entries = {
        "own": {"command": "./server.sh", "args": ["./data"]},
        "path": {"command": "npx", "cwd": "sub"},
        "elsewhere": {"command": "/bin/server", "cwd": "${PLACE}"},
        "remote": {"url": "https://h/mcp"},
    }
    approve_file(write(project / name, {"mcpServers": entries}), data_dir)
    (project / "deep").mkdir()
    servers = load(cwd=project / "deep", env={"PLACE": "/srv"}).servers
    assert servers["own"].transport == StdioSpec(f"{project}/server.sh", ("./data",), {}, str(project))
    assert servers["path"].transport == StdioSpec("npx", (), {}, f"{project}/sub")
    assert servers["elsewhere"].transport == StdioSpec("/bin/server", (), {}, "/srv")
    assert servers["remote"].transport.url == "https://h/mcp"


def test_the_folder_in_a_file_that_was_named_counts_from_that_of_the_client_and_the_command_from_it(
    load: Load, project: Path, write: Write
) -> None:
    path = write(project / ".mcp.json", {"mcpServers": {"own": {"command": "bin/server", "cwd": "sub"}}})
    spec = StdioSpec("bin/server", (), {}, f"{project}/sub")
    assert load(path).servers["own"].transport == spec
    elsewhere = load(path, env={"TOOLYARD_CLIENT_DIR": "/srv"})
    assert elsewhere.servers["own"].transport == StdioSpec("bin/server", (), {}, "/srv/sub")


def test_a_changed_file_waits_and_the_last_approved_state_stays(
    load: Load, project_file: Path, data_dir: Path, write: Write
) -> None:
    approve_file(project_file, data_dir)
    write(project_file, {"mcpServers": {"local": {"command": "evil"}, "more": {"command": "evil"}}})
    configuration = load(env=ENV)
    assert list(configuration.servers) == ["local", "remote", "off"]
    assert configuration.servers["local"].transport.command == "npx"
    assert configuration.waiting == str(project_file)
    (hint,) = configuration.hints
    assert "changed since it was approved" in hint.message
    approve_file(project_file, data_dir)
    assert list(load(env=ENV).servers) == ["local", "more"]


def test_a_change_that_is_broken_does_not_disturb_the_approved_state(
    load: Load, project_file: Path, data_dir: Path
) -> None:
    approve_file(project_file, data_dir)
    for broken in (b"{oops", b"\xff\xfe", b""):
        project_file.write_bytes(broken)
        configuration = load(env=ENV)
        assert configuration.servers["local"].enabled
        assert configuration.waiting == str(project_file)


def test_a_file_restored_to_its_approved_content_needs_no_new_approval(
    load: Load, project_file: Path, data_dir: Path, write: Write
) -> None:
    approve_file(project_file, data_dir)
    write(project_file, "{}")
    write(project_file, CONFIG)
    assert load(env=ENV).waiting is None


def test_approval_is_for_one_place_only(
    load: Load, project_file: Path, data_dir: Path, project: Path, write: Write
) -> None:
    approve_file(project_file, data_dir)
    copy = write(project / "sub" / ".mcp.json", CONFIG)
    configuration = load(env=ENV, cwd=project / "sub")
    assert configuration.waiting == str(copy)


def test_one_file_reached_through_a_linked_folder_is_one_file(
    load: Load, project_file: Path, data_dir: Path, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(project)
    approve_file(tmp_path / "link" / ".mcp.json", data_dir)
    assert load(env=ENV).waiting is None


def test_explicit_paths_variables_and_the_data_directory_count_as_approved(
    load: Load, project_file: Path, data_dir: Path, write: Write
) -> None:
    assert load(project_file, env=ENV).servers["local"].enabled
    assert load(env={**ENV, "TOOLYARD_CONFIG_PATH": str(project_file)}).servers["local"].enabled
    assert load(env={**ENV, "MCP_CONFIG_PATH": str(project_file)}).servers["local"].enabled
    project_file.unlink()
    write(data_dir / "mcp.json", CONFIG)
    assert load(env=ENV).servers["local"].enabled


def test_overrides_and_environment_need_no_approval_beside_a_file_that_does(
    load: Load, project_file: Path
) -> None:
    inline = json.dumps({"mcpServers": {"remote": {"command": "inline"}}})
    configuration = load(
        env={**ENV, "TOOLYARD_CONFIG_JSON": inline}, overrides={"mcpServers": {"mine": {"command": "x"}}}
    )
    enabled_keys = {key for key, server in configuration.servers.items() if server.enabled}
    assert enabled_keys == {"remote", "mine"}


def test_a_discovered_file_that_was_never_approved_is_still_checked(
    load: Load, project_file: Path, write: Write
) -> None:
    write(project_file, {"mcpServers": {"a": {"command": 5}}})
    assert load().servers["a"].problems
    write(project_file, {"servers": {"a": {"command": 5}}})
    with pytest.raises(ConfigError):
        load()


def test_a_caller_may_bring_its_own_approvals(load: Load, project_file: Path) -> None:
    content = project_file.read_bytes()
    file_approvals = FileApprovals(
        {
            str(project_file): FileApproval(
                review_file(project_file, project_file.parent).sha256, content.decode()
            )
        }
    )
    assert load(env=ENV, approvals=file_approvals).servers["local"].enabled


def test_the_record_is_for_its_owner_only_and_holds_hash_and_content(
    project_file: Path, data_dir: Path
) -> None:
    approve_file(project_file, data_dir)
    record = data_dir / "approvals.json"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    entry = json.loads(record.read_text())["files"][str(project_file)]
    assert entry["content"] == project_file.read_text()
    assert len(entry["sha256"]) == 64
    assert [path.name for path in data_dir.iterdir()] == ["approvals.json"]


def test_the_record_is_made_together_with_its_folder(project_file: Path, tmp_path: Path) -> None:
    approve_file(project_file, tmp_path / "new" / "folder")
    assert read_approvals(tmp_path / "new" / "folder").find(project_file)


def test_approvals_of_other_files_are_kept(
    project_file: Path, data_dir: Path, tmp_path: Path, write: Write
) -> None:
    other = write(tmp_path / "other" / ".mcp.json", {})
    approve_file(project_file, data_dir)
    approve_file(other, data_dir)
    assert read_approvals(data_dir).find(project_file)
    assert read_approvals(data_dir).find(other)


@pytest.mark.parametrize(
    "text", ["{oops", "[]", '{"files": 5}', '{"files": {"a": 5, "b": {"sha256": 1}}}', "\xff"]
)
def test_a_damaged_record_approves_nothing(load: Load, project_file: Path, data_dir: Path, text: str) -> None:
    (data_dir / "approvals.json").write_bytes(text.encode("latin-1"))
    assert load(env=ENV).waiting == str(project_file)
    approve_file(project_file, data_dir)
    assert load(env=ENV).waiting is None


def test_and_says_so(load: Load, project_file: Path, data_dir: Path) -> None:
    (data_dir / "approvals.json").write_text("{oops")
    assert any("record of approvals cannot be read" in hint.message for hint in load(env=ENV).hints)


def test_a_name_that_is_not_utf8_can_be_approved(data_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "caf\udce9"
    folder.mkdir()
    (folder / ".mcp.json").write_text("{}")
    approve_file(folder / ".mcp.json", data_dir)
    assert read_approvals(data_dir).find(folder / ".mcp.json")


def test_a_path_with_spaces_is_quoted_in_the_reason(load: Load, tmp_path: Path, write: Write) -> None:
    write(tmp_path / "my project" / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    reason = load(cwd=tmp_path / "my project").servers["a"].disabled_reason
    assert reason == f"not approved: run `toolyard approve '{tmp_path}/my project/.mcp.json'`"
