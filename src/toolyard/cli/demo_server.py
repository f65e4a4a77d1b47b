"""A small MCP server for ``toolyard demo``: standard library only, both protocol eras, harmless tools.

Run as a program, it serves standard streams and ends with its input. ``--legacy`` disables the modern era.
"""

from __future__ import annotations

import datetime
import json
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

__all__ = [
    "READ_ONLY_ANNOTATIONS",
    "DemoServer",
    "JsonObject",
    "json_object",
    "main",
    "object_schema",
    "serve_stdio",
    "text_result",
]

JsonObject = dict[str, Any]

_SERVER_INFO = {"name": "toolyard-demo", "title": "Toolyard demo", "version": "1.0.0"}
_MODERN_VERSION, _LEGACY_VERSIONS = "2026-07-28", ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
_META_KEY_PREFIX = "io.modelcontextprotocol/"
_INSTRUCTIONS = "Tools for trying out Toolyard. None of them changes anything."
READ_ONLY_ANNOTATIONS = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}


def object_schema(required: list[str], **properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": properties, "required": required}


_TOOLS: list[JsonObject] = [
    {
        "name": "weekday",
        "description": "Return the day of the week of a date.",
        "inputSchema": object_schema(
            ["date"], date={"type": "string", "description": "A date such as 2026-07-28"}
        ),
        "annotations": READ_ONLY_ANNOTATIONS,
    },
    {
        "name": "count",
        "description": "Count up slowly and report progress.",
        "inputSchema": object_schema(
            ["to"],
            to={"type": "integer", "minimum": 1, "maximum": 100, "description": "Last number"},
            pause={"type": "number", "default": 0.2, "description": "Seconds between numbers, at most 1"},
        ),
        "annotations": READ_ONLY_ANNOTATIONS,
    },
    {
        "name": "forget",
        "description": "Delete all data. This demo has none, but the tool is marked as changing data.",
        "inputSchema": object_schema([]),
        "annotations": {"readOnlyHint": False, "destructiveHint": True},
    },
]


class JsonRpcError(Exception):
    """Raised when a request is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: JsonObject | None = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class DemoServer:
    """One client. Each call runs in its own thread, so that it can be cancelled and pings are answered
    meanwhile."""

    tools = _TOOLS
    info = _SERVER_INFO
    instructions = _INSTRUCTIONS

    def __init__(self, write: Callable[[JsonObject], None], *, legacy: bool = False) -> None:
        self._write = write
        self._legacy = legacy
        self._write_lock = threading.Lock()
        self._cancel_events: dict[object, threading.Event] = {}

    def receive(self, message: object) -> None:
        """Handle one message: answer it now or, for a call, when it is done."""
        asked = json_object(message)
        method, id_, params = asked.get("method"), asked.get("id"), json_object(asked.get("params"))
        if method == "notifications/cancelled":
            cancelled = self._cancel_events.get(params.get("requestId"))
            if cancelled is not None:
                cancelled.set()
        elif id_ is not None and method == "tools/call":
            stop = self._cancel_events[id_] = threading.Event()
            threading.Thread(
                target=self._handle_request, args=(id_, method, params, stop), daemon=True
            ).start()
        elif id_ is not None:
            self._handle_request(id_, str(method), params, threading.Event())

    def _handle_request(self, id_: object, method: str, params: JsonObject, stop: threading.Event) -> None:
        try:
            result = self._compute_result(method, params, stop)
        except JsonRpcError as refusal:
            error: JsonObject = {"code": refusal.code, "message": str(refusal)}
            if refusal.data is not None:
                error["data"] = refusal.data
            self.send({"jsonrpc": "2.0", "id": id_, "error": error})
        else:
            if not stop.is_set():
                self.send({"jsonrpc": "2.0", "id": id_, "result": result})
        finally:
            self._cancel_events.pop(id_, None)

    def send(self, message: JsonObject) -> None:
        """Send one message."""
        with self._write_lock:
            self._write(message)

    def _compute_result(self, method: str, params: JsonObject, stop: threading.Event) -> JsonObject:
        modern = not self._legacy and self._is_modern_request(method, params)
        if method == "initialize":
            asked = params.get("protocolVersion")
            version = asked if asked in _LEGACY_VERSIONS else _LEGACY_VERSIONS[0]
            offer: JsonObject = {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": self.info,
            }
            return {**offer, "instructions": self.instructions}
        if method == "server/discover" and modern:
            offer = {"supportedVersions": [_MODERN_VERSION, *_LEGACY_VERSIONS], "capabilities": {"tools": {}}}
            return self._mark_complete(
                {**offer, "instructions": self.instructions, "ttlMs": 60_000, "cacheScope": "public"}
            )
        if method == "ping":
            return {}
        if method == "tools/list":
            listed: JsonObject = {"tools": self.tools}
            return (
                self._mark_complete({**listed, "ttlMs": 60_000, "cacheScope": "public"}) if modern else listed
            )
        if method == "tools/call":
            result = self.call(params, stop, modern)
            return self._mark_complete(result) if modern and "resultType" not in result else result
        raise JsonRpcError(-32601, "Method not found")

    def _mark_complete(self, result: JsonObject) -> JsonObject:
        return {**result, "resultType": "complete", "_meta": {f"{_META_KEY_PREFIX}serverInfo": self.info}}

    def _is_modern_request(self, method: str, params: JsonObject) -> bool:
        version = json_object(params.get("_meta")).get(f"{_META_KEY_PREFIX}protocolVersion")
        if version is None:
            return method == "server/discover"
        if version != _MODERN_VERSION:
            supported = {"supported": [_MODERN_VERSION], "requested": version}
            raise JsonRpcError(-32022, "Unsupported protocol version", supported)
        return True

    def call(self, params: JsonObject, stop: threading.Event, modern: bool) -> JsonObject:
        """Call a tool. Raises JsonRpcError for an unknown one."""
        arguments = json_object(params.get("arguments"))
        token = json_object(params.get("_meta")).get("progressToken")
        match params.get("name"):
            case "weekday":
                return _run_weekday(arguments.get("date"))
            case "count":
                return self._run_count(arguments, token, stop)
            case "forget":
                return text_result("Nothing to delete.")
            case name:
                raise JsonRpcError(-32602, f"Unknown tool: {name}")

    def _run_count(self, arguments: JsonObject, token: object, stop: threading.Event) -> JsonObject:
        to, pause = arguments.get("to"), arguments.get("pause", 0.2)
        if isinstance(to, bool) or not isinstance(to, int) or not 1 <= to <= 100:
            return text_result("'to' must be a whole number from 1 to 100.", error=True)
        if isinstance(pause, bool) or not isinstance(pause, int | float) or not 0 <= pause <= 1:
            return text_result("'pause' must be a number from 0 to 1.", error=True)
        for number in range(1, to + 1):
            if stop.wait(pause):
                break
            if token is not None:
                progress = {"progressToken": token, "progress": number, "total": to}
                note = {**progress, "message": f"{number} of {to}"}
                self.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": note})
        return text_result(f"Counted to {to}.")


def json_object(value: object) -> JsonObject:
    """Return the value if it is an object, else an empty one."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _run_weekday(date: object) -> JsonObject:
    try:
        day = datetime.date.fromisoformat(str(date))
    except ValueError:
        return text_result(f"{str(date)[:40]!r} is not a date such as 2026-07-28.", error=True)
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    return text_result(f"{day} is a {names[day.weekday()]}.")


def text_result(text: str, *, error: bool = False) -> JsonObject:
    result: JsonObject = {"content": [{"type": "text", "text": text}]}
    return {**result, "isError": True} if error else result


def main() -> None:
    """Run the server."""
    serve_stdio(DemoServer)


def serve_stdio(server_class: type[DemoServer]) -> None:
    """Serve the standard streams until the input ends."""

    def write_message(message: JsonObject) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    server = server_class(write_message, legacy="--legacy" in sys.argv[1:])
    for line in sys.stdin:
        try:
            message = json.loads(line)
        except ValueError:
            unread = {"code": -32700, "message": "Parse error"}
            write_message({"jsonrpc": "2.0", "id": None, "error": unread})
        else:
            server.receive(message)


if __name__ == "__main__":
    main()
