"""A server that hangs costs its timeout once, not with every command."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

PROGRAM = "import sys; open(sys.argv[1], 'a').write('x'); sys.stdin.read()"


@pytest.fixture
def hanging_entry(starts_file: Path) -> dict[str, Any]:
    """The entry of a server that records its start and never answers."""
    words = ["-I", "-S", "-c", PROGRAM, str(starts_file)]
    return {"command": sys.executable, "args": words, "timeouts": {"connect": 1}}


def test_listings_remember_a_timeout_for_a_minute(
    cli: Cli, demo: dict[str, Any], hanging_entry: dict[str, Any], starts_file: Path
) -> None:
    cli.write({"mcpServers": {"demo": demo, "hang": hanging_entry}})

    def count_starts() -> int:
        return len(starts_file.read_text())

    assert "error: server 'hang': did not answer within 1 s" in cli("tools").err
    assert count_starts() == 1
    again = cli("tools")
    assert "demo_weekday" in again.out
    # A failure that an earlier command reported is not repeated in full.
    assert "error" not in again.err
    assert "note: still failing: hang\nhint: `toolyard servers` shows the causes\n" in again.err
    result = cli("servers")
    # The same text is shown in pages, which have no option --fresh.
    assert re.search(r"tried \d+ s ago; lists try again in \d+ s, and calls at once", result.err)
    assert "hang\tfailed\t-\t-\t-\tdid not answer within 1 s" in result.lines
    assert count_starts() == 1
    # A call, --fresh and a changed entry try again.
    assert "did not answer" in cli("call", "hang_tool").err
    assert count_starts() == 2
    cli("servers", "--fresh")
    assert count_starts() == 3
    cli.write({"mcpServers": {"demo": demo, "hang": {**hanging_entry, "timeouts": {"connect": 0.9}}}})
    assert "did not answer within 0.9 s" in cli("tools").err
    assert count_starts() == 4


def test_a_misspelt_name_waits_only_for_servers_with_a_matching_prefix(
    cli: Cli, demo: dict[str, Any], hanging_entry: dict[str, Any], starts_file: Path
) -> None:
    cli.write({"mcpServers": {"demo": demo, "hang": hanging_entry}})
    result = cli("call", "demo_wekday")
    assert (result.code, "did you mean 'demo_weekday'" in result.err) == (4, True)
    assert not starts_file.exists()
    assert cli("call", "unknown_tool").code == 4
    assert not starts_file.exists()


def test_tools_that_are_there_are_printed_before_slower_servers(
    cli: Cli, demo: dict[str, Any], hanging_entry: dict[str, Any]
) -> None:
    cli.write({"mcpServers": {"demo": demo, "hang": {**hanging_entry, "timeouts": {"connect": 60}}}})
    process = cli.start("tools")
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("demo_count\t")
        assert process.poll() is None
    finally:
        process.terminate()
        process.communicate(timeout=60)
