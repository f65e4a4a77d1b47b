"""A legacy server with ordinary and odd tools. It records its start in the given file."""

import base64
import json
import os
import sys

READS = {"readOnlyHint": True}
TYPED_SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "whole": {"type": "integer"},
        "share": {"type": "number"},
        "flag": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "box": {"type": "object", "properties": {"wide": {"type": "integer"}}},
    },
}


def tool(name, schema=None, **more):
    return {"name": name, "inputSchema": {"type": "object"} if schema is None else schema, **more}


TOOLS = [
    tool("typed", TYPED_SCHEMA, description="Repeats its arguments.\nAnd more.", annotations=READS),
    tool("fail", annotations=READS, description="\x1b[31mAlways\x1b[0m fails"),
    tool("never", annotations=READS),
    tool("die"),
    tool("image", annotations=READS),
    tool("long", annotations=READS),
    tool("screen", annotations=READS),
    tool("write", annotations={"readOnlyHint": False}),
    tool("broken", "no schema at all"),
    tool("party 🎉"),
    tool("a.b"),
    tool("a b"),
]
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def call(name, arguments):
    if name == "die":
        os._exit(7)
    if name == "never":
        return None
    if name == "fail":
        return text("it went wrong", isError=True)
    if name == "image":
        return {"content": [{"type": "image", "mimeType": "image/png", "data": PIXEL}]}
    if name == "long":
        return text("x" * 200_000)
    if name == "screen":
        return text("\x1b[2Jcleared\tyour screen")
    return text(json.dumps(arguments))


if len(sys.argv) > 1:
    with open(sys.argv[1], "a") as journal:
        journal.write(f"{os.getpid()}\n")
print("hello from standard error", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if id is None:
        continue
    if method == "initialize":
        info = {"name": "odd", "version": "1"}
        offer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        send({"jsonrpc": "2.0", "id": id, "result": offer})
    elif method == "tools/list":
        send({"jsonrpc": "2.0", "id": id, "result": {"tools": TOOLS}})
    elif method == "tools/call":
        result = call(params["name"], params.get("arguments"))
        if params.get("arguments", {}).get("refuse"):
            error = {"code": -32602, "message": "not so", "data": {"field": "café"}}
            send({"jsonrpc": "2.0", "id": id, "error": error})
        elif result is not None:
            send({"jsonrpc": "2.0", "id": id, "result": result})
    else:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})
