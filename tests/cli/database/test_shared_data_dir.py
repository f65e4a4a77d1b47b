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
def settings(database_url: str | None, yard: Cli) -> Settings:
    chosen = {} if database_url is None else {"database_url": database_url, "secret_key": KEY}
    lines = [f'{name} = "{value}"' for name, value in chosen.items()]
    (yard.data / "toolyard.toml").write_text("\n".join(lines))
    return load_settings(yard.data)


async def _open(data: Path, settings: Settings) -> Services:
    links = PublicUrls(settings).build_links("")
    agents = LoadedAgents(data / "AGENTS.md")
    return await Services.open(load_config(None, data_dir=data), settings, data, agents, links)


async def test_search_finds_what_the_server_listed_and_starts_nothing(
    yard: Cli, starts: Path, settings: Settings
) -> None:
    services = await _open(yard.data, settings)
    try:
        await services.configured_servers.connect_shared()
        begun = starts.read_text()
        found = yard("search", "--json", "repeats arguments")
        assert found.json["never_listed"] == []
        assert found.json["tools"]
        assert starts.read_text() == begun
        words = {"COMP_WORDS": "toolyard call odd_t", "COMP_CWORD": "2"}
        assert "odd_typed" in yard(_TOOLYARD_COMPLETE="bash_complete", **words).out
    finally:
        await services.close()


async def test_the_server_knows_what_the_command_line_listed(
    yard: Cli, starts: Path, settings: Settings
) -> None:
    assert yard("tools").code == 0
    begun = starts.read_text()
    services = await _open(yard.data, settings)
    try:
        roster = await services.core.tool_directory.load_stored(LOCAL_PRINCIPAL)
        assert "odd" in roster.catalogues
        assert starts.read_text() == begun
    finally:
        await services.close()


async def test_without_its_database_the_command_line_uses_its_file(yard: Cli, starts: Path) -> None:
    nobody = "postgresql://nobody@127.0.0.1:1/nothing"
    (yard.data / "toolyard.toml").write_text(f'database_url = "{nobody}"\nsecret_key = "{KEY}"\n')
    assert yard("tools").code == 0
    assert yard("search", "--json", "repeats arguments").json["never_listed"] == []
