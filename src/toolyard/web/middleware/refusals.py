"""Refusals that are sent before a route is reached, as problem details or as plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import PlainTextResponse, Response
from starlette.types import Scope

from toolyard.web.error_table import PREFIX
from toolyard.web.problem_details import ProblemDetails, respond

__all__ = ["Refusal", "refusal_response"]


class Refusal(NamedTuple):
    """The status, the stable name, and the texts of a refusal."""

    status: int
    word: str
    title: str
    detail: str
    hint: str


def refusal_response(refusal: Refusal, scope: Scope, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response to a request that is refused: plain text for pages, a problem for programs."""
    if scope["path"].startswith("/ui"):
        text = f"{refusal.title}.\n\n{refusal.detail}\nhint: {refusal.hint}\n"
        return PlainTextResponse(text, refusal.status, headers)
    problem = ProblemDetails(
        type=PREFIX + refusal.word,
        title=refusal.title,
        status=refusal.status,
        detail=refusal.detail,
        hint=refusal.hint,
    )
    return respond(problem, headers)
