"""Standard streams that are closed, full, or have an encoding of their own."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_keeps_nothing_from_working(cli_with_server: Cli, closed: str) -> None:
    ran = cli_with_server.run(
        ["bash", "-c", f'"$0" -m toolyard call odd_typed text=hi {closed}', sys.executable]
    )
    assert (ran.code, ran.out, ran.err) == (0, "" if ">&-" in closed.split() else '{"text": "hi"}\n', "")


@pytest.mark.parametrize("words", ["call odd_typed -", "stdio"])
def test_what_needs_a_closed_input_says_so(cli_with_server: Cli, words: str) -> None:
    ran = cli_with_server.run(["bash", "-c", f'"$0" -m toolyard {words} <&-', sys.executable])
    assert (ran.code, ran.err.startswith("error: standard input")) == (2, True)


@pytest.mark.parametrize("words", ["tools", "--json tools", "--json check"])
def test_an_output_that_takes_nothing_more_is_told(cli_with_server: Cli, words: str) -> None:
    ran = cli_with_server.run(["bash", "-c", f'"$0" -m toolyard {words} > /dev/full', sys.executable])
    assert (ran.code, "error: No space left on device" in ran.err) == (1, True)


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1"])
def test_json_stays_json_in_every_encoding(cli: Cli, encoding: str) -> None:
    cli.write({"mcpServers": {"café 🎉": {"command": "x", "disabled": True}}})
    words = cli.words("servers", "--json")
    ran = cli.run(
        ["bash", "-c", f'"$@" | iconv -f {encoding} -t utf-8', "-", *words], PYTHONIOENCODING=encoding
    )
    assert [one["server"] for one in json.loads(ran.out)] == ["café 🎉"]
