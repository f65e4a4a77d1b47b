"""Unexpected files: links of other users, pipes, folders, permissions, names that are taken."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toolyard.agents.definitions.agents_md import read_agents
from toolyard.auth.errors import RegistrationFailed
from toolyard.catalog.lock import read_lock, write_lock
from toolyard.clients.handshake import FileEraCache
from toolyard.config.file_approvals import approvals_path, read_approvals
from toolyard.config.file_io import (
    create_private_file,
    remove_stale_temporary_files,
    write_atomically,
    write_backup,
    write_private_file,
)
from toolyard.config.fingerprint_key import fingerprint_key
from toolyard.errors import AgentsError, ConfigError
from toolyard.registry.auth_provider_factory import build_config_target
from toolyard.store.errors import KeyUnusable
from toolyard.store.sql.key_file import read_key
from toolyard.types.server import HttpSpec, OAuthSpec, Provenance, Server

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
OTHER_UID = 12345


@as_root
def test_a_link_planted_by_another_user_is_not_followed(tmp_path: Path) -> None:
    ours, link = tmp_path / "profile", tmp_path / "mcp.lock"
    link.symlink_to(ours)
    os.lchown(link, OTHER_UID, OTHER_UID)
    with pytest.raises(PermissionError, match="belongs to another user"):
        write_lock(link, {})
    assert not ours.exists()


@as_root
def test_a_link_of_another_user_in_the_middle_of_a_chain_is_not_followed(tmp_path: Path) -> None:
    ours, middle, link = tmp_path / "profile", tmp_path / "middle", tmp_path / "mcp.json"
    ours.write_text("ours")
    middle.symlink_to(ours)
    os.lchown(middle, OTHER_UID, OTHER_UID)
    link.symlink_to(middle)
    with pytest.raises(PermissionError):
        write_private_file(link, b"{}")
    assert ours.read_text() == "ours"


@as_root
def test_a_file_that_is_replaced_keeps_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text("{}")
    os.chown(file, OTHER_UID, OTHER_UID)
    write_private_file(file, b'{"a": 1}')
    file_stat = file.stat()
    assert (file_stat.st_uid, file_stat.st_gid, file.read_bytes()) == (OTHER_UID, OTHER_UID, b'{"a": 1}')


def test_our_own_link_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "real.json", tmp_path / "mcp.json"
    link.symlink_to("real.json")
    write_atomically(link, b"{}")
    assert link.is_symlink()
    assert file.read_bytes() == b"{}"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_lock_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    lock = tmp_path / "mcp.lock"
    lock.write_text("{}")
    lock.chmod(mode)
    write_lock(lock, {})
    assert stat.S_IMODE(lock.stat().st_mode) == mode


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_nothing_but_a_file_is_replaced(tmp_path: Path, make: object) -> None:
    target = tmp_path / "mcp.lock"
    make(target)  # type: ignore[operator]
    with pytest.raises(OSError, match="not a regular file"):
        write_atomically(target, b"{}")
    assert target.exists()
    assert [each.name for each in tmp_path.iterdir()] == ["mcp.lock"]


def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    lock, agents = tmp_path / "mcp.lock", tmp_path / "AGENTS.md"
    for path in (lock, agents, approvals_path(tmp_path)):
        os.mkfifo(path)
    with pytest.raises(ConfigError, match="found a pipe"):
        read_lock(lock)
    with pytest.raises(AgentsError, match="found a pipe"):
        read_agents(agents)
    assert read_approvals(tmp_path).read_problem is not None


@pytest.mark.timeout(30)
def test_a_pipe_in_place_of_a_key_or_a_cache_does_not_block(tmp_path: Path) -> None:
    for name in ("secret.key", "fingerprint.key", "eras.json", "key.pem"):
        os.mkfifo(tmp_path / name, 0o600)
    with pytest.raises(KeyUnusable, match="found a pipe"):
        read_key(tmp_path / "secret.key")
    assert len(fingerprint_key(None, tmp_path)) == 32
    assert FileEraCache(tmp_path / "eras.json").recall("server") is None
    spec = HttpSpec("http://127.0.0.1:1/mcp")
    oauth, origin = OAuthSpec(private_key_file="key.pem"), Provenance("file", str(tmp_path / "mcp.json"))
    with pytest.raises(RegistrationFailed, match="found a pipe"):
        build_config_target(Server("robot", spec, oauth=oauth, provenance=origin), spec)


@pytest.mark.parametrize("damaged_bytes", [b"", b"short"])
def test_a_damaged_fingerprint_key_is_replaced_by_a_whole_one(tmp_path: Path, damaged_bytes: bytes) -> None:
    (tmp_path / "fingerprint.key").write_bytes(damaged_bytes)
    key = fingerprint_key(None, tmp_path)
    assert (len(key), (tmp_path / "fingerprint.key").read_bytes()) == (32, key)
    assert fingerprint_key(None, tmp_path) == key
    assert [each.name for each in tmp_path.iterdir()] == ["fingerprint.key"]


@pytest.mark.parametrize("write", [write_backup, write_private_file, create_private_file])
def test_a_disk_that_is_full_leaves_no_partial_file(
    tmp_path: Path, write: Callable[[Path, bytes], object]
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write(tmp_path / "mcp.json", b"x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_backup_replaces_nothing_that_has_its_name(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    target, elsewhere = tmp_path / "mcp.json", tmp_path / "elsewhere"
    (tmp_path / "mcp.json.bak-20260101000000").symlink_to(elsewhere)
    backup = write_backup(target, b"secret", now)
    assert backup.name == "mcp.json.bak-20260101000000-2"
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert not elsewhere.exists()


def test_temporary_files_of_a_killed_process_are_removed_and_no_others(tmp_path: Path) -> None:
    target = tmp_path / "secret.key"
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from toolyard.config.file_io import write_private_file\n"
        "os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_private_file(Path(sys.argv[1]), b'key')\n"
    )
    result = subprocess.run([sys.executable, "-c", program, str(target)], check=False)
    assert result.returncode == -signal.SIGKILL
    (stale,) = tmp_path.iterdir()
    others = {"secret.key", ".hidden", ".secret.key.bak", "secret.key.0123456789ab", "mcp.json"}
    for name in others:
        (tmp_path / name).write_text("x")
    (tmp_path / ".link.0123456789ab").symlink_to(target)
    # A file that another process is writing now has a recent time.
    remove_stale_temporary_files(tmp_path)
    assert stale.exists()
    remove_stale_temporary_files(tmp_path, min_age_seconds=-1.0)
    assert {each.name for each in tmp_path.iterdir()} == {*others, ".link.0123456789ab"}
