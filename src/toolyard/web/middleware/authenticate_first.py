"""Identify the user by the head of a request before any of its body is read."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolyard.errors import ToolyardError
from toolyard.web.access.dependencies import identify, is_page, recognise
from toolyard.web.access.request_context import passage_of
from toolyard.web.middleware.refusals import refusal_response
from toolyard.web.middleware.request_body import (
    BodyRefused,
    Gone,
    RequestBodies,
    RequestBody,
    has_body,
    is_open_form,
)
from toolyard.web.problem_details import AsPage, expected_response

__all__ = ["KnownFirst"]


class KnownFirst:
    """Reads bodies for the API and the pages: those of known users, and the forms that anybody may send.

    Everybody else is answered while their body is still on its way. Routes do not look the user up again.
    """

    def __init__(self, app: ASGIApp, bodies: RequestBodies, as_page: AsPage) -> None:
        self._app = app
        self._bodies = bodies
        self._as_page = as_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not has_body(scope):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if not (is_page(request) or scope["path"].startswith("/api/")):
            await self._app(scope, _nothing, send)
            return
        if not is_open_form(scope["path"]):
            try:
                found = await (identify(request) if is_page(request) else recognise(request))
            except (ToolyardError, HTTPException) as error:
                await expected_response(request, error, self._as_page)(scope, receive, send)
                return
            passage_of(scope).owner = found.user.id
        body = RequestBody(self._bodies, scope, receive)
        try:
            try:
                await body.read()
            except Gone:
                return
            except BodyRefused as refused:
                await refusal_response(refused.refusal, scope, refused.headers)(scope, receive, send)
                return
            await self._app(scope, body.receive, send)
        finally:
            body.release()


async def _nothing() -> Message:
    """Stand in for the body of a request to a path that takes none."""
    return {"type": "http.request", "body": b"", "more_body": False}
