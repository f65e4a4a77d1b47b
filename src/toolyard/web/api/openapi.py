"""The OpenAPI document: what the API takes and gives, said once."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse

from toolyard import __version__
from toolyard.web.problem_details import ProblemDetails

__all__ = ["build_openapi_document", "router"]

router = APIRouter()

_API_DESCRIPTION = """Everything that the pages do, for programs.

Send an API token as `Authorization: Bearer ty_…`; make one on the page *API tokens*, or with
`POST /api/v1/tokens` from a browser that is signed in. On a machine of one person (`people_mode` none) no
token is needed. Errors are problem details (RFC 9457): `type` is stable, `detail` says what happened, `hint`
what to do next. Secrets are taken and never given back.
"""
_OPENAPI_TAGS = [
    {"name": "status", "description": "How servers are."},
    {"name": "servers", "description": "The registry: servers that admins entered."},
    {"name": "instances", "description": "Your own connections to servers of the registry."},
    {"name": "tools", "description": "What you may see and call."},
    {"name": "chats", "description": "What you talk about with models, and tools that you run yourself."},
    {"name": "approvals", "description": "Calls that wait for your yes, and what you allowed ahead."},
    {"name": "tokens", "description": "API tokens of yours."},
    {"name": "people", "description": "Who you are; for admins, everybody."},
    {"name": "audit", "description": "What happened; for admins."},
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
    """The document, made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title="Toolyard",
            version=__version__,
            summary="One place to connect, scope, authorise and watch MCP servers.",
            description=_API_DESCRIPTION,
            tags=_OPENAPI_TAGS,
            routes=app.routes,
        )
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        problem = ProblemDetails.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(problem.pop("$defs", {}))
        schemas["ProblemDetails"] = {**problem, "examples": [_PROBLEM_EXAMPLE]}
        made["components"]["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer", "description": "An API token."},
        }
        made["security"] = [{"token": []}]
        app.openapi_schema = made
    return app.openapi_schema


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """The document itself; there is nothing secret in it."""
    return JSONResponse(build_openapi_document(request.app))
