"""Problem details (RFC 9457): every error that leaves the API is one, whatever it was before."""

from __future__ import annotations

import http
import logging
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolyard.accounts.errors import Invalid as InvalidPerson
from toolyard.accounts.errors import NameTaken
from toolyard.errors import AgentsError, ApprovalNeeded, ConfigError, RpcError, ServerError, ToolyardError
from toolyard.registry.errors import Invalid, Taken
from toolyard.results.readable_json import readable
from toolyard.web.error_table import PREFIX, kind_of

__all__ = [
    "PROBLEM_JSON",
    "AsPage",
    "FieldProblem",
    "ProblemDetails",
    "Unexpected",
    "describe",
    "expected_response",
    "handle_problems",
    "respond",
]

log = logging.getLogger("toolyard.web")

PROBLEM_JSON = "application/problem+json"


class FieldProblem(BaseModel):
    """One field that cannot be used."""

    field: str = Field(description="The path of the field, its steps parted by dots; empty for the whole.")
    message: str
    hint: str | None = None


class ProblemDetails(BaseModel):
    """What went wrong, and what to do next."""

    type: str = Field(description="A stable name of the kind of problem, for programs.")
    title: str = Field(description="The kind of problem, in a few words.")
    status: int = Field(description="The HTTP status.", ge=400, le=599)
    detail: str = Field(description="What happened, in one sentence.")
    hint: str | None = Field(default=None, description="What to do next.")
    errors: list[FieldProblem] = Field(
        default_factory=list[FieldProblem], description="The fields that cannot be used, all of them."
    )
    server: str | None = Field(default=None, description="The server that failed, where one did.")
    code: int | None = Field(default=None, description="The server's own error code, where it gave one.")
    data: str | None = Field(default=None, description="What the server sent with its error, as JSON text.")
    approval: str | None = Field(
        default=None, description="The page where a call that needs an approval gets it; then call again."
    )
    id: str | None = Field(default=None, description="Where to find an unexpected error in the log.")


def describe(error: Exception) -> tuple[ProblemDetails, dict[str, str]]:
    """An expected error as a problem, and the headers that go with it."""
    if isinstance(error, ToolyardError):
        return _of_ours(error)
    if isinstance(error, RequestValidationError):
        return _of_validation(error), {}
    if isinstance(error, HTTPException):
        return _of_status(error), dict(error.headers or {})
    raise TypeError(f"{type(error).__name__} is not expected") from error


def respond(problem: ProblemDetails, headers: Mapping[str, str] | None = None) -> Response:
    """The problem as a response."""
    body = orjson.dumps(problem.model_dump(exclude_none=True))
    return Response(body, problem.status, headers, media_type=PROBLEM_JSON)


AsPage: TypeAlias = Callable[[Request, ProblemDetails], Response | None]
"""Makes a page of a problem where a person in a browser asked; None where it was a program."""


def handle_problems(app: FastAPI, as_page: AsPage) -> None:
    """Answer every expected error of the application as a problem, or as a page."""

    async def handle(request: Request, error: Exception) -> Response:
        response = expected_response(request, error, as_page)
        if response.status_code == 405:
            response.headers["Allow"] = ", ".join(_methods(app, request.scope["path"]))
        return response

    for expected in (ToolyardError, RequestValidationError, HTTPException):
        app.add_exception_handler(expected, handle)


def expected_response(request: Request, error: Exception, as_page: AsPage) -> Response:
    """Return the response that an expected error stands for: a redirect, a problem, or a page."""
    if isinstance(error, HTTPException) and error.status_code < 400:
        return Response(status_code=error.status_code, headers=error.headers)
    problem, headers = describe(error)
    if problem.status >= 500:
        log.warning("%s %s: %s", request.method, request.url.path, problem.detail)
    return answer(request, problem, as_page, headers)


def _methods(app: FastAPI, path: str) -> list[str]:
    """What can be done with a path. Each method is a route of its own, and one alone knows only itself."""
    fitting = [
        each for each in iter_route_contexts(app.routes) if each.methods and each.path_regex.match(path)
    ]
    # One that fits as well, but stands behind the first, is never reached.
    found = [each.methods or set[str]() for each in fitting if each.path == fitting[0].path]
    return sorted(set[str]().union(*found))


