"""Responses to HEAD: those to GET, without the body."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HeadRequests"]


class HeadRequests:
    """ASGI middleware that handles a HEAD request as a GET request, and drops the body of the response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        started = asyncio.Event()
        requests = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive_disconnect() -> Message:
            # The response needs no more than its start: an event stream would never end.
            if requests:
                return requests.pop()
            await started.wait()
            return {"type": "http.disconnect"}

        async def send_start(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                started.set()

        await self._app({**scope, "method": "GET"}, receive_disconnect, send_start)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
