"""Refusals that are sent before a route is reached, as problem details or as plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import PlainTextResponse, Response
from starlette.types import Scope

from toolyard.web.error_table import PROBLEM_TYPE_PREFIX
from toolyard.web.problem_details import ProblemDetails, build_problem_response

__all__ = ["RequestRefusal", "build_refusal_response"]


class RequestRefusal(NamedTuple):
    """The status, the stable name, and the texts of a refusal."""

    status: int
    type_suffix: str
    title: str
    detail: str
    hint: str


def build_refusal_response(
    refusal: RequestRefusal, scope: Scope, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response to a request that is refused: plain text for pages, a problem for programs."""
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
