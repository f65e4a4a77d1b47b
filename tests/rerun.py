"""Run all tests, and a few failed ones once more, alone: ``python -m tests.rerun [PYTEST OPTIONS]``.

Only ``.ci/run`` uses this. A test that fails once and passes alone is a defect of the test or of the product:
it does not fail the run, but is printed at the very end. Nothing runs again if more tests failed, or if the
first run did not complete.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["run"]

MAX_RERUN_TESTS = 2
_TEST_FAILURE_CODE = 1
"""Exit code of pytest if all tests ran and some failed. Interruptions and its own errors have other codes."""


def run(options: Sequence[str]) -> int:
    """Run pytest with these options, and again for a few failed tests. Return the exit code."""
    with tempfile.TemporaryDirectory(prefix="toolyard-tests-") as cache:
        code = _run_pytest("-o", f"cache_dir={cache}", *options)
        failed_tests = _read_failed_tests(Path(cache)) if code == _TEST_FAILURE_CODE else []
    # A file that cannot be imported is listed without the name of a test.
    if (
        not failed_tests
        or len(failed_tests) > MAX_RERUN_TESTS
        or not all("::" in each for each in failed_tests)
    ):
        return code
    _print_block("These tests failed, and run once more, alone:", *failed_tests)
    code = _run_pytest("-q", "-p", "no:xdist", "-p", "no:cacheprovider", *failed_tests)
    if code:
        _print_block("Failed twice; see above.")
        return code
    _print_block(
        "DEFECTS: these tests failed and passed alone. Correct the test or the product:", *failed_tests
    )
    return 0


def _run_pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def _read_failed_tests(cache: Path) -> list[str]:
    file = cache / "v/cache/lastfailed"
    return sorted(json.loads(file.read_text("utf-8"))) if file.exists() else []


def _print_block(heading: str, *lines: str) -> None:
    print(f"\n==== {heading}", *(f"====   {line}" for line in lines), "", sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
