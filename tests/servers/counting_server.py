"""A legacy server from the standard library alone that keeps a count in memory.

``count`` adds one and returns the count with the process id; ``ask`` asks the client and returns its answer;
``sample`` and ``roots`` ask for those; ``hold`` answers only after ``release``; ``log`` logs at two levels.
With the argument ``--roots`` it exits unless it was offered roots.
"""

import json
import os
import sys

TOOLS = ("count", "ask", "sample", "roots", "hold", "release", "log", "told")
count = 0
told: dict = {}
levels: list = []
held: list = []
asked: dict = {}


def send(message: dict) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(id: object, value: object) -> None:
    send({"id": id, "result": {"content": [{"type": "text", "text": json.dumps(value)}]}})


def ask(id: object, method: str, params: dict) -> None:
    asked[f"q-{id}"] = id
    send({"id": f"q-{id}", "method": method, "params": params})


def call(id: object, name: str, arguments: dict) -> None:
    global count
    if name == "count":
        count += 1
        answer(id, {"pid": os.getpid(), "count": count, "levels": levels})
    elif name == "ask":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        ask(id, "elicitation/create", {"message": arguments.get("text", "Who?"), "requestedSchema": schema})
    elif name == "sample":
        sampling_messages = [{"role": "user", "content": {"type": "text", "text": "hello"}}]
        ask(id, "sampling/createMessage", {"messages": sampling_messages, "maxTokens": 9})
    elif name == "roots":
        ask(id, "roots/list", {})
    elif name == "hold":
        held.append(id)
    elif name == "release":
        while held:
            answer(held.pop(), "released")
        answer(id, "released")
    elif name == "log":
        for level in ("debug", "error"):
            send({"method": "notifications/message", "params": {"level": level, "data": level}})
        answer(id, "logged")
    else:
        answer(id, told)


for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        told = params["capabilities"]
        if "--roots" in sys.argv and "roots" not in told:
            sys.exit("cannot start: the client does not support roots")
        info, offers = {"name": "counting", "version": "1"}, {"tools": {}, "logging": {}}
        version = params["protocolVersion"]
        send({"id": id, "result": {"protocolVersion": version, "capabilities": offers, "serverInfo": info}})
    elif method == "tools/list":
        listed = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        send({"id": id, "result": {"tools": listed}})
    elif method == "tools/call":
        call(id, params["name"], params.get("arguments") or {})
    elif method == "logging/setLevel":
        levels.append(params["level"])
        send({"id": id, "result": {}})
    elif method is None and id in asked:
        answer(asked.pop(id), message.get("result") or message.get("error"))
    elif id is not None and method is not None:
        send({"id": id, "error": {"code": -32601, "message": "Method not found"}})
