"""The smallest legacy server, from the standard library alone so that it starts at once.

Tools: ``echo`` answers, ``never`` does not, ``later`` answers when the next message comes.
With ``--stays`` it does not leave when its input ends, as servers that forget to look do.
"""

import json
import sys
import time

waiting: list[object] = []


def send(message: dict) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(id: object, result: dict) -> None:
    send({"jsonrpc": "2.0", "id": id, "result": result})


for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    for late in waiting:
        answer(late, {"content": [{"type": "text", "text": "late"}]})
    waiting.clear()
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "tiny", "version": "1"}
        answer(id, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        kinds = {"needed": {"type": "integer"}, "extra": {"type": "string"}}
        schema = {
            "type": "object",
            "properties": kinds,
            "required": ["needed"],
            "additionalProperties": False,
        }
        answer(id, {"tools": [{"name": name, "inputSchema": schema} for name in ("echo", "never", "later")]})
    elif method == "tools/call":
        name = message["params"]["name"]
        if name == "echo":
            text = json.dumps(message["params"].get("arguments"))
            answer(id, {"content": [{"type": "text", "text": text}]})
        elif name == "later":
            waiting.append(id)
    elif id is not None:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})

if "--stays" in sys.argv:
    time.sleep(300)
