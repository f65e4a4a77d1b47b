"""Names are completed from files and the stored catalogue, without starting servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


def complete(cli: Any, line: str, **env: str) -> list[str]:
    """Return the words that bash would offer at the end of the line."""
    words = line.split(" ")
    result = cli(_TOOLYARD_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1), **env)
    assert result.err == ""
    return [row.partition(",")[2] for row in result.lines if row]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(cli: Cli, shell: str) -> None:
    result = cli("completion", shell)
    assert (result.code, result.err) == (0, "")
    assert f"_TOOLYARD_COMPLETE={shell}_complete" in result.out


def test_commands_and_options(cli: Cli) -> None:
    assert complete(cli, "toolyard set") == ["settings"]
    assert complete(cli, "toolyard tools --fr") == ["--fresh"]


def test_tools_complete_once_they_were_listed(cli_with_server: Cli, starts_file: Path) -> None:
    assert complete(cli_with_server, "toolyard call odd_t") == []
    assert not starts_file.exists()
    cli_with_server("tools")
    assert complete(cli_with_server, "toolyard call odd_t") == ["odd_typed"]
    assert complete(cli_with_server, "toolyard why odd_im") == ["odd_image"]
    assert len(starts_file.read_text().splitlines()) == 1


def test_servers_bundles_and_agents(cli: Cli, unusual_server: dict[str, Any]) -> None:
    server = {"trust": "trusted", "transport": {"type": "stdio", **unusual_server}}
    cli.write({"servers": {"odd": server}, "bundles": {"some": {"serverId": "odd", "mode": "direct"}}})
    cli.agents("## Code Reader\n---\n---\nRead.\n")
    assert complete(cli, "toolyard tools --server ") == ["odd"]
    assert complete(cli, "toolyard tools --bundle ") == ["some"]
    assert complete(cli, "toolyard tools --agent co") == ["code-reader"]
    assert complete(cli, "toolyard doctor o") == ["odd"]


def test_agents_and_models_of_a_chat(cli: Cli) -> None:
    cli.agents("## Code Reader\n---\n---\nRead.\n")
    (cli.data / "toolyard.toml").write_text(
        '[models.fast]\nmodel = "openai:x"\n[models.slow]\nmodel = "openai:y"\n'
    )
    assert complete(cli, "toolyard chat --model f") == ["fast"]
    assert complete(cli, "toolyard chat --agent ") == ["code-reader"]
    (cli.data / "toolyard.toml").write_text("[")
    assert complete(cli, "toolyard chat --model ") == []


def test_the_options_before_count(cli: Cli, unusual_server: dict[str, Any]) -> None:
    cli.write({"mcpServers": {"elsewhere": unusual_server}}, "other.json")
    assert complete(cli, "toolyard --config other.json tools --server ") == ["elsewhere"]


def test_a_name_that_a_shell_would_run_is_never_offered(cli: Cli, unusual_server: dict[str, Any]) -> None:
    cli.write(
        {
            "mcpServers": {
                "$(touch x)": unusual_server,
                "`id`": unusual_server,
                "a;b": unusual_server,
                "fine": unusual_server,
            }
        },
        ".mcp.json",
    )
    assert complete(cli, "toolyard tools --server ") == ["fine"]


def test_a_broken_configuration_completes_silently_to_nothing(cli: Cli) -> None:
    cli.write("{")
    cli.agents("## A\n---\ntools: x\n---\n")
    for line in ("toolyard call ", "toolyard tools --server ", "toolyard tools --agent "):
        assert complete(cli, line) == []
