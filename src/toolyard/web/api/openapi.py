"""The OpenAPI document of the API."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse

from toolyard.types.version import __version__
from toolyard.web.problem_details import ProblemDetails
from toolyard.web.routes import Routes, list_routes

__all__ = ["build_openapi_document", "router"]

router = Routes()

_API_DESCRIPTION = """The functions of the pages, for programs.

Send an API token as `Authorization: Bearer ty_…`. Create one on the *API tokens* page, or with
`POST /api/v1/tokens` from a signed-in browser. With `people_mode` none, no token is needed. Errors are
problem details (RFC 9457): `type` is stable, `detail` explains the error, and `hint` suggests the next step.
Secrets are accepted but never returned.
"""
_OPENAPI_TAGS = [
    {"name": "status", "description": "Status of servers."},
    {"name": "servers", "description": "The registry: servers added by admins."},
    {"name": "instances", "description": "Your connections to registry servers."},
    {"name": "tools", "description": "Tools that you may use."},
    {"name": "chats", "description": "Chats with models, and tools that you run yourself."},
    {"name": "models", "description": "Administration of models, for admins."},
    {"name": "approvals", "description": "Calls that need your approval, and standing approvals."},
    {"name": "tokens", "description": "Your API tokens."},
    {"name": "people", "description": "Your account and sessions; for admins, all users."},
    {"name": "audit", "description": "The audit log, for admins."},
]
_PROBLEM_EXAMPLE = {
    "type": "urn:toolyard:problem:taken",
    "title": "The name is in use",
    "status": 409,
    "detail": "you have an instance with the slug 'github'",
    "hint": "choose another slug",
    "errors": [{"field": "slug", "message": "you have an instance with the slug 'github'"}],
}


def build_openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, built on first use."""
    if app.openapi_schema is None:
        document = get_openapi(
            title="Toolyard",
            version=__version__,
            summary="One place to connect, scope, authorise and watch MCP servers.",
            description=_API_DESCRIPTION,
            tags=_OPENAPI_TAGS,
            routes=[each.api_route for each in list_routes(app)],
        )
        # No route returns problem details as its declared model, so FastAPI omits their schema.
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        problem = ProblemDetails.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(problem.pop("$defs", {}))
        schemas["ProblemDetails"] = {**problem, "examples": [_PROBLEM_EXAMPLE]}
        document["components"]["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer", "description": "An API token."},
        }
        document["security"] = [{"token": []}]
        app.openapi_schema = document
    return app.openapi_schema


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """Return the OpenAPI document. It is public."""
    return JSONResponse(await asyncio.to_thread(build_openapi_document, request.app))
