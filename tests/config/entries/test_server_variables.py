from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolyard.config import Configuration, parse_config
from toolyard.errors import Problem
from toolyard.types.server import HttpSpec, OAuthSpec, StdioSpec

Problems = Callable[..., list[Problem]]
Load = Callable[..., Configuration]
Write = Callable[[Path, object], Path]


def test_variables_expand_in_every_field_of_a_child_process() -> None:
    entry = {"command": "${A}/x", "args": ["${A}", "b"], "env": {"K": "${A}"}, "cwd": "${A}"}
    server = parse_config({"mcpServers": {"s": entry}}, env={"A": "v"}).servers["s"]
    assert server.transport == StdioSpec("v/x", ("v", "b"), {"K": "v"}, "v")


def test_variables_expand_in_address_and_headers() -> None:
    entry = {"url": "${BASE}/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}}
    server = parse_config({"mcpServers": {"s": entry}}, env={"BASE": "https://h", "TOKEN": "t"}).servers["s"]
    assert server.transport == HttpSpec("https://h/mcp", {"Authorization": "Bearer t"})


def test_variables_are_expanded_in_sign_in_settings() -> None:
    entry = {"url": "http://a/", "oauth": {"clientId": "${ID}", "clientSecret": "${SECRET}"}}
    server = parse_config({"mcpServers": {"s": entry}}, env={"ID": "i", "SECRET": "s"}).servers["s"]
    assert server.oauth == OAuthSpec("i", "s")


def test_variables_expand_nowhere_else() -> None:
    entry = {"command": "x", "label": "${A}", "allowTools": ["${A}"]}
    server = parse_config({"mcpServers": {"s": entry}}, env={"A": "v"}).servers["s"]
    assert (server.label, server.allow_tools) == ("${A}", ("${A}",))


def test_a_missing_variable_disables_that_one_server_and_names_the_field() -> None:
    configuration = parse_config(
        {
            "mcpServers": {
                "broken": {"url": "http://a/", "headers": {"Authorization": "Bearer ${NOBODY}"}},
                "fine": {"command": "x"},
            },
            "servers": {
                "strict": {"trust": "trusted", "transport": {"type": "http", "url": "${NOBODY}/mcp"}},
            },
        }
    )
    broken, strict = configuration.servers["broken"], configuration.servers["strict"]
    assert configuration.servers["fine"].enabled
    assert (broken.enabled, strict.enabled) == (False, False)
    assert broken.disabled_reason == "headers.Authorization needs the variable NOBODY, which is not set"
    assert strict.disabled_reason == "transport.url needs the variable NOBODY, which is not set"
    assert strict.transport == HttpSpec("${NOBODY}/mcp")


def test_every_missing_variable_is_named() -> None:
    entry = {"command": "${ONE}", "args": ["${TWO}"]}
    reason = parse_config({"mcpServers": {"s": entry}}).servers["s"].disabled_reason
    assert "command needs the variable ONE" in (reason or "")
    assert "args[0] needs the variable TWO" in (reason or "")


def test_an_input_of_another_client_disables_the_server_too() -> None:
    entry = {"url": "http://a/", "headers": {"X-Key": "${input:key}"}}
    server = parse_config({"mcpServers": {"s": entry}}).servers["s"]
    assert not server.enabled
    assert "${input:key}" in (server.disabled_reason or "")


def test_a_disabled_server_needs_no_variables() -> None:
    server = parse_config({"mcpServers": {"s": {"url": "${NOBODY}", "enabled": False}}}).servers["s"]
    assert (server.enabled, server.disabled_reason) == (False, None)


def test_but_an_address_without_variables_is_checked_even_then() -> None:
    configuration = parse_config({"mcpServers": {"s": {"url": "nonsense", "enabled": False}}})
    assert [hint.path for hint in configuration.hints] == ["mcpServers.s.url"]
    assert configuration.servers["s"].problems == ()


def test_the_address_is_checked_after_the_variables_are_filled_in(problems: Problems) -> None:
    source = {"mcpServers": {"s": {"url": "${BASE}/mcp?key=${KEY}"}}}
    assert parse_config(source, env={"BASE": "https://h", "KEY": "k"}).servers["s"].enabled
    (problem,) = problems(source, env={"BASE": "ftp://hidden", "KEY": "k"})
    assert "does not begin with http:// or https://" in problem.message
    assert "${BASE}/mcp" in problem.message
    assert problem.hint == "its value comes from the variable BASE, KEY"
    assert "hidden" not in str(problem)


def test_a_line_break_in_a_variable_is_found_and_the_variable_named(problems: Problems) -> None:
    source = {"mcpServers": {"s": {"url": "http://a/", "headers": {"X-Key": "${TOKEN}"}}}}
    (problem,) = problems(source, env={"TOKEN": "sk-secret\n"})
    assert "line break" in problem.message
    assert "TOKEN" in (problem.hint or "")
    assert "sk-secret" not in str(problem)


def test_a_command_that_expands_to_nothing_is_an_error(problems: Problems) -> None:
    (problem,) = problems({"mcpServers": {"s": {"command": "${CMD:-}"}}})
    assert (problem.path, problem.message) == ("mcpServers.s.command", "is empty")


def test_an_escaped_reference_stays() -> None:
    server = parse_config({"mcpServers": {"s": {"command": "x", "args": ["$${HOME}"]}}}).servers["s"]
    assert server.transport == StdioSpec("x", ("${HOME}",))


def test_load_config_looks_variables_up_in_the_given_environment(
    load: Load, data_dir: Path, write: Write
) -> None:
    write(data_dir / "mcp.json", {"mcpServers": {"s": {"command": "${TOOL}"}}})
    assert load(env={"TOOL": "uvx"}).servers["s"].transport.command == "uvx"
    assert load(env={}).servers["s"].enabled is False


def test_load_config_reads_the_real_environment_by_default(
    monkeypatch: Any, data_dir: Path, project: Path, write: Write
) -> None:
    from toolyard.config import load_config

    write(data_dir / "mcp.json", {"mcpServers": {"s": {"command": "${TOOLYARD_TEST_TOOL}"}}})
    monkeypatch.setenv("TOOLYARD_TEST_TOOL", "uvx")
    monkeypatch.setenv("TOOLYARD_DATA_DIR", str(data_dir))
    monkeypatch.delenv("TOOLYARD_CONFIG_JSON", raising=False)
    monkeypatch.delenv("TOOLYARD_CONFIG_PATH", raising=False)
    monkeypatch.delenv("MCP_CONFIG_PATH", raising=False)
    assert load_config(cwd=project).servers["s"].transport.command == "uvx"
