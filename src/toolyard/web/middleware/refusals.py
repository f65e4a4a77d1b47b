"""Responses of middleware to refused requests, as problem details or plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import PlainTextResponse, Response
from starlette.types import Scope

from toolyard.web.problem_details import PROBLEM_TYPE_PREFIX, ProblemDetails, build_problem_response

__all__ = ["RequestRefusal", "build_refusal_response"]


class RequestRefusal(NamedTuple):
    """Status, problem type and texts of a refusal."""

    status: int
    type_suffix: str
    title: str
    detail: str
    hint: str


def build_refusal_response(
    refusal: RequestRefusal, scope: Scope, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response to a refused request: plain text for pages, problem details otherwise."""
    if scope["path"].startswith("/ui"):
        text = f"{refusal.title}.\n\n{refusal.detail}\nhint: {refusal.hint}\n"
        return PlainTextResponse(text, refusal.status, headers)
    problem = ProblemDetails(
        type=PROBLEM_TYPE_PREFIX + refusal.type_suffix,
        title=refusal.title,
        status=refusal.status,
        detail=refusal.detail,
        hint=refusal.hint,
    )
    return build_problem_response(problem, headers)
