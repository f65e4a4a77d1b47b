"""The log of the server: nobody can flood it, and no text from outside controls how it is shown."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import ROOT

from toolyard.types.visible_text import hidden_characters
from toolyard.web.http_server.logs import WarningThrottle

if TYPE_CHECKING:
    from tests.web.conftest import Starting

ATTACKER = {
    "command": sys.executable,
    "args": ["-I", "-S", str(ROOT / "tests/servers/terminal_attack_server.py")],
}
TEXT = "x\x1b[2J\rover\x9b\u202e\u200b\n2026-01-01 00:00:00,000 INFO    toolyard.web: forged"


def test_warnings_that_differ_in_their_arguments_only_are_limited_per_minute_and_errors_are_not() -> None:
    now, output = 0.0, io.StringIO()
    handler, log = logging.StreamHandler(output), logging.Logger("toolyard.test")
    handler.addFilter(WarningThrottle(max_per_interval=3, interval_seconds=60, clock=lambda: now))
    log.addHandler(handler)
    for number in range(10):
        log.warning("the request %s is refused", number)
        log.error("unexpected error %d", number)
    log.warning("something else is wrong")
    lines = output.getvalue().splitlines()
    assert [line for line in lines if "refused" in line] == [f"the request {n} is refused" for n in range(3)]
    assert sum("unexpected" in line for line in lines) == 10
    assert lines[-1] == "something else is wrong"
    now = 60.0
    log.warning("the request %s is refused", "100%")
    log.warning("the request %s is refused", "last")
    assert output.getvalue().splitlines()[-2:] == [
        "the request 100% is refused (7 more were not logged)",
        "the request last is refused",
    ]


@pytest.mark.parametrize("log_format", ["text", "json"])
async def test_no_text_of_a_server_or_file_controls_the_terminal_that_shows_the_log(
    serve: Starting, tmp_path: Path, log_format: str
) -> None:
    # YAML, unlike JSON, is read with half a character.
    (tmp_path / "AGENTS.md").write_text('---\nname: "x\\ud800"\ntools: [missing]\n---\n')
    settings = {"TOOLYARD_LOG_FORMAT": log_format, "TOOLYARD_LOG_LEVEL": "debug"}
    site = await serve(
        {"evil": ATTACKER, "missing": {"command": f"/nonexistent/{TEXT}"}}, data=tmp_path, **settings
    )
    words = [sys.executable, "-m", "toolyard", "--remote", site.url, "call", "evil_error"]
    client = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    await client.wait()
    site.signal()
    await site.ended()
    log = site.log.read_bytes().decode()
    assert "\\u202e" in log
    assert "forged" in log
    assert "Logging error" not in log
    assert [line for line in log.splitlines() if hidden_characters().search(line)] == []
    assert [line for line in log.split("\n") if line.startswith("2026-01-01")] == []
    if log_format == "json":
        messages = [json.loads(line)["message"] for line in log.splitlines()]
        assert any(TEXT in message for message in messages)
