"""A legacy server for what becomes of results, from the standard library alone so that it starts at once.

Tools: ``media`` gives back what it is given, as a picture, a sound or a file; ``long`` gives so many
characters; ``ask`` asks the person for a city, with a form, or to open a URL; ``write`` says that it writes.
"""

import json
import sys

SCHEMAS = {
    "media": {"mime": {"type": "string"}, "data": {"type": "string"}},
    "long": {"size": {"type": "integer"}},
    "ask": {"url": {"type": "string"}},
    "write": {"text": {"type": "string"}},
}
FORM = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def send(message: dict) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(words: str) -> dict:
    return {"content": [{"type": "text", "text": words}]}


def media(mime: str, data: str) -> dict:
    kind = mime.partition("/")[0].lower()
    if kind in ("image", "audio"):
        return {"content": [{"type": kind, "mimeType": mime, "data": data}]}
    resource = {"uri": "file:///made/up", "mimeType": mime, "blob": data}
    return {"content": [{"type": "resource", "resource": resource}]}


def ask(number: int, url: str | None) -> dict:
    params = {"message": "Where do you live?", "requestedSchema": FORM}
    if url:
        params = {"mode": "url", "message": "Where do you live?", "url": url, "elicitationId": str(number)}
    send({"id": 1000 + number, "method": "elicitation/create", "params": params})
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == 1000 + number:
            return text(json.dumps(message["result"], sort_keys=True))
    raise SystemExit


def call(number: int, name: str, arguments: dict) -> dict:
    match name:
        case "media":
            return media(arguments["mime"], arguments["data"])
        case "long":
            return text("0123456789" * (arguments["size"] // 10))
        case "ask":
            return ask(number, arguments.get("url"))
        case _:
            return text(f"wrote {arguments.get('text')}")


def tool(name: str) -> dict:
    schema = {"type": "object", "properties": SCHEMAS[name]}
    return {"name": name, "inputSchema": schema, "annotations": {"readOnlyHint": name != "write"}}


for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "results", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        send({"id": id, "result": result})
    elif method == "tools/list":
        send({"id": id, "result": {"tools": [tool(name) for name in SCHEMAS]}})
    elif method == "tools/call":
        params = message["params"]
        send({"id": id, "result": call(id, params["name"], params.get("arguments") or {})})
    elif id is not None:
        send({"id": id, "error": {"code": -32601, "message": "Method not found"}})
