"""Definitions as published servers send them, through the whole package."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from toolyard.catalog.cache import CatalogueCache
from toolyard.catalog.exposed_names import NameAssigner, ServerToolNames
from toolyard.catalog.schemas.provider_schema import ProviderApi, build_provider_tool
from toolyard.catalog.sqlite_storage import CATALOGUE_FILE_NAME, SqliteListingStorage
from toolyard.catalog.token_costs import estimate_definition_tokens
from toolyard.types.account import LOCAL_PRINCIPAL, Principal
from toolyard.types.server import Server, StdioSpec
from toolyard.types.tool import RawListing

ENVS = Path(__file__).parents[3] / ".envs"
COMMANDS = {
    "everything": [ENVS / "node/node_modules/.bin/mcp-server-everything", "stdio"],
    "filesystem": [ENVS / "node/node_modules/.bin/mcp-server-filesystem", tempfile.gettempdir()],
    "memory": [ENVS / "node/node_modules/.bin/mcp-server-memory"],
    "git": [ENVS / "legacy/bin/mcp-server-git"],
    "time": [ENVS / "legacy/bin/mcp-server-time"],
}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real-servers")]


async def list_tools_raw(name: str) -> RawListing:
    command, *arguments = map(str, COMMANDS[name])
    async with asyncio.timeout(60):
        async with Client(StdioServerParameters(command=command, args=arguments), mode="legacy") as client:
            result = await client.list_tools()
    return RawListing(
        tools=tuple(tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in result.tools)
    )


@pytest.fixture(scope="module")
def listings() -> dict[str, RawListing]:
    async def all_of_them() -> dict[str, RawListing]:
        return {name: await list_tools_raw(name) for name in COMMANDS}

    return asyncio.run(all_of_them())


@pytest.fixture
async def catalogues(listings: dict[str, RawListing], tmp_path: Path) -> Any:
    async def fetch(server_id: str, principal: Principal, chat: str | None = None) -> RawListing:
        return listings[server_id]

    storage = SqliteListingStorage(tmp_path / CATALOGUE_FILE_NAME)
    yield CatalogueCache(fetch, storage)
    await storage.close()


def server(name: str) -> Server:
    return Server(name, StdioSpec(str(COMMANDS[name][0])))


async def test_their_tools_are_all_sound(catalogues: CatalogueCache, listings: dict[str, RawListing]) -> None:
    for name in COMMANDS:
        catalogue = await catalogues.get(server(name), LOCAL_PRINCIPAL)
        assert len(catalogue.definitions) == len(listings[name].tools) > 0
        assert catalogue.quarantined == ()
        assert catalogue.contents.remarks == ()


async def test_their_tools_have_plain_names(catalogues: CatalogueCache) -> None:
    groups = []
    for name in COMMANDS:
        catalogue = await catalogues.get(server(name), LOCAL_PRINCIPAL)
        groups.append(
            ServerToolNames(name, name, tuple(definition.name for definition in catalogue.definitions))
        )
    names = NameAssigner().names(groups)
    assert names.renamed_tools == ()
    assert names.find("filesystem_read_text_file") == ("filesystem", "read_text_file")


@pytest.mark.parametrize("provider", ProviderApi)
async def test_their_tools_have_a_sound_view_for_every_provider(
    catalogues: CatalogueCache, provider: ProviderApi, rules: dict[str, Callable[[dict[str, Any]], None]]
) -> None:
    for name in COMMANDS:
        for definition in (await catalogues.get(server(name), LOCAL_PRINCIPAL)).definitions:
            provider_tool = build_provider_tool(definition, f"{name}_{definition.name}", provider)
            rules[provider](provider_tool.tool)
            assert provider_tool.notes == (), definition.id
            if provider is ProviderApi.OPENAI_STRICT:
                assert provider_tool.strict, definition.id
                rules["strict"](provider_tool.tool["function"]["parameters"])
            if provider is ProviderApi.ANTHROPIC:
                jsonschema_rs.validator_for(provider_tool.tool["input_schema"])


async def test_their_tools_have_a_cost(catalogues: CatalogueCache) -> None:
    for name in COMMANDS:
        for definition in (await catalogues.get(server(name), LOCAL_PRINCIPAL)).definitions:
            assert 15 < estimate_definition_tokens(definition) < 1500
