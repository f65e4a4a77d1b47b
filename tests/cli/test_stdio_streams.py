"""``toolyard stdio`` with streams that nobody is at the other end of."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
@pytest.mark.parametrize("file", ["/dev/null", "a file"])
def test_a_file_in_place_of_a_pipe_is_refused_with_the_reason(cli: Any, stream: str, file: str) -> None:
    path = cli.home / file
    if file == "a file":
        path.write_text("")
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with path.open("r+") as opened:
        ran = subprocess.run(
            cli.words("stdio"),
            **{**streams, stream: opened},
            stderr=subprocess.PIPE,
            text=True,
            env=cli.environment(),
            timeout=60,
        )
    name = "standard input" if stream == "stdin" else "standard output"
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"error: {name} is neither a pipe nor a terminal\nhint: ")
