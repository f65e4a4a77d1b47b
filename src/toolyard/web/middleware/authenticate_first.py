"""Authentication by the request head, before any of the body is read.

Without this, clients without an account could make the server buffer large bodies.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolyard.errors import ToolyardError
from toolyard.web.access.authentication import authenticate_by_headers, authenticate_request, is_page_request
from toolyard.web.access.request_context import REQUEST_CONTEXT_KEY
from toolyard.web.middleware import request_body
from toolyard.web.problem_details import ErrorPageFor, build_error_response, build_refusal_response

__all__ = ["AuthenticateFirst"]


class AuthenticateFirst:
    """Read request bodies for the API and the pages, of authenticated users and of public forms only.

    Other requests are answered at once, before their body has arrived. The user is stored in the request, so
    that routes do not authenticate again.
    """

    def __init__(self, app: ASGIApp, bodies: request_body.RequestBodyLimits, as_page: ErrorPageFor) -> None:
        self._app = app
        self._body_limits = bodies
        self._as_page = as_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not request_body.has_body(scope):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        is_page = is_page_request(request)
        if not (is_page or scope["path"].startswith("/api/")):
            # Other paths take no body. The server discards it as it arrives.
            await self._app(scope, _receive_empty_body, send)
            return
        if not request_body.is_public_form(scope["path"]):
            try:
                # For pages without the CSRF check, because the token may be in the body.
                request_user = await (
                    authenticate_by_headers(request) if is_page else authenticate_request(request)
                )
            except (ToolyardError, HTTPException) as error:
                response = await build_error_response(request, error, self._as_page)
                await response(scope, receive, send)
                return
            scope[REQUEST_CONTEXT_KEY].user_id = request_user.user.id
        upload_limit = self._body_limits.get_upload_limit(scope)
        body: request_body.RequestBody | request_body.StreamedBody
        if upload_limit is None:
            limit = request_body.get_body_limit(scope["path"])
            body = request_body.RequestBody(self._body_limits, scope, receive, limit)
        else:
            body = request_body.StreamedBody(self._body_limits, scope, receive, upload_limit)
        try:
            await body.read()
            await self._app(scope, body.receive, send)
        except request_body.ClientDisconnected:
            return
        except request_body.BodyRefused as refused:
            # From here, or from a route that reads an upload, which responds at its end.
            await build_refusal_response(refused.problem, scope, refused.headers)(scope, receive, send)
        finally:
            body.release()


async def _receive_empty_body() -> Message:
    """Replace the body of a request to a path that takes none."""
    return {"type": "http.request", "body": b"", "more_body": False}
