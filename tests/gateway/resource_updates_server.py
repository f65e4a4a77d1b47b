"""A server behind HTTP whose resources change, of either era, that can be restarted on its address."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from typing import Any

import aiohttp.web

__all__ = ["ResourceUpdatesServer"]

META = "io.modelcontextprotocol"
OFFERS = {"tools": {}, "resources": {"subscribe": True}}
INFO = {"name": "watched", "version": "1"}
LISTS = {
    "resources/list": {"resources": [{"uri": f"watched://{name}", "name": name} for name in ("a", "b")]},
    "resources/templates/list": {"resourceTemplates": []},
}


class ResourceUpdatesServer:
    """``await start()``, ``await stop()``, as often as you like: what it knew of its clients is gone then."""

    def __init__(self, *, modern: bool, sessions: bool = True) -> None:
        """Without ``sessions`` a legacy one gives its clients none, and has one stream for all."""
        self.modern = modern
        self._sessions = sessions
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/mcp"
        self._runner: aiohttp.web.AppRunner | None = None
        self._ids = itertools.count(1)
        self.subscribed: dict[str, set[str]] = {}
        """By session, or by stream in the modern era: the URIs."""
        self.refusals: list[int] = []
        """The statuses that the next who want a stream get instead."""
        self.tools: list[dict[str, Any]] = []
        self._streams: dict[str, asyncio.Queue[dict[str, Any]]] = {}

    async def start(self) -> None:
        app = aiohttp.web.Application()
        app.router.add_post("/mcp", self._modern if self.modern else self._legacy)
        app.router.add_get("/mcp", self._own)
        self._runner = aiohttp.web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await aiohttp.web.SockSite(self._runner, self._socket.dup()).start()

    async def stop(self) -> None:
        assert self._runner is not None
        runner, self._runner = self._runner, None
        await runner.cleanup()
        self.subscribed.clear()
        if not self._sessions:
            self.subscribed[""] = set()
        self._streams.clear()

    def close(self) -> None:
        self._socket.close()

    def watching(self, *uris: str) -> bool:
        """Whether somebody who would hear it watches exactly these."""
        return any(
            subscription == set(uris) and name in self._streams
            for name, subscription in self.subscribed.items()
        )

    def update(self, uri: str) -> None:
        """A resource changed: tell everyone who watches it."""
        for name, uris in self.subscribed.items():
            if uri in uris and name in self._streams:
                meta = {"_meta": {f"{META}/subscriptionId": int(name)}} if self.modern else {}
                note = {"method": "notifications/resources/updated", "params": {"uri": uri, **meta}}
                self._streams[name].put_nowait({"jsonrpc": "2.0", **note})

    async def _legacy(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        message = await request.json()
        method, params = message["method"], message.get("params") or {}
        session = request.headers.get("Mcp-Session-Id", "")
        if method == "initialize":
            session = f"session-{next(self._ids)}" if self._sessions else ""
            self.subscribed.setdefault(session, set())
            version = params["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": OFFERS, "serverInfo": INFO}
            return _answer(message, result, {"Mcp-Session-Id": session} if session else None)
        if session not in self.subscribed:
            status = 404 if session else 400
            return aiohttp.web.json_response({"error": "no such session"}, status=status)
        if "id" not in message:
            return aiohttp.web.Response(status=202)
        if method == "resources/subscribe":
            self.subscribed[session].add(params["uri"])
        elif method == "resources/unsubscribe":
            self.subscribed[session].discard(params["uri"])
        return _answer(message, self._listed(method))

    async def _own(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        session = request.headers.get("Mcp-Session-Id", "")
        if self.refusals:
            return aiohttp.web.Response(status=self.refusals.pop(0))
        if self.modern or session not in self.subscribed:
            return aiohttp.web.Response(status=405 if self.modern else 404)
        return await self._stream(request, session)

    async def _modern(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        message = await request.json()
        method, params = message["method"], message["params"]
        if method == "subscriptions/listen":
            name, uris = str(next(self._ids)), params["notifications"].get("resourceSubscriptions", [])
            self.subscribed[name] = set(uris)
            acknowledgement = {
                "notifications": params["notifications"],
                "_meta": {f"{META}/subscriptionId": int(name)},
            }
            note = {"method": "notifications/subscriptions/acknowledged", "params": acknowledgement}
            return await self._stream(request, name, {"jsonrpc": "2.0", **note})
        result = {"resultType": "complete", **self._listed(method)}
        if method == "server/discover":
            result |= {"supportedVersions": ["2026-07-28"], "capabilities": OFFERS, "serverInfo": INFO}
        return _answer(message, result)

    def _listed(self, method: str) -> dict[str, Any]:
        return {"tools": self.tools} if method == "tools/list" else LISTS.get(method, {})

    async def _stream(
        self, request: aiohttp.web.Request, name: str, *first: dict[str, Any]
    ) -> aiohttp.web.StreamResponse:
        response = aiohttp.web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for message in first:
            queue.put_nowait(message)
        self._streams[name] = queue
        try:
            while True:
                await response.write(f"data: {json.dumps(await queue.get())}\n\n".encode())
        finally:
            self._streams.pop(name, None)


def _answer(
    message: Any, result: dict[str, Any], headers: dict[str, str] | None = None
) -> aiohttp.web.Response:
    body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    return aiohttp.web.json_response(body, headers=headers)
