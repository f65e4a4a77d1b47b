"""A legacy server from the standard library alone, whose tools answer with as much as they are asked for.

It has no resources. ``promised`` and ``rows`` have an output schema, ``loose`` has none.
"""

import base64
import json
import sys

OBJECT = {"type": "object"}
WORDS = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}
ROWS = {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]}
TOOLS = [
    *({"name": name, "inputSchema": OBJECT} for name in ("text", "pieces", "file", "picture", "loose")),
    {"name": "promised", "inputSchema": OBJECT, "outputSchema": WORDS},
    {"name": "rows", "inputSchema": OBJECT, "outputSchema": ROWS},
]


def words(size: int) -> str:
    return "".join(f"line {at}\n" for at in range(size // 6))[:size]


def data(size: int) -> str:
    return base64.b64encode((bytes(range(256)) * (size // 256 + 1))[:size]).decode()


def text_block(text: str) -> dict:
    return {"type": "text", "text": text}


def answer(name: str, size: int) -> dict:
    if name == "pieces":
        link = {"type": "resource_link", "uri": "large://x", "name": "x"}
        return {"content": [text_block("a" * size), link, text_block("b" * size)]}
    if name == "file":
        blob = {"uri": "large://f", "mimeType": "application/zip", "blob": data(size)}
        return {"content": [text_block("see"), {"type": "resource", "resource": blob}]}
    if name == "picture":
        return {"content": [{"type": "image", "mimeType": "image/png", "data": data(size)}]}
    if name == "promised":
        return {"content": [text_block(words(size))], "structuredContent": {"result": words(size)}}
    if name in ("rows", "loose"):
        return {"content": [text_block("some rows")], "structuredContent": {"rows": list(range(size))}}
    return {"content": [text_block(words(size))]}


def serve() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if id is None:
            continue
        reply: dict = {"error": {"code": -32601, "message": "Method not found"}}
        if method == "initialize":
            info = {"name": "large", "version": "1"}
            version = params["protocolVersion"]
            reply = {
                "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            }
        elif method == "tools/list":
            reply = {"result": {"tools": TOOLS}}
        elif method == "tools/call":
            reply = {"result": answer(params["name"], params["arguments"]["size"])}
        print(json.dumps({"jsonrpc": "2.0", "id": id, **reply}), flush=True)


if __name__ == "__main__":
    serve()
