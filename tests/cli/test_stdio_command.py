"""``toolyard stdio`` with streams that are closed at the other end."""

from __future__ import annotations

import os
import select
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
@pytest.mark.parametrize("file", ["/dev/null", "a file"])
def test_a_file_in_place_of_a_pipe_is_refused_with_the_reason(cli: Cli, stream: str, file: str) -> None:
    path = cli.home / file
    if file == "a file":
        path.write_text("")
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with path.open("r+") as opened_file:
        result = subprocess.run(
            cli.words("stdio"),
            **{**streams, stream: opened_file},
            stderr=subprocess.PIPE,
            text=True,
            env=cli.environment(),
            timeout=60,
        )
    name = "standard input" if stream == "stdin" else "standard output"
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {name} is neither a pipe nor a terminal\nhint: ")


@pytest.mark.parametrize("request_count", [2_000, 60_000])
def test_a_client_that_hangs_up_and_never_reads_does_not_keep_us(cli: Cli, request_count: int) -> None:
    """The answers fill the pipe; in the second case there are more requests than we read ahead."""
    process = cli.start("stdio")
    os.set_blocking(process.stdin.fileno(), False)
    ping = b'{"jsonrpc":"2.0","id":1,"method":"no such thing"}\n'
    unsent_bytes, deadline = memoryview(ping * request_count), time.monotonic() + 30
    try:
        # Bytes that the pipe does not accept within some seconds are lost: the other side does not read.
        while unsent_bytes and time.monotonic() < deadline:
            if not select.select([], [process.stdin], [], 3)[1]:
                break
            unsent_bytes = unsent_bytes[os.write(process.stdin.fileno(), unsent_bytes) :]
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(30)
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
