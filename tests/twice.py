"""All tests, and what failed once more, alone: ``python -m tests.twice [OPTIONS OF PYTEST]``.

A machine that does many things at once makes a test fail now and then that is right, and so is what it tests.
Only what fails twice fails the run. What needed a second try is named at the very end, so that somebody sees
to it. There is no second try where the first run did not come to its end, nor for more failures than chance
has: then something is broken.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MOST = 10
"""Failures that may be chance."""
_FAILED = 1
"""What pytest ends with when all tests ran and some failed. Interruptions and its own errors are others."""


def run(options: Sequence[str]) -> int:
    """Run pytest with these options, and again for what failed; the exit code."""
    with tempfile.TemporaryDirectory(prefix="toolyard-tests-") as cache:
        code = _pytest("-o", f"cache_dir={cache}", *options)
        failed = _failed(Path(cache)) if code == _FAILED else []
    # A file that could not be read is noted too, without the name of a test.
    if not failed or len(failed) > MOST or not all("::" in each for each in failed):
        return code
    _say("These failed, and run once more, alone:", *failed)
    again = _pytest("-q", "-p", "no:xdist", "-p", "no:cacheprovider", *failed)
    if again:
        _say("Failed twice; see above.")
        return again
    _say("NOT STEADY: these failed, and passed alone. See to them:", *failed)
    return 0


def _pytest(*words: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *words], check=False).returncode


def _failed(cache: Path) -> list[str]:
    """The tests that failed."""
    noted = cache / "v/cache/lastfailed"
    return sorted(json.loads(noted.read_text("utf-8"))) if noted.exists() else []


def _say(head: str, *lines: str) -> None:
    print(f"\n==== {head}", *(f"====   {line}" for line in lines), "", sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
