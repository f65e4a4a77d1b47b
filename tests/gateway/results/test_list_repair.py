"""One server that does not keep to the protocol costs no client the lists of all others, nor a result."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.conftest import NODE
from tests.gateway.conftest import HERE, LONG_LIST_DEADLINE, LegacyClient, ModernClient, passthrough_entry
from tests.gateway.nonconforming_server import LINK, PICTURE, SOUND, TOOLS
from tests.web.conftest import InProcessApp

from toolyard.gateway.surface.list_repair import repair_list, repair_tool
from toolyard.protocol.eras import LEGACY, MODERN

SLOPPY = {"command": sys.executable, "args": ["-I", "-S", str(HERE / "nonconforming_server.py")]}
READER = Path(__file__).parents[2] / "real_clients/reads_all.cjs"


@pytest.fixture
async def services(open_site: Any) -> InProcessApp:
    return await open_site(
        {"one": passthrough_entry("one", allowTools=["odd"]), "sloppy": SLOPPY},
        list_deadline=LONG_LIST_DEADLINE,
    )


@pytest.mark.parametrize(("path", "prefix"), [("/mcp", "sloppy_"), ("/mcp/servers/sloppy", "")])
async def test_a_client_that_checks_everything_reads_everything(
    services: InProcessApp, path: str, prefix: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        "node", str(READER), services.url + path, env={**os.environ, "NODE_PATH": str(NODE.parent)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    stdout, errors = await asyncio.wait_for(process.communicate(), 90)
    assert process.returncode == 0, errors.decode()
    document = json.loads(stdout)
    assert {f"{prefix}{name}" for name in TOOLS} <= set(document["tools"])
    assert document["called"] == document["tools"]
    assert {"sloppy://one", "two"} <= set(document["resources"])
    assert "sloppy://{x}" in document["templates"]
    assert {f"{prefix}ask", f"{prefix}plain"} <= set(document["prompts"])
    assert document["server"] == "toolyard"


async def test_a_modern_client_gets_the_features_of_its_revision(
    services: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = ModernClient(http, f"{services.url}/mcp/servers/sloppy")
    tools = {each["name"]: each for each in (await client.ask("tools/list")).result["tools"]}
    assert tools["listed"]["outputSchema"] == {"type": "array"}
    assert tools["bare"]["inputSchema"] == {"type": "object", "anyOf": [{"type": "object"}]}
    assert (await client.call("listed")).result["structuredContent"] == ["a"]
    assert (await client.call("link")).result["content"] == [LINK]


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_a_legacy_client_gets_the_features_of_its_revision(
    services: InProcessApp, http: aiohttp.ClientSession, version: str
) -> None:
    client = LegacyClient(http, f"{services.url}/mcp/servers/sloppy", version=version)
    await client.begin()
    words = {"type": "text", "text": '["a"]'}
    assert (await client.call("listed")).result == {"content": [words]}
    assert (await client.call("pictured")).result == {"content": [PICTURE, words]}
    assert "structuredContent" not in (await client.call("silent")).result
    link_content = [LINK] if version >= "2025-06-18" else [{"type": "text", "text": json.dumps(LINK)}]
    assert (await client.call("link")).result["content"] == link_content
    prompt = (await client.ask("prompts/get", {"name": "ask"})).result
    assert [each["content"] for each in prompt["messages"]] == link_content
    (sound,) = (await client.call("sound")).result["content"]
    if version >= "2025-03-26":
        assert sound == SOUND
    else:
        assert (sound["type"], sound["resource"]["blob"]) == ("resource", "AAAA")
        assert sound["resource"]["mimeType"] == "audio/wav"


def test_well_formed_lists_are_returned_unchanged() -> None:
    fine = {"name": "fine", **TOOLS["fine"]}
    assert repair_tool(fine, MODERN) is fine
    assert repair_tool(fine, LEGACY) is fine
    prompts = [{"name": "ask", "arguments": [{"name": "a", "required": True}], "more": 1}]
    assert repair_list("prompts/list", prompts)[0] is prompts[0]


def test_malformed_items_are_omitted_or_repaired() -> None:
    repaired_tools = {name: repair_tool({"name": name, **rest}, LEGACY) for name, rest in TOOLS.items()}
    assert repaired_tools["schemaless"] == {"name": "schemaless", "inputSchema": {"type": "object"}}
    assert repaired_tools["nulls"] == {"name": "nulls", "inputSchema": {"type": "object"}}
    assert repaired_tools["kinds"] == {
        "name": "kinds",
        "inputSchema": {"type": "object"},
        "annotations": {"openWorldHint": True},
        "icons": [{"src": "data:,"}],
        "execution": {},
    }
    assert repaired_tools["booleans"]["inputSchema"]["properties"] == {"a": {}, "b": {"not": {}}, "c": {}}
    assert repaired_tools["listed"] == {"name": "listed", "inputSchema": {"type": "object"}}
    assert repair_list("resources/list", [{"uri": "a:b", "size": None, "icons": [3]}, {"uri": 3}]) == [
        {"uri": "a:b", "icons": [], "name": "a:b"}
    ]
