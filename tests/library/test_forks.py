"""A program with a yard that forks: the copy ends nothing of the original's, and waits for nobody."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

COMMON = """
    import asyncio, os, sys
    from toolyard import Toolyard

    def forked(work, leave=sys.exit):
        child = os.fork()
        if not child:
            work()
            leave(0)
        assert os.waitpid(child, 0) == (child, 0), "the copy failed"
"""

SYNC = """
    def work():
        try:
            yard.call("one_process")
        except RuntimeError as error:
            print(error, flush=True)

    with Toolyard.open_sync({"mcpServers": {"one": CONFIG}}) as yard:
        before = yard.call("one_process").text
        forked(work)
        assert yard.call("one_process").text == before
        print("the same server answers")
"""

# A copy that left in the usual way would close the event loop's selector, which it shares with its parent.
ASYNC = """
    def close(yard):
        try:
            yard.close().send(None)
        except StopIteration:
            print("nothing to wait for", flush=True)

    async def main():
        async with Toolyard.open({"mcpServers": {"one": CONFIG}}) as yard:
            before = (await yard.call("one_process")).text
            forked(lambda: close(yard), os._exit)
            assert (await yard.call("one_process")).text == before
            print("the same server answers")

    asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("program", "expected_lines"),
    [
        (
            SYNC,
            [
                "this Toolyard was opened in another process: open one in this process",
                "the same server answers",
            ],
        ),
        (ASYNC, ["nothing to wait for", "the same server answers"]),
    ],
    ids=["sync", "async"],
)
def test_a_fork_ends_without_touching_the_servers_of_its_parent(
    program: str, expected_lines: list[str], recorder: Callable[..., Any]
) -> None:
    text = textwrap.dedent(COMMON) + textwrap.dedent(program).replace("CONFIG", repr(recorder().entry))
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=100)
    assert result.stdout.splitlines() == expected_lines, result.stderr
    assert "Traceback" not in result.stderr
