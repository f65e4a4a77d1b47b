"""A test that hangs, whichever way, or that ends its process, is one failure; all other tests run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BEFORE = "def test_before(): pass"
AFTER = """
import pytest
@pytest.mark.parametrize("number", range(3))
def test_after(number): pass
"""
BAD = {
    "hangs in an asyncio loop": """
import asyncio
def test_bad(): asyncio.run(asyncio.sleep(1000))
""",
    "hangs in uvloop": """
import asyncio, uvloop
def test_bad(): uvloop.run(asyncio.sleep(1000))
""",
    "hangs in a state machine": """
import asyncio
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
class Machine(RuleBasedStateMachine):
    @rule()
    def step(self): pass
    def teardown(self): asyncio.run(asyncio.sleep(1000))
def test_bad(): run_state_machine_as_test(Machine)
""",
    "hangs in a coroutine": """
import asyncio
async def test_bad(): await asyncio.sleep(1000)
""",
    "hangs in a task that is never cancelled": """
import asyncio, contextlib
async def test_bad():
    async def stay():
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)
    await asyncio.create_task(stay())
""",
    "hangs in setup": """
import asyncio, pytest
@pytest.fixture
async def slow(): await asyncio.sleep(1000)
async def test_bad(slow): pass
""",
    "hangs in teardown, after a failure": """
import pytest, time
@pytest.fixture
def slow():
    yield
    time.sleep(1000)
def test_bad(slow): raise AssertionError
""",
    "hangs in a thread": """
import threading, time
def test_bad():
    thread = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
    thread.start()
    thread.join()
""",
    "hangs with every exception caught": """
import time
def test_bad():
    while True:
        try: time.sleep(1000)
        except BaseException: pass
""",
    "ends by exit": "import os\ndef test_bad(): os._exit(0)\n",
    "ends by a signal": "import os, signal\ndef test_bad(): os.kill(os.getpid(), signal.SIGKILL)\n",
    "ends by an error of pytest": """
def test_bad(record_property): record_property("cannot be sent", object())
""",
}


def test_only_tests_that_hang_or_end_their_process_fail(tmp_path: Path) -> None:
    for number, text in enumerate(BAD.values()):
        (tmp_path / f"test_{number}.py").write_text(f"{BEFORE}\n{text}\n{AFTER}", "utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugins = ("pytest_asyncio", "pytest_timeout", "xdist.plugin", "tests.worker_crashes")
    settings = (
        "asyncio_mode=auto",
        "timeout=2",
        "faulthandler_timeout=4",
        "faulthandler_exit_on_timeout=true",
    )
    words = [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
    words += [word for name in plugins for word in ("-p", name)]
    words += [word for setting in settings for word in ("-o", setting)]
    result = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=250)
    output = result.stdout + result.stderr
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, output
    matches = set(re.findall(r"^(?:FAILED|ERROR) (\S+)", result.stdout, re.MULTILINE))
    assert matches == {f"test_{number}.py::test_bad" for number in range(len(BAD))}, output
    assert f" {4 * len(BAD)} passed" in result.stdout, output
