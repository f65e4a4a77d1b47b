"""A server with a list of tools that is longer than a pipe buffer."""

from __future__ import annotations

import json
import sys

TOOLS = [
    {"name": f"t{number}", "description": "x" * 10_000, "inputSchema": {"type": "object"}}
    for number in range(120)
]

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"error": {"code": -32601, "message": "Method not found"}}
    if message["method"] == "initialize":
        info = {"name": "long", "version": "1"}
        answer = {
            "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        }
    elif message["method"] == "tools/list":
        answer = {"result": {"tools": TOOLS}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
