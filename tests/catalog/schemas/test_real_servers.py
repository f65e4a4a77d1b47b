"""Definitions as published servers send them, through the whole room."""

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

from toolyard.catalog.cache import Catalogues
from toolyard.catalog.exposed_names import Group, Naming
from toolyard.catalog.schemas.provider_schema import Provider, view
from toolyard.catalog.sqlite_storage import FILE_NAME, SqliteStorage
from toolyard.catalog.token_estimate import estimate_definition
from toolyard.types.catalog import Listing
from toolyard.types.principal import LOCAL, Principal
from toolyard.types.server import Server, StdioSpec

ENVS = Path(__file__).parents[3] / ".envs"
COMMANDS = {
    "everything": [ENVS / "node/node_modules/.bin/mcp-server-everything", "stdio"],
    "filesystem": [ENVS / "node/node_modules/.bin/mcp-server-filesystem", tempfile.gettempdir()],
    "memory": [ENVS / "node/node_modules/.bin/mcp-server-memory"],
    "git": [ENVS / "legacy/bin/mcp-server-git"],
    "time": [ENVS / "legacy/bin/mcp-server-time"],
}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real-servers")]


async def listed(name: str) -> Listing:
    command, *arguments = map(str, COMMANDS[name])
    async with asyncio.timeout(60):
        async with Client(StdioServerParameters(command=command, args=arguments), mode="legacy") as client:
            result = await client.list_tools()
    return Listing(
        tools=tuple(tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in result.tools)
    )


@pytest.fixture(scope="module")
def listings() -> dict[str, Listing]:
    async def all_of_them() -> dict[str, Listing]:
        return {name: await listed(name) for name in COMMANDS}

    return asyncio.run(all_of_them())


@pytest.fixture
async def catalogues(listings: dict[str, Listing], tmp_path: Path) -> Any:
    async def fetch(server_id: str, principal: Principal, chat: str | None = None) -> Listing:
        return listings[server_id]

    storage = SqliteStorage(tmp_path / FILE_NAME)
    yield Catalogues(fetch, storage)
    await storage.close()


def server(name: str) -> Server:
    return Server(name, StdioSpec(str(COMMANDS[name][0])))


async def test_their_tools_are_all_sound(catalogues: Catalogues, listings: dict[str, Listing]) -> None:
    for name in COMMANDS:
        found = await catalogues.get(server(name), LOCAL)
        assert len(found.definitions) == len(listings[name].tools) > 0
        assert found.quarantined == ()
        assert found.remarks == ()


async def test_their_tools_have_plain_names(catalogues: Catalogues) -> None:
    groups = []
    for name in COMMANDS:
        found = await catalogues.get(server(name), LOCAL)
        groups.append(Group(name, name, tuple(definition.name for definition in found.definitions)))
    names = Naming().names(groups)
    assert names.renamed == ()
    assert names.find("filesystem_read_text_file") == ("filesystem", "read_text_file")


@pytest.mark.parametrize("provider", Provider)
async def test_their_tools_have_a_sound_view_for_every_provider(
    catalogues: Catalogues, provider: Provider, rules: dict[str, Callable[[dict[str, Any]], None]]
) -> None:
    for name in COMMANDS:
        for definition in (await catalogues.get(server(name), LOCAL)).definitions:
            found = view(definition, f"{name}_{definition.name}", provider)
            rules[provider](found.tool)
            assert found.notes == (), definition.id
            if provider is Provider.OPENAI_STRICT:
                assert found.strict, definition.id
                rules["strict"](found.tool["function"]["parameters"])
            if provider is Provider.ANTHROPIC:
                jsonschema_rs.validator_for(found.tool["input_schema"])


async def test_their_tools_have_a_cost(catalogues: Catalogues) -> None:
    for name in COMMANDS:
        for definition in (await catalogues.get(server(name), LOCAL)).definitions:
            assert 15 < estimate_definition(definition) < 1500
