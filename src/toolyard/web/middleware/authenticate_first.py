"""Authentication by the request head, before any of the body is read.

Without this, clients without an account could make the server buffer large bodies.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolyard.errors import ToolyardError
from toolyard.web.access.dependencies import authenticate_by_headers, authenticate_request, is_page_request
from toolyard.web.access.request_context import get_request_context
from toolyard.web.middleware.request_body import (
    BodyRefused,
    ClientDisconnected,
    RequestBody,
    RequestBodyLimits,
    StreamedBody,
    has_body,
    is_public_form,
)
from toolyard.web.problem_details import ErrorPageFor, build_error_response, build_refusal_response

__all__ = ["AuthenticateFirst"]


class AuthenticateFirst:
    """Read request bodies for the API and the pages, of authenticated users and of public forms only.

    Other requests are answered at once, before their body has arrived. The user is stored in the request, so
    that routes do not authenticate again.
    """

    def __init__(self, app: ASGIApp, bodies: RequestBodyLimits, as_page: ErrorPageFor) -> None:
        self._app = app
        self._body_limits = bodies
        self._as_page = as_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not has_body(scope):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if not (is_page_request(request) or scope["path"].startswith("/api/")):
            # Other paths take no body. The server discards it as it arrives.
            await self._app(scope, _receive_empty_body, send)
            return
        if not is_public_form(scope["path"]):
            try:
                # For pages without the CSRF check, because the token may be in the body.
                request_user = await (
                    authenticate_by_headers(request)
                    if is_page_request(request)
                    else authenticate_request(request)
                )
            except (ToolyardError, HTTPException) as error:
                response = await build_error_response(request, error, self._as_page)
                await response(scope, receive, send)
                return
            get_request_context(scope).user_id = request_user.user.id
        upload_limit = self._body_limits.get_upload_limit(scope)
        body = (
            RequestBody(self._body_limits, scope, receive)
            if upload_limit is None
            else StreamedBody(self._body_limits, scope, receive, upload_limit)
        )
        try:
            await body.read()
            await self._app(scope, body.receive, send)
        except ClientDisconnected:
            return
        except BodyRefused as refused:
            # From here, or from a route that reads an upload, which responds at its end.
            await build_refusal_response(refused.problem, scope, refused.headers)(scope, receive, send)
        finally:
            body.release()


async def _receive_empty_body() -> Message:
    """Replace the body of a request to a path that takes none."""
    return {"type": "http.request", "body": b"", "more_body": False}
