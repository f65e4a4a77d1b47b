"""What `make` says before it has made anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.conftest import ROOT


def test_a_python_that_is_too_old_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    """An environment of it would be found and used by the next try, with a better one."""
    for name in ("Makefile", "pyproject.toml", "requirements/run.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    make = ["make", "-C", str(tmp_path), "setup", "PYTHON=false"]
    done = subprocess.run(make, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert (
        "Toolyard needs Python 3.11 or newer, which false is not: make PYTHON=python3.11 setup" in done.stdout
    )
    assert not (tmp_path / ".venv").exists()
