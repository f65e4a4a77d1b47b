"""What fails once is run again, and seen; what is broken stays broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORKERS = ["-p", "xdist.plugin", "-n", "2", "--dist", "loadfile"]
GOOD = "def test_good(): pass\n"
BAD = "def test_bad(): raise AssertionError('bad')\n"
ONCE = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("word", ["a b", "[ü]::"])
def test_once(word, mark=Path(__file__).parent / "mark"):
    tried = Path(f"{mark}{len(word)}")
    if not tried.exists():
        tried.touch()
        raise AssertionError("the first time")
"""
MANY = """
import pytest

@pytest.mark.parametrize("number", range(11))
def test_many(number): raise AssertionError
"""


def run(folder: Path, *options: str, **files: str) -> tuple[int, str]:
    """The exit code and the words of a run of these files."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text, "utf-8")
    # Whoever runs this one may be a worker.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = [sys.executable, "-m", "tests.twice", "-q", *options]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=250)
    return done.returncode, done.stdout


def test_a_good_run_is_run_once(tmp_path: Path) -> None:
    code, said = run(tmp_path, good=GOOD)
    assert code == 0
    assert "====" not in said


def test_what_fails_once_passes_and_is_named(tmp_path: Path) -> None:
    code, said = run(tmp_path, *WORKERS, good=GOOD, once=ONCE)
    assert code == 0
    unsteady = said.partition("NOT STEADY")[2]
    assert "test_once.py::test_once[a b]" in unsteady
    assert r"test_once.py::test_once[[\xfc]::]" in unsteady
    assert "test_good" not in unsteady


def test_what_fails_twice_fails(tmp_path: Path) -> None:
    code, said = run(tmp_path, good=GOOD, once=ONCE, bad=BAD)
    assert code == 1
    assert said.count("AssertionError: bad") >= 2
    assert "NOT STEADY" not in said


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ([], {"many": MANY}),
        (WORKERS, {"once": ONCE, "broken": "import no_such_module\n"}),
        ([], {"once": ONCE, "broken": "import no_such_module\n"}),
        ([], {"once": ONCE, "ends": "import pytest\ndef test_end(): pytest.exit('enough', returncode=3)\n"}),
        (["--no-such-option"], {"good": GOOD}),
        (["-k", "nothing"], {"good": GOOD}),
    ],
    ids=["many", "unreadable for a worker", "unreadable", "interrupted", "no option", "no test"],
)
def test_what_is_broken_gets_no_second_try(tmp_path: Path, options: list[str], files: dict[str, str]) -> None:
    code, said = run(tmp_path, *options, **files)
    assert code != 0
    assert "====   test_" not in said
