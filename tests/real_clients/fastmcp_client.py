"""FastMCP's client.

``fastmcp_client.py ERA http URL TOKEN`` goes there, ``ERA stdio WORD...`` starts that program. It lists,
calls, reads, answers what it is asked, and prints what it saw as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport


async def handle_elicitation(message: str, answer: Any, params: Any, context: Any) -> Any:
    return {"name": "Ann"}


async def handle_sampling(messages: Any, params: Any, context: Any) -> str:
    return "because"


def transport(kind: str, *words: str) -> Any:
    if kind == "stdio":
        return StdioTransport(words[0], list(words[1:]), env=dict(os.environ), keep_alive=False)
    return StreamableHttpTransport(words[0], auth=words[1])


async def look(client: Any) -> dict[str, Any]:
    async def call(name: str, **arguments: Any) -> str:
        return (await client.call_tool(name, arguments)).content[0].text

    return {
        "tools": [tool.name for tool in await client.list_tools()],
        "resources": [str(resource.uri) for resource in await client.list_resources()],
        "prompts": [prompt.name for prompt in await client.list_prompts()],
        "sum": await call("every_get-sum", a=2, b=40),
        "echo": await call("sdk_echo", text="höhö"),
        "note": (await client.read_resource("toolyard://sdk/test://note"))[0].text,
        "prompt": (await client.get_prompt("sdk_ask", {"topic": "bees"})).messages[0].content.text,
        "greeted": [await call(f"{server}_greet") for server in ("sdk", "old")],
        "pondered": [await call(f"{server}_ponder", question="why") for server in ("sdk", "old")],
    }


async def main(era: str, *words: str) -> None:
    handlers: dict[str, Any] = {
        "elicitation_handler": handle_elicitation,
        "sampling_handler": handle_sampling,
    }
    async with Client(transport(*words), mode=era, **handlers) as client:
        print(json.dumps({"version": client.session.protocol_version, **await look(client)}))


asyncio.run(main(*sys.argv[1:]))
