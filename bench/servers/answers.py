"""What the benchmark's server answers, in both eras of MCP and for both transports.

All that can be is made beforehand, so that the server costs as little as possible beside its client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import orjson

from servers.tools import big_text, definitions

__all__ = ["ERAS", "Answers", "Parts", "modern_version"]

Parts = tuple[bytes, ...]
"""The bytes of an answer. A large one comes in parts, so that no copy of it is made."""

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
ERAS = ("both", "modern", "legacy")

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
SERVER_INFO = {"name": "bench", "version": "1"}
STAMP = {"_meta": {"io.modelcontextprotocol/serverInfo": SERVER_INFO}}
CAPABILITIES = {"tools": {"listChanged": True}}

INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, UNSUPPORTED_VERSION = -32600, -32601, -32602, -32022


def modern_version(message: dict[str, Any]) -> str | None:
    """The protocol version that a modern request names; None for a legacy message."""
    params = message.get("params")
    meta = params.get("_meta") if params else None
    return meta.get(VERSION_KEY) if meta else None


class Answers:
    """Answers JSON-RPC messages. Holds no state but the prepared bytes and the count of methods seen."""

    def __init__(self, tools: int = 0, era: str = "both", bigs: Iterable[int] = ()) -> None:
        self.era = era
        self.seen: Counter[str] = Counter()
        self.bigs = {megabytes: orjson.dumps(big_text(megabytes)) for megabytes in bigs}
        tool_list = definitions(tools)
        self.legacy_list = orjson.dumps({"tools": tool_list})
        self.modern_list = orjson.dumps(
            {"resultType": "complete", "tools": tool_list, "ttlMs": 0, "cacheScope": "public"} | STAMP
        )
        versions = [MODERN] if era == "modern" else [MODERN, *LEGACY]
        self.discovery = orjson.dumps(
            {
                "resultType": "complete",
                "supportedVersions": versions,
                "capabilities": CAPABILITIES,
                "ttlMs": 3_600_000,
                "cacheScope": "public",
            }
            | STAMP
        )
        self.stamp = orjson.dumps(STAMP)[1:-1]

    def answer(self, message: dict[str, Any]) -> tuple[int, Parts]:
        """HTTP status and body for one message; a notification has no body (202)."""
        method = message.get("method", "")
        self.seen[method] += 1
        number = message.get("id")
        if number is None:
            return 202, ()
        version = modern_version(message)
        if version is not None and self.era != "legacy":
            return self._modern(message, method, orjson.dumps(number), version)
        if self.era == "modern":
            only = f"only {MODERN} is spoken here"
            return _error(400, number, UNSUPPORTED_VERSION, only, supported=[MODERN])
        return self._legacy(message, method, orjson.dumps(number))

    def acknowledged(self, message: dict[str, Any]) -> bytes:
        """The first message on the stream of a ``subscriptions/listen`` request: tools are all there is."""
        notifications = message["params"].get("notifications", {})
        return orjson.dumps(
            {
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": {
                    "_meta": {SUBSCRIPTION_KEY: message["id"]},
                    "notifications": {"toolsListChanged": True}
                    if notifications.get("toolsListChanged")
                    else {},
                },
            }
        )

    def _modern(self, message: dict[str, Any], method: str, number: bytes, version: str) -> tuple[int, Parts]:
        if version != MODERN:
            version_data = {"supported": [MODERN, *LEGACY], "requested": version}
            cause = "Unsupported protocol version"
            return _error(400, message["id"], UNSUPPORTED_VERSION, cause, **version_data)
        if method == "tools/call":
            return self._call(message, number, b'{"resultType":"complete",' + self.stamp + b",")
        if method == "tools/list":
            return 200, _result(number, self.modern_list)
        if method == "server/discover":
            return 200, _result(number, self.discovery)
        return _error(404, message["id"], METHOD_NOT_FOUND, f"Method not found: {method}")

    def _legacy(self, message: dict[str, Any], method: str, number: bytes) -> tuple[int, Parts]:
        if method == "tools/call":
            return self._call(message, number, b"{")
        if method == "tools/list":
            return 200, _result(number, self.legacy_list)
        if method == "initialize":
            requested_version = message["params"].get("protocolVersion")
            result = {
                "protocolVersion": requested_version if requested_version in LEGACY else LEGACY[0],
                "capabilities": CAPABILITIES,
                "serverInfo": SERVER_INFO,
            }
            return 200, _result(number, orjson.dumps(result))
        if method == "ping":
            return 200, _result(number, b"{}")
        if method == "server/discover":
            return _error(400, message["id"], INVALID_REQUEST, "Bad Request: not initialized")
        return _error(200, message["id"], METHOD_NOT_FOUND, f"Method not found: {method}")

    def _call(self, message: dict[str, Any], number: bytes, opening: bytes) -> tuple[int, Parts]:
        params = message["params"]
        name, arguments = params.get("name"), params.get("arguments") or {}
        if name == "echo":
            text = orjson.dumps(arguments["text"])
        elif name == "big":
            before, after = _result(number, opening + b'"content":[{"type":"text","text":?}]}')[0].split(b"?")
            return 200, (before, self._big(arguments["mb"]), after)
        elif name == "seen":
            text = orjson.dumps("\n".join(f"{method} {count}" for method, count in self.seen.items()))
        else:
            return _error(200, message["id"], INVALID_PARAMS, f"Unknown tool: {name}")
        return 200, _result(number, b'%b"content":[{"type":"text","text":%b}]}' % (opening, text))

    def _big(self, megabytes: int) -> bytes:
        if megabytes not in self.bigs:
            self.bigs[megabytes] = orjson.dumps(big_text(megabytes))
        return self.bigs[megabytes]


def _result(number: bytes, result: bytes) -> Parts:
    return (b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (number, result),)


def _error(status: int, number: object, code: int, message: str, **data: object) -> tuple[int, Parts]:
    error: dict[str, Any] = {"code": code, "message": message}
    if data:
        error["data"] = data
    return status, (orjson.dumps({"jsonrpc": "2.0", "id": number, "error": error}),)
