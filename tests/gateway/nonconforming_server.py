"""A legacy server from the standard library alone, whose lists and results are as no revision has them all.

Each tool has one thing that some client cannot read. ``listed`` and ``pictured`` answer with structured
content that is no object, ``link`` and ``sound`` with content that old revisions do not have.
"""

import json
import sys

ANY = {"type": "object"}
TOOLS = {
    "fine": {
        "inputSchema": ANY,
        "description": "d",
        "annotations": {"readOnlyHint": True, "extra": 1},
        "x": 1,
    },
    "bare": {"inputSchema": {"anyOf": [ANY]}},
    "schemaless": {},
    "booleans": {"inputSchema": {"type": "object", "properties": {"a": True, "b": False, "c": {}}}},
    "nulls": {
        "inputSchema": {"type": "object", "required": None, "$schema": None},
        "title": None,
        "description": None,
        "annotations": None,
        "outputSchema": None,
        "icons": None,
        "execution": None,
        "_meta": None,
    },
    "kinds": {
        "inputSchema": ANY,
        "description": 5,
        "annotations": {"title": None, "readOnlyHint": "yes", "openWorldHint": True},
        "icons": [{"url": "x"}, {"src": "data:,", "sizes": "any", "theme": "pink"}],
        "execution": {"taskSupport": "maybe"},
    },
    "listed": {"inputSchema": ANY, "outputSchema": {"type": "array"}},
    "pictured": {"inputSchema": ANY},
    "link": {"inputSchema": ANY},
    "sound": {"inputSchema": ANY},
    "silent": {"inputSchema": ANY},
}
LINK = {"type": "resource_link", "uri": "sloppy://one", "name": "one"}
PICTURE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
SOUND = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
RESULTS = {
    "listed": {"content": [], "structuredContent": ["a"]},
    "pictured": {"content": [PICTURE], "structuredContent": ["a"]},
    "link": {"content": [LINK]},
    "sound": {"content": [SOUND]},
    "silent": {"content": [{"type": "text", "text": "silent"}], "structuredContent": None},
}
LISTS = {
    "tools/list": {"tools": [{"name": name, **rest} for name, rest in TOOLS.items()]},
    "resources/list": {
        "resources": [
            {"uri": "sloppy://one", "description": None, "mimeType": None, "size": "3"},
            {"name": "no uri"},
            {
                "uri": "sloppy://two",
                "name": "two",
                "annotations": {"priority": 7, "lastModified": "yesterday"},
            },
        ]
    },
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "sloppy://{x}", "title": None}]},
    "prompts/list": {
        "prompts": [
            {"name": "ask", "arguments": [{"name": "a", "required": "yes"}, {"title": "no name"}]},
            {"name": "plain", "arguments": None, "description": None},
            {"name": None},
        ]
    },
    "prompts/get": {"messages": [{"role": "user", "content": LINK}]},
}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        reply: dict = {"error": {"code": -32601, "message": "Method not found"}}
        if method == "initialize":
            offers = {"tools": {}, "resources": {}, "prompts": {}}
            info = {"name": "sloppy", "version": 1.0, "title": None}
            version = params["protocolVersion"]
            reply = {"result": {"protocolVersion": version, "capabilities": offers, "serverInfo": info}}
        elif method in LISTS:
            reply = {"result": LISTS[method]}
        elif method == "tools/call":
            name = params["name"]
            reply = {"result": RESULTS.get(name, {"content": [{"type": "text", "text": name}]})}
        if id is not None:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, **reply}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
