"""An HTTP server whose words are hostile, and that can be told to fail: ``hostile_markup_server.py PORT``.

``GET /down`` lets it answer 503 to everything from then on, ``GET /up`` ends that.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SCRIPT = '<script>window.hacked = true</script><img src=x onerror="window.hacked = true">'
REVERSED_NAME = "invoice\u202efdp.exe"
LONG = "word" * 400
OBJECT = {"type": "object"}
READS = {"readOnlyHint": True}
WRITES = {"readOnlyHint": False, "destructiveHint": True}

TOOLS: list[dict[str, Any]] = [
    {
        "name": "echo",
        "title": SCRIPT,
        "description": f"{SCRIPT}\nSecond line. {LONG}",
        "inputSchema": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": SCRIPT},
                "times": {"type": "integer", "default": 2},
                "loud": {"type": "boolean"},
                "style": {"enum": ["plain", SCRIPT]},
                "more": {"type": "object"},
            },
            "required": ["text"],
        },
        "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": True, "title": SCRIPT},
    },
    {"name": "wipe", "description": "Deletes.", "inputSchema": OBJECT, "annotations": WRITES},
    {"name": SCRIPT, "description": "A name that is markup", "inputSchema": OBJECT, "annotations": READS},
    {"name": REVERSED_NAME, "description": REVERSED_NAME, "inputSchema": OBJECT, "annotations": READS},
    {"name": "n" * 200, "description": LONG, "inputSchema": OBJECT, "annotations": READS},
    {"name": "broken", "inputSchema": "no schema"},
]
RESOURCES = [{"uri": "javascript:alert(1)", "name": SCRIPT, "description": REVERSED_NAME}]
PROMPTS = [{"name": SCRIPT, "description": LONG}]
state = {"down": False}


def result(message: dict[str, Any]) -> dict[str, Any] | None:
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}, SCRIPT: {}},
            "serverInfo": {"name": SCRIPT, "version": REVERSED_NAME},
            "instructions": f"{SCRIPT} {LONG}",
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "resources/list":
        return {"resources": RESOURCES}
    if method == "resources/templates/list":
        return {"resourceTemplates": []}
    if method == "prompts/list":
        return {"prompts": PROMPTS}
    if method == "tools/call":
        text = json.dumps(params.get("arguments"))
        return {
            "content": [{"type": "text", "text": f"{SCRIPT} {text}"}],
            "isError": params["name"] != "echo",
        }
    return None


class HostileMarkupHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path in ("/down", "/up"):
            state["down"] = self.path == "/down"
            self.reply(200, b"{}")
        else:
            self.reply(405, b"")

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if state["down"]:
            self.reply(503, b"down for repairs: " + SCRIPT.encode(), "text/plain")
        elif "id" not in message:
            self.reply(202, b"")
        elif (message_result := result(message)) is not None:
            self.reply(
                200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": message_result}).encode()
            )
        else:
            error = {"code": -32601, "message": "Method not found"}
            self.reply(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())

    def reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), HostileMarkupHandler).serve_forever()
