"""A stdio server of the standard library alone that writes down what happens to it, one JSON object a line.

``recording_server.py JOURNAL [--modern] [--tools FILE] [--ttl MILLISECONDS]``. It reads its tools
from FILE each time, so that a test can change them. What a tool does follows from its name.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("journal")
parser.add_argument("--modern", action="store_true")
parser.add_argument("--tools")
parser.add_argument("--ttl", type=int)
parser.add_argument("--stay", action="store_true", help="live on when the input ends, until told to go")
options = parser.parse_args()

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = [
    {"name": "look", "description": "Looks.", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}},
    {"name": "touch", "inputSchema": TEXT, "annotations": {"readOnlyHint": False}},
    *(
        {"name": name, "inputSchema": TEXT}
        for name in (
            "echo",
            "wait",
            "steps",
            "fail",
            "raw",
            "refuse",
            "exit",
            "exit_once",
            "variable",
            "process",
        )
    ),
]


def note(**fields: Any) -> None:
    fd = os.open(options.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, json.dumps(fields).encode() + b"\n")
    os.close(fd)


def starts() -> int:
    with open(options.journal) as file:
        return file.read().count('"start"')


def send(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def answer(id: Any, result: dict[str, Any]) -> None:
    send({"id": id, "result": {"resultType": "complete", **result} if options.modern else result})


def text(id: Any, words: str, **more: Any) -> None:
    answer(id, {"content": [{"type": "text", "text": words}], **more})


def steps(id: Any, count: int, every: float, token: Any) -> None:
    for step in range(count):
        time.sleep(every)
        send(
            {
                "method": "notifications/progress",
                "params": {"progressToken": token, "progress": step + 1, "total": count},
            }
        )
    text(id, "done")


def call(id: Any, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
    if tool == "wait":
        return
    if tool == "fail":
        text(id, str(arguments.get("text", "this tool always fails")), isError=True)
    elif tool == "raw":
        answer(id, arguments["result"])
    elif tool == "refuse":
        error = {"code": -32602, "message": str(arguments.get("text", "no")), "data": arguments.get("data")}
        send({"id": id, "error": error})
    elif tool == "exit" or (tool == "exit_once" and starts() == 1):
        sys.stderr.write(f"{arguments.get('text', 'the end')}\n")
        sys.stderr.flush()
        os._exit(3)
    elif tool == "variable":
        text(id, os.environ.get(arguments["text"], "(not set)"))
    elif tool == "process":
        text(id, str(os.getpid()))
    elif tool == "steps":
        count, every = arguments.get("count", 3), arguments.get("every", 0.01)
        threading.Thread(
            target=steps, args=(id, count, every, meta.get("progressToken")), daemon=True
        ).start()
    else:
        text(id, str(arguments.get("text", "")))


def listing() -> dict[str, Any]:
    tools = TOOLS
    if options.tools:
        with open(options.tools) as file:
            tools = json.load(file)
    return {"tools": tools} if options.ttl is None else {"tools": tools, "ttlMs": options.ttl}


def respond(message: dict[str, Any]) -> None:
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None or id is None:
        return
    if method == "server/discover" and options.modern:
        offer = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        answer(id, {"serverInfo": {"name": "recorder"}, **offer})
    elif method == "initialize" and not options.modern:
        offer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        answer(id, {"serverInfo": {"name": "recorder", "version": "1"}, **offer})
    elif method == "tools/list":
        answer(id, listing())
    elif method == "tools/call":
        call(id, params["name"], params.get("arguments") or {}, params.get("_meta") or {})
    else:
        send({"id": id, "error": {"code": -32601, "message": f"no such method: {method}"}})


def exit_on_request(*_: object) -> None:
    note(told_to_go=True)
    os._exit(0)


def main() -> None:
    note(start=os.getpid(), words=sys.argv[1:])
    if options.stay:
        signal.signal(signal.SIGTERM, exit_on_request)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        note(message=message)
        respond(message)
    note(input_ended=True)
    while options.stay:
        signal.pause()


main()
