"""The ASGI application: all routes and the middleware in front of them."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import FastAPI, Request, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from toolyard import __version__
from toolyard.web import api, ui
from toolyard.web.access.dependencies import is_page_request
from toolyard.web.api.openapi import build_openapi_document
from toolyard.web.gateway_mount import is_gateway_request
from toolyard.web.middleware.authenticate_first import AuthenticateFirst
from toolyard.web.middleware.request_guard import RequestGuard
from toolyard.web.problem_details import (
    PROBLEM_TYPE_PREFIX,
    ProblemDetails,
    UnexpectedErrorMiddleware,
    add_error_handlers,
)
from toolyard.web.protected_resource import router as resource
from toolyard.web.server.health import router as health
from toolyard.web.server.metrics import MetricsMiddleware
from toolyard.web.services import Services
from toolyard.web.ui.components.error_pages import render_error_page
from toolyard.web.ui.components.render import STATIC_FOLDER, static_url

__all__ = ["VersionedStaticFiles", "make_app"]


class VersionedStaticFiles(StaticFiles):
    """Static files of the pages, cached for a year if the URL names the current version.

    Files requested without the right ``?v=`` are revalidated each time, so that an old page never pins an old
    script.
    """

    def __init__(self) -> None:
        super().__init__(directory=STATIC_FOLDER)

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if response.status_code in (200, 304):
            versions = parse_qs(scope["query_string"].decode("latin-1")).get("v")
            is_current = versions and static_url(path).endswith(f"?v={versions[0]}")
            response.headers["Cache-Control"] = (
                "public, max-age=31536000, immutable" if is_current else "no-cache"
            )
        return response


class _Application(FastAPI):
    """FastAPI application that dispatches gateway requests before routing.

    Gateway requests are frequent. They pass the same guard as all others, but skip FastAPI's routing and
    dependency handling.
    """

    gateway: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if is_gateway_request(scope):
            scope["app"] = self
            await self.gateway(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def make_app(services: Services) -> FastAPI:
    """Create the application. The caller opens and closes the services."""
    app = _Application(
        title="Toolyard",
        version=__version__,
        # We serve our own OpenAPI document; FastAPI's documentation pages load scripts from other hosts.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    app.include_router(health)
    app.include_router(resource)
    app.include_router(api.router, prefix="/api/v1")
    app.include_router(ui.router)
    app.mount("/static", VersionedStaticFiles())
    app.openapi = lambda: build_openapi_document(app)
    add_error_handlers(app, _render_error_page)
    # Middleware added last runs first.
    app.add_middleware(AuthenticateFirst, bodies=services.body_limits, as_page=_render_error_page)
    app.add_middleware(UnexpectedErrorMiddleware, as_page=_render_error_page)
    app.add_middleware(RequestGuard, services=services)
    app.add_middleware(MetricsMiddleware, metrics=services.metrics)
    app.gateway = MetricsMiddleware(
        RequestGuard(
            UnexpectedErrorMiddleware(services.mcp, _render_error_page), services, serves_pages=False
        ),
        services.metrics,
    )
    return app


def _render_error_page(request: Request, problem: ProblemDetails) -> Response | None:
    if not is_page_request(request):
        return None
    title = problem.title if problem.type == f"{PROBLEM_TYPE_PREFIX}limit-reached" else None
    return render_error_page(request, problem.status, problem.detail, problem.hint, title=title)
