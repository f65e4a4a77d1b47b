"""Run programs as a user without privileges, to which the kernel applies permissions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.conftest import ROOT

__all__ = ["PACKAGE_PATH", "run_as_user", "run_with_hidden_processes"]

PACKAGE_PATH = f"{ROOT / 'src'}{os.pathsep}{Path(orjson.__file__).parent.parent}"
"""PYTHONPATH of this checkout and its dependencies, for interpreters that do not have them installed."""

_PATH = "/usr/local/bin:/usr/bin:/bin"
_NOBODY_UID = 65534
"""The user ``nobody``, present on every Linux."""


_HIDE_PROCESSES = """
mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid=$0 --regid=$0 --clear-groups "$@"
"""


def run_as_user(folder: Path, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python with ``arguments`` in ``folder``, which is given to the user, and with only ``env``.

    As root, it changes to another user; otherwise it keeps the current one. Skips the test if that user
    cannot run an interpreter of this version, which is common for one installed by root.
    """
    options = _prepare(folder, env)
    return subprocess.run([_interpreter(options), *map(str, arguments)], **options)


def run_with_hidden_processes(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Do the same where /proc does not show protected processes, as with ``ProtectProc=invisible``.

    Skips the test without the right to mount.
    """
    options = _prepare(folder, {})
    python = _interpreter(options)
    for name in ("user", "group", "extra_groups"):
        options.pop(name, None)
    hidden = ["unshare", "--mount", "sh", "-c", _HIDE_PROCESSES, str(_NOBODY_UID)]
    try:
        subprocess.run([*hidden, "true"], check=True, **options)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user cannot mount /proc")
    return subprocess.run([*hidden, python, *map(str, arguments)], **options)


def _prepare(folder: Path, env: dict[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {"cwd": folder, "capture_output": True, "text": True, "timeout": 100}
    options["env"] = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "PYTHONPATH": PACKAGE_PATH,
        **env,
    }
    if os.getuid() == 0:
        options |= {"user": _NOBODY_UID, "group": _NOBODY_UID, "extra_groups": []}
        _change_owner(folder)
    return options


def _interpreter(options: dict[str, Any]) -> str:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(name, path=_PATH)):
        try:
            if python is not None:
                subprocess.run([python, "-c", "import toolyard, orjson"], check=True, **options)
                return python
        except (OSError, subprocess.CalledProcessError):
            continue
    pytest.skip(f"an ordinary user may not run {name} with this checkout")


def _change_owner(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, _NOBODY_UID, _NOBODY_UID, follow_symlinks=False)
    for parent in folder.parents:
        if not (mode := parent.stat().st_mode) & 0o001:
            parent.chmod(mode | 0o011)
