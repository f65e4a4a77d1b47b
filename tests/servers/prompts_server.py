"""A legacy server with hostile prompts and resources, from the standard library alone: ``prompts_server.py``.

Titles and texts contain markup and hidden characters, one prompt is too long, one fails, one resource is not
text, one prompt ends the server, and a completion returns thousands of values.
"""

import base64
import json
import sys

MARKUP = "<img src=x onerror=alert(1)>\u202e{{ 7*7 }}"
PROMPTS = {
    "markup": {
        "title": MARKUP,
        "description": MARKUP,
        "arguments": [{"name": MARKUP, "description": MARKUP}],
    },
    "long": {"description": "Too long."},
    "fails": {"description": "Fails."},
    "exits": {"description": "Ends the server."},
    "empty": {"description": "Without messages."},
    "pictures": {"title": "Compare", "description": "With two pictures."},
    "broken picture": {"description": "With a picture that is not base64."},
    "no picture": {"description": "With a picture, and one that is not a picture."},
    "many pictures": {"description": "With twenty pictures."},
}
RESOURCES = [
    {"uri": "bad://markup", "name": MARKUP},
    {"uri": "bad://binary", "name": "binary"},
    {"uri": "bad://broken", "name": "broken"},
    {"uri": 7, "name": "number"},
    {"uri": "bad://picture", "name": "dot.gif"},
    {"uri": "bad://large", "name": "large"},
    {"uri": "bad://padding", "name": "padding"},
]
GIF = b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;"
BLOBS = {
    "bad://binary": base64.b64encode(b"\0\1\2").decode(),
    "bad://broken": "not base64!",
    "bad://large": "QUJD" * 16_500_000,
    "bad://padding": "QUJD" * 15_999 + "QQ==" + "QUJD",
    "bad://picture": base64.b64encode(GIF).decode(),
}


def image(data: str) -> dict:
    return {"type": "image", "mimeType": "image/gif", "data": data}


DOT = base64.b64encode(GIF).decode()
EMBEDDED_RESOURCE = {
    "type": "resource",
    "resource": {"uri": "bad://dot", "mimeType": "image/gif", "blob": DOT},
}
PICTURES = {
    "pictures": [{"type": "text", "text": "What differs?"}, image(DOT), EMBEDDED_RESOURCE],
    "broken picture": [image("not base64!")],
    "no picture": [image(DOT), image(base64.b64encode(b"\0\1\2").decode())],
    "many pictures": [image(DOT)] * 20,
}


def handle(method: str, params: dict) -> dict | None:
    if method == "initialize":
        offers = {"prompts": {}, "resources": {}, "completions": {}, "tools": {}}
        info = {"name": "hostile prompts", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": offers, "serverInfo": info}
    if method == "tools/list":
        return {"tools": []}
    if method == "prompts/list":
        return {"prompts": [{"name": name, **facts} for name, facts in PROMPTS.items()]}
    if method == "resources/list":
        return {"resources": RESOURCES}
    if method == "resources/templates/list":
        names = ("bad://{which}", "bad://{?query*}")
        return {"resourceTemplates": [{"uriTemplate": each, "name": each} for each in names]}
    if method == "prompts/get":
        if params["name"] == "exits":
            sys.exit(3)
        if params["name"] in PICTURES:
            blocks = PICTURES[params["name"]]
            return {"messages": [{"role": "user", "content": block} for block in blocks]}
        text = {"markup": f"{MARKUP} {json.dumps(params.get('arguments'))}", "long": "x" * 200_001}
        if params["name"] in text:
            content = {"type": "text", "text": text[params["name"]]}
            return {"messages": [{"role": "user", "content": content}]}
        return {"messages": []} if params["name"] == "empty" else None
    if method == "resources/read":
        uri = params["uri"]
        kind = {"blob": BLOBS[uri]} if uri in BLOBS else {"text": f"{MARKUP} {uri}"}
        return {"contents": [{"uri": uri, **kind}]}
    if method == "completion/complete":
        return {"completion": {"values": [MARKUP, 7, "x" * 1_000, *(f"value {n}" for n in range(5_000))]}}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if message.get("id") is None:
        continue
    result = handle(message["method"], message.get("params") or {})
    body = (
        {"result": result} if result is not None else {"error": {"code": -32000, "message": f"no {MARKUP}"}}
    )
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)
