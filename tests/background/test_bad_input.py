"""The shared process on machines where something is missing, full, forbidden or of another version."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.background.conftest import wait_until
from tests.conftest import ROOT

if TYPE_CHECKING:
    from tests.background.conftest import Machine

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="mounts file systems")


@pytest.fixture
def mount_data(machine: Machine) -> Iterator[Callable[[str], None]]:
    """``mount_data(options)``: put the data directory on a small file system of its own."""
    mounts: list[Path] = []

    def mount(options: str) -> None:
        words = ["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "none", str(machine.data)]
        if subprocess.run(words, capture_output=True).returncode:
            pytest.skip("file systems cannot be mounted here")
        mounts.append(machine.data)

    yield mount
    machine.close()
    for path in mounts:
        subprocess.run(["umount", "-l", str(path)], check=True)


@needs_root
def test_a_data_directory_on_another_file_system_is_shared_as_any(
    machine: Machine, mount_data: Callable[[str], None]
) -> None:
    mount_data("size=10m")
    machine.write_config()
    clients = [machine.start().initialize() for _ in range(2)]
    assert [client.weekday() for client in clients] == ["Tuesday", "Tuesday"]
    assert machine.backgrounds == [machine.owner]
    assert [client.close() for client in clients] == ["", ""]


@needs_root
def test_a_full_disk_does_not_stop_clients(machine: Machine, mount_data: Callable[[str], None]) -> None:
    mount_data("size=64k")
    machine.write_config()
    with (machine.data / "filler").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    clients = [machine.start().initialize() for _ in range(2)]
    assert [client.weekday() for client in clients] == ["Tuesday", "Tuesday"]
    assert machine.backgrounds == [machine.owner]
    assert [client.close() for client in clients] == ["", ""]


@needs_root
def test_a_full_runtime_folder_does_not_stop_clients(machine: Machine) -> None:
    words = ["mount", "-t", "tmpfs", "-o", "mode=700,size=4k", "none", str(machine.runtime)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        with pytest.raises(OSError, match="No space"):
            (machine.runtime / "filler").write_bytes(bytes(8192))
        clients = [machine.start().initialize() for _ in range(2)]
        assert [client.weekday() for client in clients] == ["Tuesday", "Tuesday"]
        assert len(machine.backgrounds) == 1
        assert [client.close() for client in clients] == ["", ""]
        machine.close()
    finally:
        subprocess.run(["umount", "-l", str(machine.runtime)], check=True)


@needs_root
def test_a_read_only_data_directory_does_not_stop_clients(
    machine: Machine, mount_data: Callable[[str], None]
) -> None:
    mount_data("size=1m")
    machine.write_config()
    subprocess.run(["mount", "-o", "remount,ro", str(machine.data)], check=True)
    clients = [machine.start().initialize() for _ in range(2)]
    assert [client.weekday() for client in clients] == ["Tuesday", "Tuesday"]
    assert machine.backgrounds == [machine.owner]
    assert (machine.runtime / "toolyard/background.log").exists()
    assert [client.close() for client in clients] == ["", ""]


WITHOUT_SOCKETS = """#!{python}
import ctypes, os, platform, struct, sys
socket = {{"x86_64": 41, "aarch64": 198}}[platform.machine()]
# Load the number of the system call; if it is socket(), fail with EPERM, else allow it.
code = [(0x20, 0, 0, 0), (0x15, 0, 1, socket), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(program)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, header, 0, 0) == 0
os.execv(sys.executable, [sys.executable, "-m", "toolyard", *sys.argv[1:]])
"""


def test_a_sandbox_without_sockets_gets_a_process_of_its_own(machine: Machine) -> None:
    program = machine.home / "sandboxed"
    program.write_text(WITHOUT_SOCKETS.format(python=sys.executable))
    program.chmod(0o700)
    client = machine.start(program=str(program)).initialize()
    assert client.weekday() == "Tuesday"
    assert "its own Toolyard process: [Errno 1] Operation not permitted" in client.close()
    assert machine.backgrounds == []


@needs_root
@pytest.mark.parametrize("namespace", ["--mount", "--net"])
def test_another_namespace_gets_a_process_of_its_own(machine: Machine, namespace: str) -> None:
    """Paths, addresses and process ids mean something else there."""
    machine.start().initialize()
    program = machine.home / "contained"
    program.write_text(f'#!/bin/sh\nexec unshare {namespace} "{sys.executable}" -m toolyard "$@"\n')
    program.chmod(0o700)
    client = machine.start(program=str(program)).initialize()
    assert client.weekday() == "Tuesday"
    assert "runs in another container or sandbox" in client.close()
    assert len(machine.status()["clients"]) == 1


@pytest.fixture
def newer(machine: Machine) -> str:
    """The path of a program that is a newer version of this one."""
    shutil.copytree(
        ROOT / "src/toolyard", machine.home / "new/toolyard", ignore=shutil.ignore_patterns("__pycache__")
    )
    version = machine.home / "new/toolyard/types/version.py"
    version.write_text(re.sub(r'(__version__ = )".*"', r'\1"99.0.0"', version.read_text()))
    program = machine.home / "newer"
    folder = machine.home / "new"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" -m toolyard "$@"\n')
    program.chmod(0o700)
    return str(program)


def test_an_older_process_serves_newer_clients_until_it_is_idle(machine: Machine, newer: str) -> None:
    machine.env["TOOLYARD_IDLE_EXIT"] = "1"
    old = machine.start().initialize()
    call = old.start_long_call()
    owner = machine.owner
    new = machine.start(program=newer).initialize()
    assert new.weekday() == "Tuesday"
    assert {each["version"] for each in machine.status()["clients"]} == {
        machine.status()["version"],
        "99.0.0",
    }
    assert machine.backgrounds == [owner]
    old.send("notifications/cancelled", {"requestId": call}, notify=True)
    wait_until(lambda: machine.owner not in (0, owner))
    wait_until(lambda: machine.status().get("version") == "99.0.0")
    assert (old.weekday(), new.weekday()) == ("Tuesday", "Tuesday")
    assert machine.backgrounds == [machine.owner]
    assert len(machine.status()["clients"]) == 2
    assert (old.close(), new.close()) == ("", "")


def test_a_process_without_clients_makes_way_for_another_version(machine: Machine, newer: str) -> None:
    machine.start().initialize().close()
    owner = machine.owner
    assert machine.start(program=newer).initialize().weekday() == "Tuesday"
    assert machine.owner != owner
    assert json.loads(machine.run("status", "--json").stdout)["version"] == "99.0.0"
