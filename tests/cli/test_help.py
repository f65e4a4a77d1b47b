"""The help is fast, complete, and loads only the modules that it needs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from toolyard.cli.app import COMMAND_SUMMARIES, app

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


def _command(name: str) -> click.Command:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    return command


def test_the_help_lists_every_command_in_a_line(cli: Cli) -> None:
    result = cli("--help")
    assert (result.code, result.err) == (0, "")
    for name, line in COMMAND_SUMMARIES.items():
        assert any(shown_line.split(maxsplit=1) == [name, line] for shown_line in result.lines), name
    assert "Exit codes: 0 success" in result.out


def test_without_a_word_the_help_is_shown(cli: Cli) -> None:
    result = cli()
    assert result.code == 2
    assert "Usage: toolyard [OPTIONS] COMMAND" in result.err


def test_the_version(cli: Cli) -> None:
    assert cli("--version").out == "toolyard 0.1.0\n"


@pytest.mark.parametrize("name", COMMAND_SUMMARIES)
def test_each_command_takes_the_shared_options_and_has_the_listed_summary(name: str) -> None:
    command = _command(name)
    assert command.name == name
    assert command.short_help == COMMAND_SUMMARIES[name]
    assert command.help
    options = {option for param in command.params for option in param.opts}
    assert {"--config", "--data-dir", "--json", "--verbose", "-v"} <= options


@pytest.mark.parametrize("name", COMMAND_SUMMARIES)
def test_every_option_of_a_command_has_help(name: str) -> None:
    for param in _command(name).params:
        if isinstance(param, click.Option):
            assert param.help, f"{name} {param.name}"


def test_shared_options_count_before_and_after_the_command(cli_with_server: Cli) -> None:
    other = cli_with_server.home / "other.json"
    other.write_text('{"mcpServers": {}}')
    before, after = (
        cli_with_server("--config", other, "--json", "tools"),
        cli_with_server("tools", "--config", other, "--json"),
    )
    empty = {"tools": [], "listed_seconds_ago": {}, "failures": {}, "set_aside": [], "hidden": []}
    assert before.json == after.json == empty
    assert cli_with_server("--config", "absent", "tools", "--config", other).code == 0


def test_the_help_loads_neither_the_event_loop_nor_the_core(cli: Cli) -> None:
    script = "import sys; sys.argv[1:] = ['--help']; import toolyard.cli as cli\n"
    script += "try: cli.main()\nexcept SystemExit: print(*sys.modules, file=sys.stderr)"
    result = cli.run([sys.executable, "-c", script])
    loaded_modules = set(result.err.split())
    assert "toolyard.cli.app" in loaded_modules
    heavy = {
        "asyncio",
        "aiohttp",
        "uvloop",
        "rich",
        "orjson",
        "yaml",
        "logging",
        "toolyard.library",
        "toolyard.config",
    }
    assert not heavy & loaded_modules
    assert not [name for name in loaded_modules if name.startswith("toolyard.clients")]


def test_no_command_loads_rich_for_a_pipe_or_the_core_for_its_help() -> None:
    script = (
        "import sys, click\nfrom toolyard.cli.app import app\n"
        f"for name in {[*COMMAND_SUMMARIES]!r}:\n"
        "    assert app.get_command(click.Context(app), name)\n"
        "print(*sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    loaded_modules = set(result.stdout.split())
    assert not {"rich", "aiohttp", "asyncio", "toolyard.library"} & loaded_modules


@pytest.mark.parametrize(
    ("module", "later"),
    [
        (
            "toolyard.web.app",
            {"aiohttp", "alembic", "markdown_it", "prometheus_client", "psycopg", "pydantic_ai"},
        ),
        (
            "toolyard.cli.chat.chat_services",
            {"aiohttp", "alembic", "fastapi", "pydantic", "psycopg", "pydantic_ai", "rich"},
        ),
    ],
)
def test_long_commands_start_without_the_libraries_that_only_later_work_needs(
    module: str, later: set[str]
) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    loaded_modules = set(result.stdout.split())
    assert module in loaded_modules
    assert not later & loaded_modules


def _cpu(*words: str) -> float:
    """Return the smallest CPU time of some runs, in seconds, so that other load does not count."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, capture_output=True, timeout=60, check=True, env=os.environ | {"NO_COLOR": "1"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once() for _ in range(7))


def test_the_help_costs_at_most_twelve_times_an_empty_program() -> None:
    empty, help_seconds = _cpu(sys.executable, "-c", "pass"), _cpu(sys.executable, "-m", "toolyard", "--help")
    assert help_seconds <= 12 * empty, f"{help_seconds * 1000:.0f} ms beside {empty * 1000:.0f} ms"
