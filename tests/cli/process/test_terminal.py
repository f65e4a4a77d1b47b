"""On a terminal: tables, colours, progress, questions. In a pipe: none of them."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.processes import is_running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli


def test_servers_are_a_table_in_colour(cli: Cli, demo: dict[str, Any], terminal: Any) -> None:
    cli.write({"mcpServers": {"demo": demo, "gone": {"command": "no-such-command-anywhere"}}})
    terminal_session = terminal("servers")
    assert terminal_session.end() == 0
    lines = [line.rstrip() for line in terminal_session.plain.splitlines()]
    assert "server  state   tools  ~tokens  protocol    about" in lines
    assert any(line.startswith("demo    ready       3") for line in lines)
    assert "\x1b[32mready" in terminal_session.seen
    assert "\x1b[31mfailed" in terminal_session.seen
    assert "\x1b[36mhint:\x1b[0m gone: install it" in terminal_session.seen


def test_a_list_without_servers_has_no_heading(terminal: Any) -> None:
    terminal_session = terminal("servers")
    assert terminal_session.end() == 0
    assert terminal_session.plain.startswith("note: no servers are configured")


def test_no_color_is_respected(cli: Cli, demo: dict[str, Any], terminal: Any) -> None:
    cli.write({"mcpServers": {"demo": demo}})
    terminal_session = terminal("tools", NO_COLOR="1")
    assert terminal_session.end() == 0
    assert "demo_weekday  Return the day of the week of a date." in terminal_session.plain
    assert "2 tools of 1 server" in terminal_session.plain
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", terminal_session.seen)


def test_errors_are_red_on_a_terminal_and_plain_in_a_pipe(cli: Cli, terminal: Any) -> None:
    terminal_session = terminal("tools", "--server", "x")
    assert terminal_session.end() == 2
    assert "\x1b[31merror:\x1b[0m unknown server 'x'" in terminal_session.seen
    assert cli("tools", "--server", "x").err.startswith("error: unknown server 'x'")


def test_progress_is_a_bar_that_vanishes(cli: Cli, demo: dict[str, Any], terminal: Any) -> None:
    cli.write({"mcpServers": {"demo": demo}})
    terminal_session = terminal("call", "demo_count", "to=5", "pause=0.1")
    assert terminal_session.end() == 0
    assert re.search(r"demo_count  [1-5] of 5 ━", terminal_session.plain)
    assert terminal_session.plain.rstrip().endswith("Counted to 5.")
    assert "\x1b[2K" in terminal_session.seen


def test_a_long_name_is_never_cut(cli: Cli, everything_server: str, terminal: Any) -> None:
    cli.write({"mcpServers": {"all": {"command": everything_server}}})
    terminal_session = terminal("tools", COLUMNS="60")
    assert terminal_session.end() == 0
    assert "all_trigger-long-running-operation  Demonstrates a long" in terminal_session.plain
    assert "…" in terminal_session.plain
    assert all(len(line) <= 60 for line in terminal_session.plain.splitlines() if line.startswith("all_"))


def test_a_text_cannot_move_the_cursor(cli_with_server: Cli, terminal: Any) -> None:
    terminal_session = terminal("call", "odd_screen")
    assert terminal_session.end() == 0
    assert "\x1b[2J" not in terminal_session.seen
    assert "\ufffd[2Jcleared" in terminal_session.seen


def test_approve_asks(cli: Cli, unusual_server: dict[str, Any], terminal: Any) -> None:
    cli.write({"mcpServers": {"odd": unusual_server}}, ".mcp.json")
    terminal_session = terminal("approve")
    terminal_session.wait_for("Approve this file? [y/N]")
    terminal_session.type("\n")
    assert terminal_session.end() == 1
    assert not (cli.data / "approvals.json").exists()
    second_session = terminal("approve")
    second_session.wait_for("Approve this file? [y/N]")
    second_session.type("y\n")
    assert second_session.end() == 0
    assert (cli.data / "approvals.json").exists()


def test_import_asks(cli: Cli, unusual_server: dict[str, Any], terminal: Any) -> None:
    source = cli.write({"mcpServers": {"odd": unusual_server}}, "theirs.json")
    terminal_session = terminal("import", source)
    terminal_session.wait_for(f"Write 1 server to {cli.data / 'mcp.json'}? [y/N]")
    terminal_session.type("yes\n")
    assert terminal_session.end() == 0
    assert (cli.data / "mcp.json").exists()


def test_a_write_tool_asks_and_a_no_refuses(cli_with_server: Cli, terminal: Any) -> None:
    question = 'odd_write can change data. Call it with {"a": "1"}? [y/N]'
    for answer, code, words in (("n\n", 4, "was not approved"), ("y\n", 0, '{"a": "1"}')):
        terminal_session = terminal("call", "odd_write", "a=1", TOOLYARD_WRITE_TOOLS="ask")
        terminal_session.wait_for(question)
        terminal_session.type(answer)
        assert terminal_session.end() == code
        assert words in terminal_session.plain.split(question)[1]


@pytest.mark.parametrize("words", [("call", "odd_never"), ("call", "odd_write")], ids=["calling", "asking"])
def test_ctrl_c_ends_it_and_its_children(
    cli_with_server: Cli, terminal: Any, starts_file: Path, words: tuple[str, ...]
) -> None:
    cli_with_server("tools")
    starts_file.unlink()
    terminal_session = terminal(*words, TOOLYARD_WRITE_TOOLS="ask")
    if words[1] == "odd_write":
        terminal_session.wait_for("[y/N]")
    else:
        _until(lambda: starts_file.exists() and starts_file.read_text().endswith("\n"))
    terminal_session.type("\x03")
    assert terminal_session.end() == 130
    assert "Traceback" not in terminal_session.plain
    if starts_file.exists():
        child = int(starts_file.read_text())
        _until(lambda: not is_running(child))


def test_an_interrupt_in_a_pipe_is_130_too(cli_with_server: Cli, starts_file: Path) -> None:
    process = cli_with_server.start("call", "odd_never", start_new_session=True)
    try:
        _until(lambda: starts_file.exists() and starts_file.read_text().endswith("\n"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err.strip()) == (130, "", "")
        child = int(starts_file.read_text())
        _until(lambda: not is_running(child))
    finally:
        process.kill()


def test_a_reader_that_goes_away_ends_it_quietly(cli_with_server: Cli) -> None:
    command = "'$0' -m toolyard call odd_long | head -c 5; exit ${PIPESTATUS[0]}".replace("'$0'", '"$0"')
    result = cli_with_server.run(["bash", "-c", command, sys.executable])
    assert (result.code, result.out, result.err) == (141, "xxxxx", "")
    closed_result = cli_with_server.run(["bash", "-c", '"$0" -m toolyard settings >&-', sys.executable])
    assert (closed_result.code, closed_result.err) == (0, "")


def test_an_encoding_without_the_characters_is_not_fatal(cli_with_server: Cli) -> None:
    result = cli_with_server("why", "odd_party__", PYTHONIOENCODING="ascii")
    assert result.code == 0
    assert "\\ud83c\\udf89" in result.out


def _until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {seconds:g} s"
        time.sleep(0.01)
