"""A legacy server for tests of chats, from the standard library alone so that it starts at once.

``chat_server.py JOURNAL``: each call that is executed gets a line there, ``name json``, and each that is
cancelled ``cancelled name``. What stands in ``JOURNAL.words``, if there is such a file, is part of the
description of ``put``, so that its definition can change.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import struct
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

Json = dict[str, Any]
JOURNAL = Path(sys.argv[1])
READS = {"readOnlyHint": True}
WRITES = {"readOnlyHint": False}
TEXT = {"type": "string"}
FORM = {"type": "object", "properties": {"name": TEXT}, "required": ["name"]}
LOCK = threading.Lock()
STOPPING: dict[Any, threading.Event] = {}
ANSWERS: dict[Any, tuple[threading.Event, Json]] = {}
NUMBERS = itertools.count(1)


def schema(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def tools() -> list[Json]:
    words = JOURNAL.with_name(f"{JOURNAL.name}.words")
    flavour = words.read_text() if words.exists() else ""
    reads = {
        "look": schema(text=TEXT),
        "picture": schema(),
        "sound": schema(),
        "count": schema(to={"type": "integer"}, pause={"type": "number"}),
        "wait": schema(),
        "fail": schema(),
        "big": schema(size={"type": "integer"}),
        "ask": schema(url=TEXT),
        "think": schema(text=TEXT),
        "die": schema(),
    }
    tools = [
        {"name": name, "title": name.title(), "inputSchema": each, "annotations": READS}
        for name, each in reads.items()
    ]
    put = {"name": "put", "description": f"Writes. {flavour}", "inputSchema": schema(text=TEXT)}
    return [*tools, {**put, "annotations": WRITES}]


def send(message: Json) -> None:
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def note(*words: str) -> None:
    fd = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, (" ".join(words) + "\n").encode())
    os.close(fd)


def request(method: str, params: Json) -> Json:
    """Ask the client, and wait for what it answers."""
    id = f"ask-{next(NUMBERS)}"
    answer_arrived, answer = ANSWERS[id] = (threading.Event(), {})
    send({"id": id, "method": method, "params": params})
    answer_arrived.wait()
    return answer


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00\xff\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def text(words: str) -> list[Json]:
    return [{"type": "text", "text": words}]


def media(kind: str, mime: str, data: bytes) -> Json:
    return {"type": kind, "mimeType": mime, "data": base64.b64encode(data).decode()}


def call(name: str, arguments: Json, meta: Json, stop: threading.Event) -> list[Json] | None:
    if name in ("look", "put"):
        return text(f"{name}: {arguments.get('text', '')}")
    if name == "picture":
        return [*text("a picture"), media("image", "image/png", png())]
    if name == "sound":
        return [media("audio", "audio/wav", b"RIFF" + bytes(40))]
    if name == "count":
        for number in range(1, arguments["to"] + 1):
            if stop.wait(arguments.get("pause", 0.0)):
                return None
            progress = {
                "progressToken": meta.get("progressToken"),
                "progress": number,
                "total": arguments["to"],
            }
            send({"method": "notifications/progress", "params": {**progress, "message": f"at {number}"}})
        return text("counted")
    if name == "wait":
        stop.wait()
        return None
    if name == "big":
        return text("x" * arguments["size"])
    if name == "ask":
        params: Json = {"message": "Who are you?", "requestedSchema": FORM}
        if "url" in arguments:
            params = {"mode": "url", "message": "Go there", "url": arguments["url"], "elicitationId": "1"}
        return text(json.dumps(request("elicitation/create", params).get("result"), sort_keys=True))
    if name == "think":
        message = {"role": "user", "content": {"type": "text", "text": arguments["text"]}}
        params = {"messages": [message], "systemPrompt": "Be brief.", "maxTokens": 50}
        answer = request("sampling/createMessage", params)
        return text(json.dumps(answer.get("result", answer.get("error")), sort_keys=True))
    os._exit(3)


def answer(id: Any, name: str, params: Json, stop: threading.Event) -> None:
    arguments = params.get("arguments") or {}
    note(name, json.dumps(arguments, sort_keys=True))
    if name == "fail":
        send({"id": id, "result": {"content": text("it failed"), "isError": True}})
        return
    content = call(name, arguments, params.get("_meta") or {}, stop)
    if content is None:
        note("cancelled", name)
    else:
        send({"id": id, "result": {"content": content}})


def take(message: Json) -> None:
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None:
        answer_event, answer_data = ANSWERS.pop(id)
        answer_data.update(message)
        answer_event.set()
    elif method == "notifications/cancelled":
        STOPPING.get(params.get("requestId"), threading.Event()).set()
    elif method == "initialize":
        offer = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        send({"id": id, "result": {**offer, "serverInfo": {"name": "chat", "version": "1"}}})
    elif method == "tools/list":
        send({"id": id, "result": {"tools": tools()}})
    elif method == "tools/call":
        stop = STOPPING[id] = threading.Event()
        threading.Thread(target=answer, args=(id, params["name"], params, stop), daemon=True).start()
    elif id is not None:
        send({"id": id, "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    for line in sys.stdin:
        take(json.loads(line))
