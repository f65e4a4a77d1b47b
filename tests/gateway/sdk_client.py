"""A client made with the official SDK, of whichever major version is installed.

``sdk_client.py stdio WORD...`` starts that program, ``http URL`` goes there. It lists and calls, answers what
it is asked, and prints what it saw as one line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

try:
    from mcp.client.client import Client
except ImportError:  # SDK 1.x
    Client = None  # type: ignore[assignment,misc]

MODE = os.environ.get("SDK_MODE")
"""For SDK 2.x: which era to speak."""


async def elicited(context: Any, params: Any) -> Any:
    import mcp.types as types

    return types.ElicitResult(action="accept", content={"name": "Ann"})


def streams(kind: str, words: list[str]) -> Any:
    if kind == "stdio":
        return stdio_client(StdioServerParameters(command=words[0], args=words[1:], env=dict(os.environ)))
    if Client is not None:
        return words[0]
    from mcp.client.streamable_http import streamablehttp_client

    return streamablehttp_client(words[0])


async def look(client: Any) -> dict[str, Any]:
    tools = await client.list_tools()
    odd = await client.call_tool("one_odd", {})
    asked = await client.call_tool("one_ask", {})
    prompts = await client.list_prompts()
    resources = await client.list_resources()
    return {
        "tools": [tool.name for tool in tools.tools],
        "odd": odd.content[0].text,
        "asked": json.loads(asked.content[0].text),
        "prompts": [prompt.name for prompt in prompts.prompts],
        "resources": [str(resource.uri) for resource in resources.resources],
    }


async def main(kind: str, words: list[str]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        if Client is not None:
            options: dict[str, Any] = {} if MODE is None else {"mode": MODE}
            made = Client(streams(kind, words), elicitation_callback=elicited, **options)
            client = await stack.enter_async_context(made)
            version = client.protocol_version
        else:
            read, write, *_ = await stack.enter_async_context(streams(kind, words))
            client = await stack.enter_async_context(
                ClientSession(read, write, elicitation_callback=elicited)
            )
            version = (await client.initialize()).protocolVersion
        print(json.dumps({"version": version, **await look(client)}))


asyncio.run(main(sys.argv[1], sys.argv[2:]))
