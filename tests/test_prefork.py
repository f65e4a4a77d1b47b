"""A forked command behaves like a new interpreter in everything that tests observe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import prefork

PRINT_STATE = """
import json, os, signal, sys
number = signal.getsignal(signal.SIGINT) is signal.default_int_handler
descriptors = sorted(os.listdir("/proc/self/fd"))[:-1]
print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), sys.stdin.read(), number, descriptors]))
print("ä", file=sys.stderr)
print(os.getsid(0) == os.getpid(), file=sys.stderr)
sys.exit(7)
"""
FAIL = "raise RuntimeError('broken')"
WAIT = "import time; print('ready', flush=True); time.sleep(60)"
ENV = {"PATH": os.environ["PATH"], "ONE": "1"}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "program.py"


def test_a_program_has_its_own_arguments_environment_folder_and_streams(script: Path) -> None:
    script.write_text(PRINT_STATE)
    words = [sys.executable, "-I", str(script), "a b", "ü"]
    options = {"cwd": script.parent, "env": ENV, "start_new_session": True}
    result = prefork.run(words, input="given", timeout=60, **options)
    assert prefork.process_ids()
    new = subprocess.run(words, input="given", capture_output=True, encoding="utf-8", **options)
    assert (result.returncode, result.stderr) == (new.returncode, new.stderr) == (7, "ä\nTrue\n")
    ours, document = json.loads(result.stdout), json.loads(new.stdout)
    document[1].pop("LC_CTYPE", None)  # Set by an interpreter that starts without a locale.
    assert ours == document


def test_an_uncaught_error_is_printed_and_is_1(script: Path) -> None:
    script.write_text(FAIL)
    result = prefork.run([sys.executable, "-I", str(script)], timeout=60, env=ENV)
    assert result.returncode == 1
    assert result.stderr.endswith("RuntimeError: broken\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_it_and_is_its_exit_code(script: Path, number: int) -> None:
    script.write_text(WAIT)
    with prefork.Popen([sys.executable, "-I", str(script)], stdout=subprocess.PIPE, env=ENV) as process:
        assert process.stdout.readline() == b"ready\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(number)
        assert process.wait(60) == -number
        assert process.poll() == -number


def test_variables_of_the_interpreter_get_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('started')")
    words = [sys.executable, "-m", "toolyard", "--version"]
    assert prefork.run(words, timeout=60, env={**ENV, "PYTHONPATH": str(tmp_path)}).stdout.startswith(
        "started\n"
    )
    assert prefork.run(words, timeout=60, env=ENV).stdout.startswith("toolyard ")


def test_descriptors_are_closed_with_the_process(script: Path) -> None:
    script.write_text("pass")
    words = [sys.executable, "-I", str(script)]
    assert prefork.run(words, timeout=60, env=ENV).returncode == 0
    before = len(os.listdir("/proc/self/fd"))
    assert prefork.run(words, timeout=60, env=ENV).returncode == 0
    assert len(os.listdir("/proc/self/fd")) == before
