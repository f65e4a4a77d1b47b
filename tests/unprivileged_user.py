"""Runs programs as a user without privileges, whom the kernel treats as it treats people and services."""

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

__all__ = ["PACKAGE_PATH", "run_as_user"]

PACKAGE_PATH = f"{ROOT / 'src'}{os.pathsep}{Path(orjson.__file__).parent.parent}"
"""PYTHONPATH of this checkout and its dependencies, for interpreters that do not have them installed."""

_PATH = "/usr/local/bin:/usr/bin:/bin"
_UID = 65534
"""``nobody``, present on every Linux."""


def run_as_user(folder: Path, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python with ``arguments`` in ``folder``, which is given to the user, with ``env`` alone.

    Tests that run as root change to another user for it; others stay who they are. Skips the test if no
    interpreter of this version can be run by that user: root's own is often out of reach.
    """
    options: dict[str, Any] = {"cwd": folder, "capture_output": True, "text": True, "timeout": 100}
    options["env"] = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "PYTHONPATH": PACKAGE_PATH,
        **env,
    }
    if os.getuid() == 0:
        options |= {"user": _UID, "group": _UID, "extra_groups": []}
        _give(folder)
    python = _interpreter(options)
    return subprocess.run([python, *map(str, arguments)], **options)


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


def _give(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, _UID, _UID, follow_symlinks=False)
    for parent in folder.parents:
        if not (mode := parent.stat().st_mode) & 0o001:
            parent.chmod(mode | 0o011)
