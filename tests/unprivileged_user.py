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

__all__ = ["PACKAGE_PATH", "run_as_user"]

PACKAGE_PATH = f"{ROOT / 'src'}{os.pathsep}{Path(orjson.__file__).parent.parent}"
"""PYTHONPATH of this checkout and its dependencies, for interpreters that do not have them installed."""

_PATH = "/usr/local/bin:/usr/bin:/bin"
_NOBODY_UID = 65534
"""The user ``nobody``, present on every Linux."""


def run_as_user(folder: Path, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python with ``arguments`` in ``folder``, which is given to the user, and with only ``env``.

    As root, it changes to another user; otherwise it keeps the current one. Skips the test if that user
    cannot run an interpreter of this version, which is common for one installed by root.
    """
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


def _change_owner(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, _NOBODY_UID, _NOBODY_UID, follow_symlinks=False)
    for parent in folder.parents:
        if not (mode := parent.stat().st_mode) & 0o001:
            parent.chmod(mode | 0o011)
