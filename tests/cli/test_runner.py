"""Coroutines of commands, and the garbage collection of the program."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import asyncio, gc
from toolyard.cli.invocation import run_async

class Node: ...

async def collect():
    while not gc.isenabled():
        await asyncio.sleep(0)
    collected = asyncio.Event()
    gc.callbacks.append(lambda phase, info: collected.set())
    while not collected.is_set():
        node = Node()
        node.self = node
    return gc.get_freeze_count()

gc.disable()
print(run_async(collect(), gc_delay=0) > 1_000)
"""


def test_garbage_is_collected_once_the_program_is_loaded() -> None:
    words = [sys.executable, "-c", _SCRIPT]
    result = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "True\n"
