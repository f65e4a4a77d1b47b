"""A server with one tool, which returns its first argument and its working directory."""

from __future__ import annotations

import json
import os
import sys

TOOL = {"name": "folder", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        info = {"name": "folder", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        result = {"tools": [TOOL]}
    elif message["method"] == "tools/call":
        text = f"{sys.argv[1] if len(sys.argv) > 1 else ''} {os.getcwd()}"
        result = {"content": [{"type": "text", "text": text}]}
    else:
        error = {"code": -32601, "message": "Method not found"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
