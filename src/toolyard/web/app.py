"""The application: every route, behind one guard."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from toolyard import __version__
from toolyard.web import api, ui
from toolyard.web.access.dependencies import is_page
from toolyard.web.api.openapi import document
from toolyard.web.gateway_mount import is_gateway
from toolyard.web.middleware.authenticate_first import KnownFirst
from toolyard.web.middleware.request_guard import Guard
from toolyard.web.problem_details import ProblemDetails, Unexpected, handle_problems
from toolyard.web.protected_resource import router as resource
from toolyard.web.server.health import router as health
from toolyard.web.server.metrics import Measured
from toolyard.web.services import Site
from toolyard.web.static_files import Static
from toolyard.web.ui.components.error_pages import failure_page

__all__ = ["make_app"]


class _Application(FastAPI):
    """Requests to the gateway pass the same guard, and nothing of what is done for routes: they are many."""

    gateway: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if is_gateway(scope):
            scope["app"] = self
            await self.gateway(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def make_app(site: Site) -> FastAPI:
    """The application that serves a site. The site is opened and closed by whoever made it."""
    app = _Application(
        title="Toolyard",
        version=__version__,
        # The document is ours, and a page that shows it would be loaded from elsewhere.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.site = site
    app.include_router(health)
    app.include_router(resource)
    app.include_router(api.router, prefix="/api/v1")
    app.include_router(ui.router)
    app.mount("/static", Static())
    app.openapi = lambda: document(app)
    handle_problems(app, _as_page)
    # The last one added is the first to see a request.
    app.add_middleware(KnownFirst, bodies=site.bodies, as_page=_as_page)
    app.add_middleware(Unexpected, as_page=_as_page)
    app.add_middleware(Guard, site=site)
    app.add_middleware(Measured, metrics=site.metrics)
    app.gateway = Measured(Guard(Unexpected(site.mcp, _as_page), site, pages=False), site.metrics)
    return app


def _as_page(request: Request, problem: ProblemDetails) -> Response | None:
    if not is_page(request):
        return None
    return failure_page(request, problem.status, problem.detail, problem.hint)
