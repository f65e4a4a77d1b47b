"""Toolyard as the client that the official conformance suite tests: ``driver.py URL``.

It does what a curious user would: connects, lists the tools, calls each of them with arguments made from
its schema, answers what it is asked. The suite's own variables say which revision to speak and carry the
context that a scenario gives.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from toolyard import Callbacks, RpcError, Toolyard, ToolyardError


def example(schema: Mapping[str, Any]) -> Any:
    """A value that fits a schema: its default, its first choice, or something plain of its type."""
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object" or "properties" in schema:
        return {name: example(inner) for name, inner in schema.get("properties", {}).items()}
    return {"integer": 5, "number": 3, "boolean": True, "array": [], "null": None}.get(kind or "", "test")


async def accept(server: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": example(params.get("requestedSchema", {}))}


async def sample(server: str, params: Mapping[str, Any]) -> dict[str, Any]:
    content = {"type": "text", "text": "a sampled answer"}
    return {"role": "assistant", "content": content, "model": "none", "stopReason": "endTurn"}


async def roots(server: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"roots": [{"uri": "file:///tmp", "name": "tmp"}]}


def calls(tools: list[Any], context: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What to call: what the context asks for, else every tool once."""
    if isinstance(wanted := context.get("toolCalls"), list):
        return [(f"s_{call['name']}", call.get("arguments", {})) for call in wanted]
    made = {tool.name: example({"type": "object", **tool.input_schema}) for tool in tools}
    for name, arguments in made.items():
        if "schema" in arguments:
            # A tool that wants a schema gets one that we were given.
            arguments["schema"] = next(tool.input_schema for tool in tools if tool.name != name)
    return list(made.items())


async def main(url: str) -> int:
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    protocol = {"": "auto", "2026-07-28": "modern", "draft": "modern"}.get(version, "legacy")
    server = {"url": url, "type": "http", "protocol": protocol}
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        async with Toolyard.open(
            {"mcpServers": {"s": server}},
            data_dir=folder,
            settings={"write_tools": "allow"},
            callbacks=Callbacks(elicitation=accept, sampling=sample, roots=roots),
        ) as yard:
            tools = await yard.tools()
            for status in yard.servers():
                if status.cause:
                    print(status.cause, file=sys.stderr)
                    failures += 1
            for name, arguments in calls(tools, context):
                try:
                    result = await yard.call(name, arguments)
                    print(name, result.text[:200], file=sys.stderr)
                except RpcError as error:
                    print(name, error, file=sys.stderr)
                except ToolyardError as error:
                    failures += 1
                    print(name, error, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
