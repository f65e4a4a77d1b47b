"""The client of the official Python SDK, of whichever major version is installed.

``python_sdk.py ERA http URL TOKEN`` goes there, ``ERA stdio WORD...`` starts that program. It lists, calls,
reads, answers what it is asked, and prints what it saw as one line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any

import mcp.types as types
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

try:
    from mcp.client.client import Client
except ImportError:  # SDK 1.x
    Client = None  # type: ignore[assignment,misc]


async def handle_elicitation(context: Any, params: Any) -> Any:
    return types.ElicitResult(action="accept", content={"name": "Ann"})


async def handle_sampling(context: Any, params: Any) -> Any:
    text_content = types.TextContent(type="text", text="because")
    return types.CreateMessageResult(role="assistant", content=text_content, model="none")


ANSWERS: dict[str, Any] = {"elicitation_callback": handle_elicitation, "sampling_callback": handle_sampling}


async def streams(stack: contextlib.AsyncExitStack, kind: str, words: list[str]) -> Any:
    if kind == "stdio":
        return stdio_client(StdioServerParameters(command=words[0], args=words[1:], env=dict(os.environ)))
    url, token = words
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    return streamable_http_client(url, http_client=await stack.enter_async_context(http))


async def check_client(client: Any) -> dict[str, Any]:
    async def call(name: str, **arguments: Any) -> str:
        return (await client.call_tool(name, arguments)).content[0].text

    note = await client.read_resource("toolyard://sdk/test://note")
    prompt = await client.get_prompt("sdk_ask", {"topic": "bees"})
    return {
        "tools": [tool.name for tool in (await client.list_tools()).tools],
        "resources": [str(resource.uri) for resource in (await client.list_resources()).resources],
        "prompts": [prompt.name for prompt in (await client.list_prompts()).prompts],
        "sum": await call("every_get-sum", a=2, b=40),
        "echo": await call("sdk_echo", text="höhö"),
        "note": note.contents[0].text,
        "prompt": prompt.messages[0].content.text,
        "greeted": [await call(f"{server}_greet") for server in ("sdk", "old")],
        "pondered": [await call(f"{server}_ponder", question="why") for server in ("sdk", "old")],
    }


async def main(era: str, kind: str, *words: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        way = await streams(stack, kind, list(words))
        if Client is not None:
            client = await stack.enter_async_context(Client(way, mode=era, **ANSWERS))
            version = client.protocol_version
        else:
            read, write, *_ = await stack.enter_async_context(way)
            client = await stack.enter_async_context(ClientSession(read, write, **ANSWERS))
            version = (await client.initialize()).protocolVersion
        print(json.dumps({"version": version, **await check_client(client)}))


asyncio.run(main(*sys.argv[1:]))
