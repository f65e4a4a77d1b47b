"""Toolyard as the first process of a container."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest

IN_A_CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def _can_make_containers() -> bool:
    return shutil.which("unshare") is not None and subprocess.run([*IN_A_CONTAINER, "true"]).returncode == 0


pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0 or not _can_make_containers(),
    reason="needs a process namespace of its own",
)


def in_a_container(script: str) -> subprocess.Popen[str]:
    code = "import os, signal, subprocess, sys, time\n"
    code += "from toolyard.cli.process_setup import fork_from_init\n"
    code += "assert os.getpid() == 1\nfork_from_init()\n" + textwrap.dedent(script)
    words = [*IN_A_CONTAINER, sys.executable, "-c", code]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_exit_code_is_that_of_the_program() -> None:
    result = in_a_container("assert os.getpid() != 1\nsys.exit(7)")
    assert result.communicate(timeout=60)[1] == ""
    assert result.returncode == 7


def test_a_death_by_signal_is_told_as_shells_tell_it() -> None:
    result = in_a_container("os.kill(os.getpid(), signal.SIGKILL)")
    result.communicate(timeout=60)
    assert result.returncode == 128 + signal.SIGKILL


def test_orphans_are_reaped() -> None:
    result = in_a_container("""
        first = subprocess.Popen(["sh", "-c", "sleep 0.1 & echo $!"], stdout=subprocess.PIPE, text=True)
        orphan = int(first.communicate()[0])
        while os.path.exists(f"/proc/{orphan}"):
            time.sleep(0.01)
        print("reaped")
    """)
    assert result.communicate(timeout=60) == ("reaped\n", "")


def test_signals_reach_the_program() -> None:
    result = in_a_container("""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        os.kill(1, signal.SIGTERM)
        time.sleep(60)
    """)
    assert result.communicate(timeout=59)[1] == ""
    assert result.returncode == 5
