"""A client made with the official SDK, of whichever major version is installed, that gets long results.

``sdk_client.py stdio WORD...`` starts that program, ``http URL`` goes there. It calls, reads what the results
link to, and prints what it saw as one line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
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


async def open_client(stack: contextlib.AsyncExitStack, kind: str, words: list[str]) -> Any:
    if kind == "stdio":
        child = StdioServerParameters(command=words[0], args=words[1:], env=dict(os.environ))
        streams: Any = stdio_client(child)
    elif Client is not None:
        streams = words[0]
    else:
        from mcp.client.streamable_http import streamablehttp_client

        streams = streamablehttp_client(words[0])
    if Client is not None:
        return await stack.enter_async_context(Client(streams, mode=os.environ["SDK_MODE"]))
    read, write, *_ = await stack.enter_async_context(streams)
    client = await stack.enter_async_context(ClientSession(read, write))
    await client.initialize()
    return client


async def check_results(client: Any, tool: str) -> dict[str, Any]:
    result = await client.call_tool(f"large_{tool}", {"size": 300_000})
    (link,) = [block for block in result.content if block.type == "resource_link"]
    (whole,) = (await client.read_resource(link.uri)).contents
    kind = "text" if hasattr(whole, "text") else "blob"
    return {
        "kind": kind,
        "size": link.size,
        "sha256": hashlib.sha256(getattr(whole, kind).encode()).hexdigest(),
        "sent": len(result.model_dump_json()),
    }


async def main(kind: str, words: list[str]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        client = await open_client(stack, kind, words)
        await client.list_tools()
        print(json.dumps({tool: await check_results(client, tool) for tool in ("text", "promised", "file")}))


asyncio.run(main(sys.argv[1], sys.argv[2:]))
