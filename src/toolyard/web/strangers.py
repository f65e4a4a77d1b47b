"""Who asks is known before what they bring is read: to take a long body apart costs more than to send it."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from toolyard.errors import ToolyardError
from toolyard.web.bodies import has_body
from toolyard.web.problems import describe, respond
from toolyard.web.who import recognise

__all__ = ["KnownFirst"]


class KnownFirst:
    """Turns strangers away from the API where they bring something. Those who may come in are not looked up
    again by the route, which says what they may do there."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/api/") and has_body(scope):
            try:
                await recognise(Request(scope))
            except (ToolyardError, HTTPException) as error:
                await respond(*describe(error))(scope, receive, send)
                return
        await self._app(scope, receive, send)
