"""Few failed tests run once more in CI, and are printed as defects; any failure fails ``make test``."""

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
ENDS_ONCE = """
import os
from pathlib import Path

def test_ends_once(mark=Path(__file__).parent / "ended"):
    if not mark.exists():
        mark.touch()
        os._exit(0)
"""
MANY = """
import pytest

@pytest.mark.parametrize("number", range(11))
def test_many(number): raise AssertionError
"""


def run(folder: Path, *options: str, **files: str) -> tuple[int, str]:
    """Return the exit code and the output of a run of these files."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text, "utf-8")
    # This test may run in a pytest worker.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = [sys.executable, "-m", "tests.rerun", "-q", *options]
    result = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=250)
    return result.returncode, result.stdout


def test_a_run_without_failures_is_not_repeated(tmp_path: Path) -> None:
    code, output = run(tmp_path, good=GOOD)
    assert code == 0
    assert "====" not in output


def test_tests_that_fail_once_are_printed_as_defects(tmp_path: Path) -> None:
    code, output = run(tmp_path, *WORKERS, good=GOOD, once=ONCE)
    assert code == 0
    defects = output.partition("DEFECTS")[2]
    assert "test_once.py::test_once[a b]" in defects
    assert r"test_once.py::test_once[[\xfc]::]" in defects
    assert "test_good" not in defects


def test_a_test_that_ends_its_process_once_is_printed_as_a_defect(tmp_path: Path) -> None:
    code, output = run(tmp_path, *WORKERS, "-p", "tests.worker_crashes", good=GOOD, ends_once=ENDS_ONCE)
    assert code == 0
    assert "test_ends_once.py::test_ends_once" in output.partition("DEFECTS")[2]


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    code, output = run(tmp_path, good=GOOD, bad=BAD)
    assert code == 1
    assert output.count("AssertionError: bad") >= 2
    assert "DEFECTS" not in output


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
def test_a_broken_run_is_not_repeated(tmp_path: Path, options: list[str], files: dict[str, str]) -> None:
    code, output = run(tmp_path, *options, **files)
    assert code != 0
    assert "====   test_" not in output


@pytest.mark.parametrize(
    ("command", "module"), [(["make"], "pytest"), (["make", "RUNNER=tests.rerun"], "tests.rerun")]
)
def test_only_the_runner_of_ci_repeats_tests(command: list[str], module: str) -> None:
    assert "RUNNER=tests.rerun" in (ROOT / ".ci/run").read_text()
    # This test may run below make, which passes its variables on.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    words = [*command, "-n", "unit"]
    result = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert f".venv/bin/python -m {module} -q" in result.stdout
