"""A model on loopback that follows a script, over four streaming protocols of providers.

Each request of an agent takes the next step of the script. The model calls a tool by the name that Toolyard
gives it, and finds the name that the agent made of it among the declared tools.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers.providers_server import NUMBERS, Order, anthropic_events, google_events, responses_events

Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A step that calls a tool. ``before`` runs first, while the agent waits for the model."""

    tool: str
    arguments: Json
    before: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class ModelRequest:
    """The tools that a request declares, each with its namespace, and the tool results that it carries."""

    tools: tuple[tuple[str | None, str], ...]
    results: tuple[str, ...]
    text: str = ""
    """The whole request, as JSON."""

    @property
    def has_picture(self) -> bool:
        return any(_is_picture(each) for each in _objects(json.loads(self.text)))

    def find(self, tool: str) -> tuple[str | None, str] | None:
        """Return the declared tool with this name or this ending of its name."""
        return next((each for each in self.tools if each[1].endswith(tool)), None)


class ScriptedModel:
    """The server, its script and the requests that came with tools, in order."""

    def __init__(self, script: Sequence[Call]) -> None:
        self.requests: list[ModelRequest] = []
        self._steps = iter(script)
        self._lock = threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
                content = b"".join(model.answer(self.path, body))
                self.send_response(200 if content else 404)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_GET(self) -> None:
                self.send_error(404)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> ScriptedModel:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def results(self) -> tuple[str, ...]:
        """The tool results of the last request."""
        return self.requests[-1].results if self.requests else ()

    def answer(self, path: str, body: Json) -> Iterator[bytes]:
        if path.endswith("/responses"):
            read, events = _read_responses, responses_events
        elif path.partition("?")[0].endswith("/messages"):
            read, events = _read_messages, anthropic_events
        elif "GenerateContent" in path or "generateContent" in path:
            read, events = _read_contents, google_events
        elif path.endswith("/chat/completions"):
            read, events = _read_chat, chat_events
        else:
            return
        request = replace(read(body), text=json.dumps(body))
        # Requests without tools are internal to the agent, such as that for a title of the session.
        order, namespace = self._take_step(request) if request.tools else (Order(say="A title"), None)
        for event in events(body, order):
            item = event.get("item", {})
            if namespace is not None and item.get("type") == "function_call":
                item["namespace"] = namespace
            name = f"event: {event['type']}\n" if "type" in event else ""
            yield f"{name}data: {json.dumps(event)}\n\n".encode()
        if events is chat_events:
            yield b"data: [DONE]\n\n"

    def _take_step(self, request: ModelRequest) -> tuple[Order, str | None]:
        with self._lock:
            self.requests.append(request)
            step = next(self._steps, None)
            if step is None:
                return Order(say="Done."), None
            step.before()
        matching_tool, arguments = request.find(step.tool), step.arguments
        if matching_tool is None and request.find("tool_search") and request.find("tool_call"):
            # Qwen Code does not declare tools of servers; its tool `tool_call` calls them.
            matching_tool = request.find("tool_call")
            prefix = "" if step.tool == "read_mcp_resource" else "mcp__toolyard__"
            arguments = {"name": f"{prefix}{step.tool}", "arguments": step.arguments}
        namespace, name = matching_tool or (None, step.tool)
        return Order(call=(name, json.dumps(arguments))), namespace


def _join_texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", f"[{part.get('type')}]") for part in content or [])


def _read_responses(body: Json) -> ModelRequest:
    tools: list[tuple[str | None, str]] = []
    for tool in body.get("tools") or []:
        if tool["type"] == "namespace":
            tools += [(tool["name"], each["name"]) for each in tool["tools"]]
        elif "name" in tool:
            tools.append((None, tool["name"]))
    outputs = [item for item in body["input"] if item.get("type") == "function_call_output"]
    return ModelRequest(tuple(tools), tuple(_join_texts(item["output"]) for item in outputs))


def _read_messages(body: Json) -> ModelRequest:
    blocks = [
        block
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    tools = tuple((None, tool["name"]) for tool in body.get("tools") or [])
    return ModelRequest(tools, tuple(_join_texts(block.get("content")) for block in blocks))


def _read_contents(body: Json) -> ModelRequest:
    tool_functions = [
        each for tool in body.get("tools") or [] for each in tool.get("functionDeclarations", [])
    ]
    responses = [
        part["functionResponse"]["response"]
        for content in body["contents"]
        for part in content["parts"]
        if "functionResponse" in part
    ]
    results = ("\n".join(str(value) for value in response.values()) for response in responses)
    return ModelRequest(tuple((None, each["name"]) for each in tool_functions), tuple(results))


def _read_chat(body: Json) -> ModelRequest:
    tools = tuple((None, tool["function"]["name"]) for tool in body.get("tools") or [])
    results = (_join_texts(each["content"]) for each in body["messages"] if each["role"] == "tool")
    return ModelRequest(tools, tuple(results))


def chat_events(body: Json, order: Order) -> Iterator[Json]:
    """Return the chunks of OpenAI's Chat Completions."""
    base = {"id": f"chatcmpl-{next(NUMBERS)}", "object": "chat.completion.chunk", "created": 1_790_000_000}
    base["model"] = body["model"]
    delta: Json = {"role": "assistant", "content": order.say or None}
    if order.call:
        name, arguments = order.call
        function = {"name": name, "arguments": arguments}
        delta["tool_calls"] = [
            {"index": 0, "id": f"call_{next(NUMBERS)}", "type": "function", "function": function}
        ]
    yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    reason = "tool_calls" if order.call else "stop"
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}


def _objects(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(each)


def _is_picture(part: Json) -> bool:
    """Return whether this is a part with a picture, in the form of any of the providers."""
    inline = part.get("inlineData") or part.get("inline_data")
    return part.get("type") in ("image", "input_image", "image_url") or (
        isinstance(inline, dict) and str(inline.get("mimeType", "")).startswith("image/")
    )
