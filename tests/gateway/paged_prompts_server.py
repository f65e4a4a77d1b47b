"""A legacy server from the standard library alone, whose prompts change while they are listed.

The list has two pages. Before the first listing gets its second page, the prompt of the first one is renamed
from ``before`` to ``after``, and the client is notified.
"""

import json
import sys

name = "before"


def send(message: dict) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        offered = {"prompts": {"listChanged": True}, "tools": {}}
        info = {"name": "paged", "version": "1"}
        version = params["protocolVersion"]
        send({"id": id, "result": {"protocolVersion": version, "capabilities": offered, "serverInfo": info}})
    elif method == "tools/list":
        send({"id": id, "result": {"tools": []}})
    elif method == "prompts/list" and "cursor" not in params:
        send({"id": id, "result": {"prompts": [{"name": name}], "nextCursor": "2"}})
    elif method == "prompts/list":
        if name == "before":
            name = "after"
            send({"method": "notifications/prompts/list_changed"})
        send({"id": id, "result": {"prompts": [{"name": "last"}]}})
    elif id is not None:
        send({"id": id, "error": {"code": -32601, "message": "Method not found"}})
