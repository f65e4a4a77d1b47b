"""Messages of `make` before anything is built."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

from tests.conftest import ROOT


def test_a_python_that_is_too_old_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    """An environment with that Python would be reused by the next run, with a newer Python."""
    for name in ("Makefile", "pyproject.toml", "requirements/run.txt", "requirements/build.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    make = ["make", "-C", str(tmp_path), "setup", "PYTHON=false"]
    result = subprocess.run(make, capture_output=True, text=True, timeout=60)
    assert result.returncode != 0
    assert (
        "Toolyard needs Python 3.11 or newer, which false is not: make PYTHON=python3.11 setup"
        in result.stdout
    )
    assert not (tmp_path / ".venv").exists()


def test_everything_that_is_installed_is_pinned_by_hash(tmp_path: Path) -> None:
    """Except our own package, built with a backend that is already installed."""
    for name in ("Makefile", "pyproject.toml", "requirements"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    make = ["make", "-n", "-C", str(tmp_path), "setup", ".venv/.dev", ".envs/legacy/.done"]
    result = subprocess.run(make, capture_output=True, text=True, timeout=60, check=True)
    installs = re.findall(r"pip install (.+?)(?= \|\||$)", result.stdout, re.MULTILINE)
    assert len(installs) >= 5
    for words in installs:
        assert "--require-hashes -r requirements/" in words or words.endswith(
            "--no-deps --no-build-isolation -e ."
        )


def test_the_locked_build_backend_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    build_requirements = (ROOT / "requirements/build.in").read_text().splitlines()
    assert set(project["build-system"]["requires"]) <= set(build_requirements)
    text = (ROOT / "requirements/build.txt").read_text()
    assert re.search(r"^hatchling==\S+ \\\n +--hash=sha256:", text, re.MULTILINE)
    assert re.search(r"^editables==", text, re.MULTILINE)
    recipe = subprocess.run(
        ["make", "-n", "lock"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "-o requirements/build.txt" in recipe
