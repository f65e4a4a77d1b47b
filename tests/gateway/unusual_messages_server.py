"""A legacy server from the standard library alone, whose lists and results have shapes that hardly any has.

``deep`` answers with something that nests as deeply as it is asked for, ``wait`` when ``done`` is called.
``regional`` has a parameter that clients mirror in a header.
"""

import json
import sys

NAMES = ("deep", "wait", "done", "echo")
TEMPLATE = "strange://" + "/".join(f"{{{at}}}" for at in range(12)) + "/end"
REGION = {"region": {"type": "string", "x-mcp-header": "Region"}}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]
TOOLS.append({"name": "regional", "inputSchema": {"type": "object", "properties": REGION}})
LISTS = {
    "tools/list": {"tools": TOOLS},
    "resources/list": {"resources": [{"uri": ["no text"]}, {"uri": "strange://one", "name": "one"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": TEMPLATE, "name": "many"}, {}]},
    "prompts/list": {"prompts": [{"name": ["no text"]}, {"name": {}}, {}, {"name": "plain"}]},
}
PLAIN = '{"content":[{"type":"text","text":"done"}]}'
waiting: list = []


def answer(id: object, result: str) -> None:
    sys.stdout.write(f'{{"jsonrpc":"2.0","id":{json.dumps(id)},"result":{result}}}\n')
    sys.stdout.flush()


def call(id: object, name: str, arguments: dict) -> None:
    if name == "wait":
        waiting.append(id)
        return
    if name == "deep":
        depth = arguments["depth"]
        nested_json = "[" * depth + "]" * depth
        answer(
            id, f'{{"content":[{{"type":"text","text":"deep"}}],"structuredContent":{{"x":{nested_json}}}}}'
        )
        return
    while name == "done" and waiting:
        answer(waiting.pop(), PLAIN)
    answer(id, PLAIN)


for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        offers = {"tools": {}, "resources": {}, "prompts": {}}
        info = {"name": "strange", "version": "1"}
        version = params["protocolVersion"]
        answer(id, json.dumps({"protocolVersion": version, "capabilities": offers, "serverInfo": info}))
    elif method in LISTS:
        answer(id, json.dumps(LISTS[method]))
    elif method == "tools/call":
        call(id, params["name"], params.get("arguments") or {})
    elif method == "resources/read":
        answer(id, json.dumps({"contents": [{"uri": params["uri"], "text": "read"}]}))
    elif id is not None:
        error = {"code": -32601, "message": "Method not found"}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}) + "\n")
        sys.stdout.flush()
