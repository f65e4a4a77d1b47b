"""A small Streamable HTTP server of the legacy era. Its first argument is the port.

``/mcp`` answers, ``/404`` and ``/500`` fail with that status, and a GET of ``/silent`` opens a stream without
events. A GET of ``/user-agents`` returns the User-Agent of each POST.
"""

import http.server
import json
import sys
import time

user_agents: list[str] = []


class StreamableHttpHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/user-agents":
            self.answer(user_agents)
            return
        if self.path != "/silent":
            self.send_error(405)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        time.sleep(60)

    def do_POST(self) -> None:
        user_agents.append(self.headers["User-Agent"])
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path in ("/404", "/500"):
            self.send_error(int(self.path[1:]))
        elif "id" not in message:
            self.send_response(202)
            self.end_headers()
        else:
            self.answer({"jsonrpc": "2.0", "id": message["id"], **respond(message)})

    def answer(self, message: object) -> None:
        body = json.dumps(message).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def respond(message: dict) -> dict:
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "small", "version": "1"}
        capabilities = {"tools": {}}
        return {"result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}}
    if message["method"] == "tools/list":
        return {"result": {"tools": [{"name": "bare"}, {"name": "echo", "inputSchema": {"type": "object"}}]}}
    if message["method"] == "tools/call":
        return {"result": {"content": [{"type": "text", "text": "done"}]}}
    return {"error": {"code": -32601, "message": "unknown method"}}


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), StreamableHttpHandler).serve_forever()
