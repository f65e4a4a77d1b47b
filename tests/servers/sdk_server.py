"""A server made with the official SDK, of whichever major version is installed, over any transport."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

try:
    from mcp.server.mcpserver import Context, MCPServer

    MODERN = True
except ImportError:  # SDK 1.x
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer

    MODERN = False

from pydantic import BaseModel

parser = argparse.ArgumentParser()
parser.add_argument("transport", choices=["stdio", "sse", "streamable-http"])
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--json", action="store_true")
parser.add_argument("--stateless", action="store_true")
parser.add_argument("--journal", help="a file that gets a line for each executed call")
parser.add_argument("--tag", help="ignored: names the process in a listing")
arguments = parser.parse_args()

server = MCPServer("sdk-server", instructions="Try everything.")


class Name(BaseModel):
    name: str


@server.tool()
async def echo(text: str) -> str:
    return text


@server.tool()
async def record(key: str) -> str:
    """Not repeatable: leaves a mark each time."""
    if arguments.journal:
        fd = os.open(arguments.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, f"{key}\n".encode())
        os.close(fd)
    return key


@server.tool()
async def slow(steps: int, ctx: Context) -> str:
    for step in range(steps):
        await asyncio.sleep(0.2)
        await ctx.report_progress(step + 1, steps)
    return "done"


@server.tool()
async def wait(seconds: float, marker: str = "") -> str:
    if marker:
        Path(f"{marker}.begun").touch()
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        if marker:
            Path(marker).write_text("cancelled")
        raise
    return "waited"


@server.tool()
async def fail() -> str:
    raise ValueError("this tool always fails")


@server.tool()
async def die() -> str:
    os._exit(3)


@server.tool()
async def big(megabytes: int) -> str:
    return "x" * (megabytes * 1_000_000)


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool and says so."""

    async def grown() -> str:
        return "grown"

    server.add_tool(grown)
    if MODERN:
        await ctx.notify_tools_changed()
    else:
        await ctx.session.send_tool_list_changed()
    return "more"


if MODERN:
    from mcp_types import (
        CreateMessageRequest,
        CreateMessageRequestParams,
        ElicitRequest,
        ElicitRequestFormParams,
        InputRequiredResult,
        SamplingMessage,
        TextContent,
    )

    @server.tool()
    async def greet(ctx: Context) -> str | InputRequiredResult:
        if not ctx.input_responses:
            if ctx.protocol_version is not None and ctx.protocol_version < "2026-07-28":
                answer = await ctx.elicit("Who are you?", Name)
                return f"hello {answer.data.name}" if answer.action == "accept" else answer.action
            params = ElicitRequestFormParams(
                message="Who are you?", requested_schema=Name.model_json_schema()
            )
            return InputRequiredResult(
                input_requests={"who": ElicitRequest(params=params)}, request_state="round-one"
            )
        answer = ctx.input_responses["who"]
        return f"hello {answer.content['name']} after {ctx.request_state}"

    @server.tool()
    async def ponder(question: str, ctx: Context) -> str | InputRequiredResult:
        if ctx.input_responses:
            return ctx.input_responses["thought"].content.text
        sampling_messages = [SamplingMessage(role="user", content=TextContent(text=question))]
        if ctx.protocol_version is not None and ctx.protocol_version < "2026-07-28":
            return (await ctx.session.create_message(messages=sampling_messages, max_tokens=9)).content.text
        params = CreateMessageRequestParams(messages=sampling_messages, max_tokens=9)
        return InputRequiredResult(input_requests={"thought": CreateMessageRequest(params=params)})
else:
    from mcp.types import SamplingMessage, TextContent

    @server.tool()
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Name)
        return f"hello {answer.data.name}" if answer.action == "accept" else answer.action

    @server.tool()
    async def ponder(question: str, ctx: Context) -> str:
        sampling_messages = [SamplingMessage(role="user", content=TextContent(type="text", text=question))]
        return (await ctx.session.create_message(messages=sampling_messages, max_tokens=9)).content.text


@server.resource("test://note")
def note() -> str:
    return "a note"


@server.prompt()
def ask(topic: str) -> str:
    return f"Tell me about {topic}"


def main() -> None:
    if arguments.transport == "stdio":
        server.run()
        return
    if MODERN:
        options = {"port": arguments.port}
        if arguments.transport == "streamable-http":
            options |= {"json_response": arguments.json, "stateless_http": arguments.stateless}
        server.run(arguments.transport, **options)
        return
    server.settings.port = arguments.port
    server.settings.json_response = arguments.json
    server.settings.stateless_http = arguments.stateless
    server.run(arguments.transport)


if __name__ == "__main__":
    sys.exit(main())
