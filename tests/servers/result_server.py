"""A server whose tools return what pages have to show well: tables, trees, diffs, code and pictures.

From the standard library alone, so that it starts at once.
"""

import base64
import json
import struct
import sys
import zlib


def send(message: dict) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def picture(width: int, height: int) -> str:
    """A PNG of one colour, in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\x30\x60\xb0" * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


NAMES = ("ada", "grace", "edsger", "barbara", "donald")
PEOPLE = [
    {
        "id": number,
        "name": f"{NAMES[number % 5]}-{number}",
        "size": (number * 37) % 1_000,
        "tags": ["a", number],
    }
    for number in range(250)
]
HOSTILE = [
    {
        "<img src=x onerror=hacked=1>": "<script>hacked=1</script>",
        "name\u202ereversed": "abc\u200bdef",
        "=cmd": "=1+1",
        "large": 12345678901234567890,
        "right": "\u05e9\u05dc\u05d5\u05dd",
    }
]
DIFF = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n import os\n-print(1)\n+print(2)\n"
NESTED_VALUE = {"a": {"b": {"c": {"d": {"e": "the end"}}}}, "long": "word " * 400, "many": list(range(500))}
TEXTS = {
    "rows_in_text": json.dumps(PEOPLE),
    "tree": json.dumps(NESTED_VALUE),
    "diff": DIFF,
    "read_file": "import os\n\n\ndef main() -> None:\n    print(os.name)\n",
    "hostile": json.dumps(HOSTILE, ensure_ascii=False),
    "plain": "Nothing special.",
}


def call(name: str) -> dict:
    if name == "rows":
        content = [{"type": "text", "text": "250 people were found."}]
        return {"content": content, "structuredContent": {"people": PEOPLE, "total": 250}}
    if name == "pictures":
        data = (picture(1200, 900), base64.b64encode(b"<html>not a picture").decode())
        return {"content": [{"type": "image", "mimeType": "image/png", "data": each} for each in data]}
    return {"content": [{"type": "text", "text": TEXTS[name]}]}


for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    result: dict | None = None
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "results", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        notes = {"readOnlyHint": True}
        result = {
            "tools": [
                {"name": name, "inputSchema": schema, "annotations": notes}
                for name in ("rows", "pictures", *TEXTS)
            ]
        }
    elif method == "tools/call":
        result = call(message["params"]["name"])
    if result is not None:
        send({"jsonrpc": "2.0", "id": id, "result": result})
    elif id is not None:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})
