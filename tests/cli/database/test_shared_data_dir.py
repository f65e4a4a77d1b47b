"""The command line in the data directory of a server: both use each other's stored listings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from toolyard.agents.definitions.watch import LoadedAgents
from toolyard.config import load_config, load_settings
from toolyard.config.settings.table import Settings
from toolyard.core.services import Services
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.web.public_urls import PublicUrls

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

pytestmark = pytest.mark.timeout(400)
KEY = "a secret key that is long enough for this"


@pytest.fixture
def settings(database_url: str | None, cli_with_server: Cli) -> Settings:
    settings = {} if database_url is None else {"database_url": database_url, "secret_key": KEY}
    lines = [f'{name} = "{value}"' for name, value in settings.items()]
    (cli_with_server.data / "toolyard.toml").write_text("\n".join(lines))
    return load_settings(cli_with_server.data)


async def _open(data: Path, settings: Settings) -> Services:
    links = PublicUrls(settings).build_links("")
    agents = LoadedAgents(data / "AGENTS.md")
    return await Services.open(load_config(None, data_dir=data), settings, data, agents, links)


async def test_search_finds_tools_listed_by_the_server_without_starting_it(
    cli_with_server: Cli, starts_file: Path, settings: Settings
) -> None:
    services = await _open(cli_with_server.data, settings)
    try:
        await services.configured_servers.connect_shared()
        text = starts_file.read_text()
        result = cli_with_server("search", "--json", "repeats arguments")
        assert result.json["never_listed"] == []
        assert result.json["tools"]
        assert starts_file.read_text() == text
        words = {"COMP_WORDS": "toolyard call odd_t", "COMP_CWORD": "2"}
        assert "odd_typed" in cli_with_server(_TOOLYARD_COMPLETE="bash_complete", **words).out
    finally:
        await services.close()


async def test_the_server_knows_the_tools_listed_by_the_command_line(
    cli_with_server: Cli, starts_file: Path, settings: Settings
) -> None:
    assert cli_with_server("tools").code == 0
    text = starts_file.read_text()
    services = await _open(cli_with_server.data, settings)
    try:
        roster = await services.core.tool_directory.load_stored(LOCAL_PRINCIPAL)
        assert "odd" in roster.catalogues
        assert starts_file.read_text() == text
    finally:
        await services.close()


async def test_without_its_database_the_command_line_uses_its_file(
    cli_with_server: Cli, starts_file: Path
) -> None:
    nobody = "postgresql://nobody@127.0.0.1:1/nothing"
    (cli_with_server.data / "toolyard.toml").write_text(f'database_url = "{nobody}"\nsecret_key = "{KEY}"\n')
    assert cli_with_server("tools").code == 0
    assert cli_with_server("search", "--json", "repeats arguments").json["never_listed"] == []
