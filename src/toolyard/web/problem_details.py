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
from toolyard.results.readable_json import to_readable_json
from toolyard.web.error_table import PROBLEM_TYPE_PREFIX, find_problem_kind

__all__ = [
    "PROBLEM_JSON",
    "ErrorPageFor",
    "FieldProblem",
    "ProblemDetails",
    "UnexpectedErrorMiddleware",
    "add_error_handlers",
    "build_error_response",
    "build_problem_response",
    "describe_error",
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


def describe_error(error: Exception) -> tuple[ProblemDetails, dict[str, str]]:
    """An expected error as a problem, and the headers that go with it."""
    if isinstance(error, ToolyardError):
        return _describe_toolyard_error(error)
    if isinstance(error, RequestValidationError):
        return _describe_validation_error(error), {}
    if isinstance(error, HTTPException):
        return _describe_http_exception(error), dict(error.headers or {})
    raise TypeError(f"{type(error).__name__} is not expected") from error


def build_problem_response(problem: ProblemDetails, headers: Mapping[str, str] | None = None) -> Response:
    """The problem as a response."""
    body = orjson.dumps(problem.model_dump(exclude_none=True))
    return Response(body, problem.status, headers, media_type=PROBLEM_JSON)


ErrorPageFor: TypeAlias = Callable[[Request, ProblemDetails], Response | None]
"""Makes a page of a problem where a person in a browser asked; None where it was a program."""


def add_error_handlers(app: FastAPI, as_page: ErrorPageFor) -> None:
    """Answer every expected error of the application as a problem, or as a page."""

    async def handle_error(request: Request, error: Exception) -> Response:
        response = build_error_response(request, error, as_page)
        if response.status_code == 405:
            response.headers["Allow"] = ", ".join(_list_allowed_methods(app, request.scope["path"]))
        return response

    for expected in (ToolyardError, RequestValidationError, HTTPException):
        app.add_exception_handler(expected, handle_error)


def build_error_response(request: Request, error: Exception, as_page: ErrorPageFor) -> Response:
    """Return the response that an expected error stands for: a redirect, a problem, or a page."""
    if isinstance(error, HTTPException) and error.status_code < 400:
        return Response(status_code=error.status_code, headers=error.headers)
    problem, headers = describe_error(error)
    if problem.status >= 500:
        log.warning("%s %s: %s", request.method, request.url.path, problem.detail)
    return build_page_or_problem(request, problem, as_page, headers)


def _list_allowed_methods(app: FastAPI, path: str) -> list[str]:
    """What can be done with a path. Each method is a route of its own, and one alone knows only itself."""
    fitting = [
        each for each in iter_route_contexts(app.routes) if each.methods and each.path_regex.match(path)
    ]
    # One that fits as well, but stands behind the first, is never reached.
    found = [each.methods or set[str]() for each in fitting if each.path == fitting[0].path]
    return sorted(set[str]().union(*found))


def build_page_or_problem(
    request: Request, problem: ProblemDetails, as_page: ErrorPageFor, headers: Mapping[str, str] | None = None
) -> Response:
    """The problem, in the form that whoever asked can use."""
    page = as_page(request, problem)
    if page is None:
        return build_problem_response(problem, headers)
    page.headers.update(headers or {})
    return page


class UnexpectedErrorMiddleware:
    """Catches what nobody expected: the log gets the trace, the caller an id to find it by."""

    def __init__(self, app: ASGIApp, as_page: ErrorPageFor) -> None:
        self._app = app
        self._as_page = as_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_and_note_start(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_start)
        except Exception as error:
            problem = log_unexpected_error(error, f"{scope['method']} {scope['path']}")
            if begun:
                # Half an answer must not look like a whole one: the server breaks the connection off.
                raise
            await build_page_or_problem(Request(scope), problem, self._as_page)(scope, receive, send)


def log_unexpected_error(error: Exception, location: str) -> ProblemDetails:
    """Log an error that is a mistake of ours; what the caller may know of it."""
    id_ = secrets.token_hex(6)
    log.error("unexpected error %s at %s", id_, location, exc_info=error)
    return ProblemDetails(
        type=f"{PROBLEM_TYPE_PREFIX}unexpected",
        title="Unexpected error",
        status=500,
        detail="something went wrong inside Toolyard",
        hint=f"the log has more under the id {id_}",
        id=id_,
    )


# What each error says.


def _describe_toolyard_error(error: ToolyardError) -> tuple[ProblemDetails, dict[str, str]]:
    kind, fields = find_problem_kind(error), _list_field_problems(error)
    problem = ProblemDetails(
        type=PROBLEM_TYPE_PREFIX + kind.type_suffix,
        title=kind.title,
        status=kind.status,
        detail=_format_detail(error),
        hint=error.hint or next((each.hint for each in fields if each.hint), None),
        errors=fields,
        server=(error.server or None) if isinstance(error, ServerError) else None,
        code=error.code if isinstance(error, RpcError) else None,
        data=to_readable_json(error.data) if isinstance(error, RpcError) and error.data is not None else None,
        approval=error.link if isinstance(error, ApprovalNeeded) else None,
    )
    headers: dict[str, str] = {}
    if (seconds := getattr(error, "retry_after", None)) is not None:
        headers["Retry-After"] = str(max(1, math.ceil(seconds)))
    if kind.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="toolyard"'
    return problem, headers


def _format_detail(error: ToolyardError) -> str:
    """What happened, in one line: what is wrong with each field stands with the field."""
    if isinstance(error, Invalid | InvalidPerson | ConfigError | AgentsError):
        return "; ".join(
            f"{each.path}: {each.message}" if each.path else each.message for each in error.problems
        )
    return error.cause


def _list_field_problems(error: ToolyardError) -> list[FieldProblem]:
    if isinstance(error, Invalid | InvalidPerson | ConfigError | AgentsError):
        return [
            FieldProblem(field=each.path, message=each.message, hint=each.hint) for each in error.problems
        ]
    if isinstance(error, Taken):
        return [FieldProblem(field=error.field, message=error.cause, hint=error.hint)]
    if isinstance(error, NameTaken):
        return [FieldProblem(field="name", message=error.cause, hint=error.hint)]
    return []


def _describe_validation_error(error: RequestValidationError) -> ProblemDetails:
    found = [_create_field_problem(each) for each in cast("Sequence[dict[str, Any]]", error.errors())]
    places = ", ".join(each.field for each in found if each.field)
    return ProblemDetails(
        type=f"{PROBLEM_TYPE_PREFIX}invalid",
        title="A field cannot be used",
        status=422,
        detail=f"what was sent cannot be used: {places}" if places else "what was sent cannot be used",
        errors=found,
    )


def _create_field_problem(error: Mapping[str, Any]) -> FieldProblem:
    """Never with what was sent: it may be a secret."""
    place = [str(step) for step in error["loc"]]
    if error["type"] == "json_invalid":
        return FieldProblem(field="", message=f"no valid JSON: {error['ctx']['error']}")
    return FieldProblem(field=".".join(place[1:] or place), message=str(error["msg"]))


_HINTS_BY_STATUS = {
    405: "the OpenAPI document lists what each address takes: /api/v1/openapi.json",
    404: "the OpenAPI document lists what there is: /api/v1/openapi.json",
}


def _describe_http_exception(error: HTTPException) -> ProblemDetails:
    phrase = http.HTTPStatus(error.status_code).phrase
    return ProblemDetails(
        type="about:blank",
        title=phrase,
        status=error.status_code,
        detail=str(error.detail) or phrase,
        hint=_HINTS_BY_STATUS.get(error.status_code),
    )
