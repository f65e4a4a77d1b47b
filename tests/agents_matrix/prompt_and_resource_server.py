"""A legacy server with one prompt and one resource, from the standard library alone."""

import json
import sys

RESOURCE = {"uri": "memo://greeting", "name": "greeting", "mimeType": "text/plain"}
PROMPT = {"name": "greet", "description": "Greet somebody."}


def answer(method: str, params: dict) -> dict | None:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"prompts": {}, "resources": {}},
                "serverInfo": {"name": "greetings", "version": "1"},
            }
        case "resources/list":
            return {"resources": [RESOURCE]}
        case "resources/templates/list":
            return {"resourceTemplates": []}
        case "resources/read":
            return {"contents": [{**RESOURCE, "text": "Good morning from the resource"}]}
        case "prompts/list":
            return {"prompts": [PROMPT]}
        case "prompts/get":
            content = {"type": "text", "text": "Good morning from the prompt"}
            return {"messages": [{"role": "user", "content": content}]}
        case "ping":
            return {}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    error = {"error": {"code": -32601, "message": "Method not found"}}
    response = error if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **response}), flush=True)