def answer(
    request: Request, problem: ProblemDetails, as_page: AsPage, headers: Mapping[str, str] | None = None
) -> Response:
    """The problem, in the form that whoever asked can use."""
    page = as_page(request, problem)
    if page is None:
        return respond(problem, headers)
    page.headers.update(headers or {})
    return page


class Unexpected:
    """Catches what nobody expected: the log gets the trace, the caller an id to find it by."""

    def __init__(self, app: ASGIApp, as_page: AsPage) -> None:
        self._app = app
        self._as_page = as_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            problem = unexpected(error, f"{scope['method']} {scope['path']}")
            if begun:
                # Half an answer must not look like a whole one: the server breaks the connection off.
                raise
            await answer(Request(scope), problem, self._as_page)(scope, receive, send)


def unexpected(error: Exception, where: str) -> ProblemDetails:
    """Log an error that is a mistake of ours; what the caller may know of it."""
    id_ = secrets.token_hex(6)
    log.error("unexpected error %s at %s", id_, where, exc_info=error)
    return ProblemDetails(
        type=f"{PREFIX}unexpected",
        title="Unexpected error",
        status=500,
        detail="something went wrong inside Toolyard",
        hint=f"the log has more under the id {id_}",
        id=id_,
    )


# What each error says.


def _of_ours(error: ToolyardError) -> tuple[ProblemDetails, dict[str, str]]:
    kind, fields = kind_of(error), _fields(error)
    problem = ProblemDetails(
        type=PREFIX + kind.word,
        title=kind.title,
        status=kind.status,
        detail=_detail(error),
        hint=error.hint or next((each.hint for each in fields if each.hint), None),
        errors=fields,
        server=(error.server or None) if isinstance(error, ServerError) else None,
        code=error.code if isinstance(error, RpcError) else None,
        data=readable(error.data) if isinstance(error, RpcError) and error.data is not None else None,
        approval=error.link if isinstance(error, ApprovalNeeded) else None,
    )
    headers: dict[str, str] = {}
    if (seconds := getattr(error, "retry_after", None)) is not None:
        headers["Retry-After"] = str(max(1, math.ceil(seconds)))
    if kind.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="toolyard"'
    return problem, headers


def _detail(error: ToolyardError) -> str:
    """What happened, in one line: what is wrong with each field stands with the field."""
    if isinstance(error, Invalid | InvalidPerson | ConfigError | AgentsError):
        return "; ".join(
            f"{each.path}: {each.message}" if each.path else each.message for each in error.problems
        )
    return error.cause


def _fields(error: ToolyardError) -> list[FieldProblem]:
    if isinstance(error, Invalid | InvalidPerson | ConfigError | AgentsError):
        return [
            FieldProblem(field=each.path, message=each.message, hint=each.hint) for each in error.problems
        ]
    if isinstance(error, Taken):
        return [FieldProblem(field=error.field, message=error.cause, hint=error.hint)]
    if isinstance(error, NameTaken):
        return [FieldProblem(field="name", message=error.cause, hint=error.hint)]
    return []


def _of_validation(error: RequestValidationError) -> ProblemDetails:
    found = [_field(each) for each in cast("Sequence[dict[str, Any]]", error.errors())]
    places = ", ".join(each.field for each in found if each.field)
    return ProblemDetails(
        type=f"{PREFIX}invalid",
        title="A field cannot be used",
        status=422,
        detail=f"what was sent cannot be used: {places}" if places else "what was sent cannot be used",
        errors=found,
    )


def _field(error: Mapping[str, Any]) -> FieldProblem:
    """Never with what was sent: it may be a secret."""
    place = [str(step) for step in error["loc"]]
    if error["type"] == "json_invalid":
        return FieldProblem(field="", message=f"no valid JSON: {error['ctx']['error']}")
    return FieldProblem(field=".".join(place[1:] or place), message=str(error["msg"]))


_HINTS = {
    405: "the OpenAPI document lists what each address takes: /api/v1/openapi.json",
    404: "the OpenAPI document lists what there is: /api/v1/openapi.json",
}


def _of_status(error: HTTPException) -> ProblemDetails:
    phrase = http.HTTPStatus(error.status_code).phrase
    return ProblemDetails(
        type="about:blank",
        title=phrase,
        status=error.status_code,
        detail=str(error.detail) or phrase,
        hint=_HINTS.get(error.status_code),
    )
