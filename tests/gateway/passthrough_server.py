"""A legacy server from the standard library alone, for what the gateway must carry without altering it.

``passthrough_server.py NAME [MARKER]``: tools that answer with unusual JSON, ask their client, return
what they received, or wait until they are cancelled, which leaves the file MARKER.
"""

import json
import sys
from pathlib import Path

NAME = sys.argv[1]
MARKER = Path(sys.argv[2]) if len(sys.argv) > 2 else None

ODD_TOOL = (
    '{"zeta":1,"name":"odd","inputSchema":{"type":"object","properties":{"z":{"maximum":'
    '123456789012345678901234567890},"a":{"type":"string"}},"$defs":{"b":{},"a":{}}},"alpha":{"y":[1,null],"x":2}}'
)
ODD_RESULT = (
    '{"zeta":[18446744073709551616,1.5],"content":[{"type":"text","text":"odd","annotations":{"b":1,"a":2}}],'
    '"structuredContent":{"b":123456789012345678901234567890,"a":"\\u00e4"},"_meta":{"x/y":1}}'
)
ASKING_TOOLS = ("ask", "ask_exit", "ask_on", "ask_wait")
"""Tools that ask their client; then they answer, or do what their names say."""
told: dict = {}
asked: dict = {}


def send(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def answer(id: object, result: str) -> None:
    send(f'{{"jsonrpc":"2.0","id":{json.dumps(id)},"result":{result}}}')


def text(words: str) -> str:
    return json.dumps({"content": [{"type": "text", "text": words}]})


def call(id: object, params: dict) -> None:
    name = params["name"]
    if name == "odd":
        answer(id, ODD_RESULT)
    elif name == "told":
        answer(id, text(json.dumps(told, sort_keys=True)))
    elif name == "meta":
        answer(id, text(json.dumps(params.get("_meta", {}), sort_keys=True)))
    elif name in ASKING_TOOLS:
        asked[f"q-{id}"] = (id, name, (params.get("_meta") or {}).get("progressToken"))
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        question = {"message": "Who?", "requestedSchema": schema}
        send(
            json.dumps(
                {"jsonrpc": "2.0", "id": f"q-{id}", "method": "elicitation/create", "params": question}
            )
        )
    elif name == "completed":
        completion = {"method": "notifications/elicitation/complete", "params": {"elicitationId": "e1"}}
        send(json.dumps({"jsonrpc": "2.0", **completion}))
        answer(id, text("completed"))
    elif name == "exit":
        sys.exit(3)
    elif name != "wait":
        answer(id, text("plain"))


PLAIN = [
    json.dumps({"name": name, "inputSchema": {"type": "object"}})
    for name in ("told", "meta", *ASKING_TOOLS, "completed", "wait", "exit", "secret")
]
WRITES = json.dumps(
    {"name": "write", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": False}}
)
LISTS = {
    "tools/list": f'{{"tools":[{",".join([ODD_TOOL, *PLAIN, WRITES])}]}}',
    "resources/list": json.dumps(
        {"resources": [{"uri": "odd://same", "name": "same"}, {"uri": f"odd://{NAME}", "name": NAME}]}
    ),
    "resources/templates/list": json.dumps(
        {"resourceTemplates": [{"uriTemplate": f"odd://{NAME}/{{id}}", "name": "one"}]}
    ),
    "prompts/list": json.dumps({"prompts": [{"name": "hello", "description": "Says hello."}]}),
}

for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        told = params["capabilities"]
        offers = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}}
        info = {"name": f"odd {NAME}", "version": "1"}
        version = params["protocolVersion"]
        answer(id, json.dumps({"protocolVersion": version, "capabilities": offers, "serverInfo": info}))
    elif method in LISTS:
        answer(id, LISTS[method])
    elif method == "tools/call":
        call(id, params)
    elif method == "resources/read":
        uri = params["uri"]
        if uri.startswith("odd://"):
            answer(id, json.dumps({"contents": [{"uri": uri, "text": f"{uri} of {NAME}"}]}))
        else:
            error = {"code": -32002, "message": "Resource not found"}
            send(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}))
    elif method == "prompts/get":
        content = {"type": "text", "text": f"hello from {NAME}"}
        answer(id, json.dumps({"messages": [{"role": "user", "content": content}]}))
    elif method == "completion/complete":
        answer(id, json.dumps({"completion": {"values": [f"{params['ref']} of {NAME}"]}}))
    elif method == "resources/subscribe":
        answer(id, "{}")
        send(json.dumps({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params}))
    elif method == "notifications/cancelled" and MARKER is not None:
        MARKER.write_text("cancelled")
    elif method is None and id in asked:
        given = message.get("result") or message.get("error")
        call_id, name, token = asked.pop(id)
        if name == "ask_exit":
            sys.exit(3)
        if name == "ask_on":
            progress = {"progressToken": token, "progress": 1}
            send(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}))
        if name != "ask_wait":
            answer(call_id, text(json.dumps(given, sort_keys=True)))
    elif id is not None:
        send(
            json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})
        )
