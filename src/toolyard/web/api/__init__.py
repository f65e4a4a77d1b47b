"""The API: JSON over the same services as the pages."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.routing import APIRoute

from toolyard.web.api import audit, document, events, instances, servers, status, tokens, tools, users

__all__ = ["router"]


def _operation_id(route: APIRoute) -> str:
    return route.name


router = APIRouter(generate_unique_id_function=_operation_id)
for _each in (status, servers, instances, tools, tokens, users, audit, events, document):
    router.include_router(_each.router)
