"""A small MCP server for ``toolyard demo``: standard library only, both eras, harmless tools.

Run it as a program; it speaks over its standard streams and ends with its input. ``--legacy`` makes it forget
the modern era.
"""

from __future__ import annotations

import datetime
import json
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

__all__ = ["READS", "Json", "Server", "json_object", "main", "schema", "serve", "text_result"]

Json = dict[str, Any]

_INFO = {"name": "toolyard-demo", "title": "Toolyard demo", "version": "1.0.0"}
_MODERN, _LEGACY = "2026-07-28", ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
_META = "io.modelcontextprotocol/"
_INSTRUCTIONS = "Tools to try Toolyard with. None of them changes anything."
READS = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}


def schema(required: list[str], **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": required}


_TOOLS: list[Json] = [
    {
        "name": "weekday",
        "description": "Tell on which day of the week a date falls.",
        "inputSchema": schema(["date"], date={"type": "string", "description": "A date such as 2026-07-28"}),
        "annotations": READS,
    },
    {
        "name": "count",
        "description": "Count up slowly, telling how far it is.",
        "inputSchema": schema(
            ["to"],
            to={"type": "integer", "minimum": 1, "maximum": 100, "description": "Where to end"},
            pause={"type": "number", "default": 0.2, "description": "Seconds between two numbers, at most 1"},
        ),
        "annotations": READS,
    },
    {
        "name": "forget",
        "description": "Would forget everything, if there were anything. Says of itself that it writes.",
        "inputSchema": schema([]),
        "annotations": {"readOnlyHint": False, "destructiveHint": True},
    },
]


class Refusal(Exception):
    """A request that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Server:
    """One conversation. Each call has a thread of its own, so that it can be cancelled and pinged past."""

    tools = _TOOLS
    info = _INFO
    instructions = _INSTRUCTIONS

    def __init__(self, write: Callable[[Json], None], *, legacy: bool = False) -> None:
        self._write = write
        self._legacy = legacy
        self._lock = threading.Lock()
        self._calls: dict[object, threading.Event] = {}

    def receive(self, message: object) -> None:
        """Take in one message; answer it now or, for a call, when it is done."""
        asked = json_object(message)
        method, id_, params = asked.get("method"), asked.get("id"), json_object(asked.get("params"))
        if method == "notifications/cancelled":
            cancelled = self._calls.get(params.get("requestId"))
            if cancelled is not None:
                cancelled.set()
        elif id_ is not None and method == "tools/call":
            stop = self._calls[id_] = threading.Event()
            threading.Thread(target=self._answer, args=(id_, method, params, stop), daemon=True).start()
        elif id_ is not None:
            self._answer(id_, str(method), params, threading.Event())

    def _answer(self, id_: object, method: str, params: Json, stop: threading.Event) -> None:
        try:
            result = self._result(method, params, stop)
        except Refusal as refusal:
            error: Json = {"code": refusal.code, "message": str(refusal)}
            if refusal.data is not None:
                error["data"] = refusal.data
            self.send({"jsonrpc": "2.0", "id": id_, "error": error})
        else:
            if not stop.is_set():
                self.send({"jsonrpc": "2.0", "id": id_, "result": result})
        finally:
            self._calls.pop(id_, None)

    def send(self, message: Json) -> None:
        """Send one message."""
        with self._lock:
            self._write(message)

    def _result(self, method: str, params: Json, stop: threading.Event) -> Json:
        modern = not self._legacy and self._is_modern(method, params)
        if method == "initialize":
            asked = params.get("protocolVersion")
            version = asked if asked in _LEGACY else _LEGACY[0]
            offer: Json = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": self.info}
            return {**offer, "instructions": self.instructions}
        if method == "server/discover" and modern:
            offer = {"supportedVersions": [_MODERN, *_LEGACY], "capabilities": {"tools": {}}}
            return self._complete(
                {**offer, "instructions": self.instructions, "ttlMs": 60_000, "cacheScope": "public"}
            )
        if method == "ping":
            return {}
        if method == "tools/list":
            listed: Json = {"tools": self.tools}
            return self._complete({**listed, "ttlMs": 60_000, "cacheScope": "public"}) if modern else listed
        if method == "tools/call":
            result = self.call(params, stop, modern)
            return self._complete(result) if modern and "resultType" not in result else result
        raise Refusal(-32601, "Method not found")

    def _complete(self, result: Json) -> Json:
        return {**result, "resultType": "complete", "_meta": {f"{_META}serverInfo": self.info}}

    def _is_modern(self, method: str, params: Json) -> bool:
        version = json_object(params.get("_meta")).get(f"{_META}protocolVersion")
        if version is None:
            return method == "server/discover"
        if version != _MODERN:
            supported = {"supported": [_MODERN], "requested": version}
            raise Refusal(-32022, "Unsupported protocol version", supported)
        return True

    def call(self, params: Json, stop: threading.Event, modern: bool) -> Json:
        """Call a tool. Raises Refusal where there is no such."""
        arguments = json_object(params.get("arguments"))
        token = json_object(params.get("_meta")).get("progressToken")
        match params.get("name"):
            case "weekday":
                return _weekday(arguments.get("date"))
            case "count":
                return self._count(arguments, token, stop)
            case "forget":
                return text_result("There was nothing to forget.")
            case name:
                raise Refusal(-32602, f"Unknown tool: {name}")

    def _count(self, arguments: Json, token: object, stop: threading.Event) -> Json:
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


def json_object(value: object) -> Json:
    """What should be an object; an empty one where it is none."""
    return cast("Json", value) if isinstance(value, dict) else {}


def _weekday(date: object) -> Json:
    try:
        day = datetime.date.fromisoformat(str(date))
    except ValueError:
        return text_result(f"{str(date)[:40]!r} is no date such as 2026-07-28.", error=True)
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    return text_result(f"{day} is a {names[day.weekday()]}.")


def text_result(text: str, *, error: bool = False) -> Json:
    result: Json = {"content": [{"type": "text", "text": text}]}
    return {**result, "isError": True} if error else result


def main() -> None:
    """Be this server."""
    serve(Server)


def serve(kind: type[Server]) -> None:
    """Speak over the standard streams until the input ends."""

    def write(message: Json) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    server = kind(write, legacy="--legacy" in sys.argv[1:])
    for line in sys.stdin:
        try:
            message = json.loads(line)
        except ValueError:
            unread = {"code": -32700, "message": "Parse error"}
            write({"jsonrpc": "2.0", "id": None, "error": unread})
        else:
            server.receive(message)


if __name__ == "__main__":
    main()
