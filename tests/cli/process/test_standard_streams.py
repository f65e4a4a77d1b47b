"""Standard streams that are closed, full, or have an encoding of their own."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_keeps_nothing_from_working(cli_with_server: Cli, streams: str) -> None:
    result = cli_with_server.run(
        ["bash", "-c", f'"$0" -m toolyard call odd_typed text=hi {streams}', sys.executable]
    )
    assert (result.code, result.out, result.err) == (
        0,
        "" if ">&-" in streams.split() else '{"text": "hi"}\n',
        "",
    )


@pytest.mark.parametrize("words", ["call odd_typed -", "stdio"])
def test_commands_that_need_input_report_a_closed_input(cli_with_server: Cli, words: str) -> None:
    result = cli_with_server.run(["bash", "-c", f'"$0" -m toolyard {words} <&-', sys.executable])
    assert (result.code, result.err.startswith("error: standard input")) == (2, True)


@pytest.mark.parametrize("words", ["tools", "--json tools", "--json check"])
def test_an_output_that_takes_nothing_more_is_told(cli_with_server: Cli, words: str) -> None:
    result = cli_with_server.run(["bash", "-c", f'"$0" -m toolyard {words} > /dev/full', sys.executable])
    assert (result.code, "error: No space left on device" in result.err) == (1, True)


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1"])
def test_json_stays_json_in_every_encoding(cli: Cli, encoding: str) -> None:
    cli.write({"mcpServers": {"café 🎉": {"command": "x", "disabled": True}}})
    words = cli.words("servers", "--json")
    result = cli.run(
        ["bash", "-c", f'"$@" | iconv -f {encoding} -t utf-8', "-", *words], PYTHONIOENCODING=encoding
    )
    assert [one["server"] for one in json.loads(result.out)] == ["café 🎉"]
