"""Problem details (RFC 9457): the response format of all API errors, and the table of error classes."""

from __future__ import annotations

import http
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import Scope

from toolyard import errors
from toolyard.accounts import errors as people
from toolyard.accounts.errors import Invalid as InvalidPerson
from toolyard.accounts.errors import NameTaken
from toolyard.agents.chat import errors as chat
from toolyard.agents.models import errors as model
from toolyard.auth import errors as auth
from toolyard.catalog.lock import errors as lock
from toolyard.errors import (
    AgentsError,
    ApprovalNeeded,
    ConfigError,
    Outdated,
    RpcError,
    ServerError,
    ToolRefused,
    ToolyardError,
)
from toolyard.policy.rules import DEFINITION_RULE_TITLE
from toolyard.registry import errors as registry
from toolyard.registry.errors import Invalid, Taken
from toolyard.results.readable_json import to_readable_json
from toolyard.store import errors as store
from toolyard.web.access.request_context import RESPONSE_STATUS_KEY
from toolyard.web.routes import list_routes

__all__ = [
    "PROBLEM_JSON",
    "PROBLEM_KINDS",
    "PROBLEM_TYPE_PREFIX",
    "ErrorPageFor",
    "FieldProblem",
    "ProblemDetails",
    "ProblemKind",
    "add_error_handlers",
    "build_error_response",
    "build_problem",
    "build_problem_response",
    "build_refusal_response",
    "build_unexpected_error_response",
    "describe_error",
    "find_problem_kind",
]


PROBLEM_TYPE_PREFIX = "urn:toolyard:problem:"
"""Prefix of the ``type`` of our problem details."""


class ProblemKind(NamedTuple):
    """HTTP representation of one class of errors."""

    status: int
    type_suffix: str
    title: str


PROBLEM_KINDS: dict[type[ToolyardError], ProblemKind] = {
    # Errors of the request.
    registry.Invalid: ProblemKind(422, "invalid", "Invalid input"),
    registry.Taken: ProblemKind(409, "taken", "The name is in use"),
    registry.Outdated: ProblemKind(409, "outdated", "The data has changed"),
    registry.NotFound: ProblemKind(404, "not-found", "Not found"),
    people.Invalid: ProblemKind(422, "invalid", "Invalid input"),
    people.NoSuchUser: ProblemKind(404, "not-found", "Not found"),
    people.NameTaken: ProblemKind(409, "taken", "The name is in use"),
    people.NotAllowed: ProblemKind(403, "not-allowed", "Not allowed"),
    people.SignInRefused: ProblemKind(401, "sign-in-refused", "Not signed in"),
    people.TooManySignIns: ProblemKind(429, "too-many-sign-ins", "Too many sign-ins"),
    chat.NoSuchChat: ProblemKind(404, "not-found", "Not found"),
    chat.ChatBusy: ProblemKind(409, "chat-busy", "The chat is busy"),
    chat.ChatChanged: ProblemKind(409, "chat-changed", "The data has changed"),
    chat.ChatQuotaExceeded: ProblemKind(409, "chat-quota-exceeded", "The storage quota for chats is used up"),
    errors.AttachmentTooLarge: ProblemKind(413, "too-long", "The file is too large"),
    errors.AttachmentRefused: ProblemKind(422, "attachment-refused", "The file cannot be attached"),
    chat.ChatError: ProblemKind(409, "chat-refused", "The chat does not allow this now"),
    lock.Outdated: ProblemKind(409, "outdated", "The data has changed"),
    lock.LockBroken: ProblemKind(409, "lock-broken", "The lock cannot be used"),
    lock.PinsUnavailable: ProblemKind(503, "pins-unavailable", "Stored tool definitions are unavailable"),
    lock.LockUnwritable: ProblemKind(409, "lock-unwritable", "The lock cannot be written"),
    model.NoSuchModel: ProblemKind(422, "no-such-model", "Unknown model"),
    errors.ToolRefused: ProblemKind(404, "tool-refused", "The tool is not available"),
    errors.ApprovalNeeded: ProblemKind(409, "approval-needed", "The call needs an approval"),
    errors.AgentsError: ProblemKind(404, "no-such-agent", "Unknown agent"),
    errors.ConfigError: ProblemKind(404, "no-such-bundle", "Unknown bundle"),
    errors.LimitReached: ProblemKind(409, "limit-reached", "A limit is reached"),
    errors.TooManyStreams: ProblemKind(429, "too-many-streams", "Too many event streams are open"),
    # Errors of an upstream server. Never 401 or 403, which would refer to the caller's own sign-in.
    errors.ServerError: ProblemKind(502, "server-error", "The server failed"),
    errors.Unreachable: ProblemKind(502, "unreachable", "The server cannot be reached"),
    errors.Throttled: ProblemKind(503, "throttled", "The server is busy"),
    errors.SessionLost: ProblemKind(502, "session-lost", "The server lost the session"),
    errors.SignInNeeded: ProblemKind(424, "sign-in-needed", "The server requires a sign-in"),
    errors.BadAnswer: ProblemKind(502, "bad-answer", "The server's response is not valid MCP"),
    errors.RpcError: ProblemKind(502, "rpc-error", "The server returned an error"),
    errors.CallTimeout: ProblemKind(504, "timeout", "The server did not respond in time"),
    errors.OutcomeUnknown: ProblemKind(502, "outcome-unknown", "The outcome of the call is unknown"),
    model.ModelError: ProblemKind(502, "model-failed", "The model failed"),
    auth.AnswerRejected: ProblemKind(400, "answer-rejected", "The sign-in cannot be completed"),
    people.ProviderFailed: ProblemKind(502, "provider-failed", "The identity provider failed"),
    # Errors of this server.
    store.DatabaseUnavailable: ProblemKind(503, "database-unavailable", "The database is unavailable"),
    store.AuditUnavailable: ProblemKind(503, "audit-unavailable", "The audit log cannot be written"),
    store.StoreError: ProblemKind(500, "store-error", "Stored data cannot be used"),
    ToolyardError: ProblemKind(400, "error", "The request failed"),
}
"""Subclasses without a row use the row of their nearest base class."""


def find_problem_kind(error: ToolyardError) -> ProblemKind:
    """Return the HTTP representation of an error."""
    return next(PROBLEM_KINDS[each] for each in type(error).__mro__ if each in PROBLEM_KINDS)


log = logging.getLogger("toolyard.web")

PROBLEM_JSON = "application/problem+json"


class FieldProblem(BaseModel):
    """A problem with one field of the request."""

    field: str = Field(description="Dotted path of the field; empty for the whole body.")
    message: str
    hint: str | None = None


class ProblemDetails(BaseModel):
    """Description of an error and of the next step to take."""

    type: str = Field(description="Stable URI of the kind of problem, for programs.")
    title: str = Field(description="Kind of problem, in a few words.")
    status: int = Field(description="HTTP status code.", ge=400, le=599)
    detail: str = Field(description="Explanation of this occurrence, in one sentence.")
    hint: str | None = Field(default=None, description="Suggested next step.")
    errors: list[FieldProblem] = Field(default_factory=list[FieldProblem], description="All invalid fields.")
    server: str | None = Field(default=None, description="MCP server that failed, if any.")
    code: int | None = Field(default=None, description="JSON-RPC error code sent by the server, if any.")
    data: str | None = Field(default=None, description="Error data sent by the server, as JSON text.")
    approval: str | None = Field(
        default=None, description="Page where the call can be approved; repeat the call afterwards."
    )
    current: dict[str, Any] | None = Field(
        default=None, description="The stored version, if the request is based on an older one."
    )
    id: str | None = Field(default=None, description="Identifier of an unexpected error in the server's log.")


def build_problem(
    status: int, type_suffix: str, title: str, detail: str, hint: str | None = None, **others: Any
) -> ProblemDetails:
    """Return a problem of a type of ours."""
    type_ = PROBLEM_TYPE_PREFIX + type_suffix
    return ProblemDetails(type=type_, title=title, status=status, detail=detail, hint=hint, **others)


def describe_error(error: Exception) -> tuple[ProblemDetails, dict[str, str]]:
    """Return the problem details and response headers for an expected error.

    Raises TypeError for any other exception.
    """
    if isinstance(error, ToolyardError):
        return _describe_toolyard_error(error)
    if isinstance(error, RequestValidationError):
        return _describe_validation_error(error), {}
    if isinstance(error, HTTPException):
        return _describe_http_exception(error), dict(error.headers or {})
    raise TypeError(f"{type(error).__name__} is not expected") from error


def build_problem_response(problem: ProblemDetails, headers: Mapping[str, str] | None = None) -> Response:
    """Return the problem as an ``application/problem+json`` response."""
    body = orjson.dumps(problem.model_dump(exclude_none=True))
    return Response(body, problem.status, headers, media_type=PROBLEM_JSON)


def build_refusal_response(
    problem: ProblemDetails, scope: Scope, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response of middleware to a refused request, which is plain text for pages."""
    if scope["path"].startswith("/ui"):
        text = f"{problem.title}.\n\n{problem.detail}\nhint: {problem.hint}\n"
        return PlainTextResponse(text, problem.status, headers)
    return build_problem_response(problem, headers)


ErrorPageFor: TypeAlias = Callable[[Request, ProblemDetails], Awaitable[Response | None]]
"""Renders a problem as an HTML page for browsers; returns None for API requests."""


def add_error_handlers(app: FastAPI, as_page: ErrorPageFor) -> None:
    """Install handlers that answer expected errors with problem details or an error page."""

    async def handle_error(request: Request, error: Exception) -> Response:
        response = await build_error_response(request, error, as_page)
        if response.status_code == 405:
            response.headers["Allow"] = ", ".join(_list_allowed_methods(app, request.scope["path"]))
        return response

    for expected in (ToolyardError, RequestValidationError, HTTPException):
        app.add_exception_handler(expected, handle_error)


async def build_error_response(request: Request, error: Exception, as_page: ErrorPageFor) -> Response:
    """Return the response to an expected error: a redirect, problem details, or an error page."""
    if isinstance(error, HTTPException) and error.status_code < 400:
        return Response(status_code=error.status_code, headers=error.headers)
    problem, headers = describe_error(error)
    if problem.status >= 500:
        cause = error.cause if isinstance(error, store.DatabaseUnavailable) else problem.detail
        log.warning("%s %s: %s", request.method, request.url.path, cause)
    return await build_page_or_problem(request, problem, as_page, headers)


def _list_allowed_methods(app: FastAPI, path: str) -> list[str]:
    """Return the methods that a path supports.

    FastAPI registers a route per method and would report only the first one that matches the path.
    """
    matching = [each for each in list_routes(app) if each.path_regex.match(path)]
    # Routes with another template are shadowed by the first one and never reached.
    methods = [each.methods for each in matching if each.path == matching[0].path]
    allowed = set[str]().union(*methods)
    return sorted(allowed | {"HEAD"} if "GET" in allowed else allowed)


async def build_page_or_problem(
    request: Request, problem: ProblemDetails, as_page: ErrorPageFor, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error page for browsers and problem details for programs."""
    page = await as_page(request, problem)
    if page is None:
        return build_problem_response(problem, headers)
    page.headers.update(headers or {})
    return page


async def build_unexpected_error_response(
    error: Exception, scope: Scope, as_page: ErrorPageFor
) -> Response | None:
    """Log an unexpected error with its traceback, and return a response with an id to find it by.

    None if the response has begun: the connection must be aborted then, so that the client does not mistake
    the part that was sent for a complete response.
    """
    problem = log_unexpected_error(error, f"{scope['method']} {scope['path']}")
    if RESPONSE_STATUS_KEY in scope:
        return None
    return await build_page_or_problem(Request(scope), problem, as_page)


def log_unexpected_error(error: Exception, location: str) -> ProblemDetails:
    """Log an unexpected error and return a problem without its details."""
    id_ = secrets.token_hex(6)
    log.error("unexpected error %s at %s", id_, location, exc_info=error)
    return build_problem(
        500,
        "unexpected",
        "Unexpected error",
        "an unexpected error occurred in Toolyard",
        f"find the details in the server's log under the id {id_}",
        id=id_,
    )


# Problem details by type of exception.


def _describe_toolyard_error(error: ToolyardError) -> tuple[ProblemDetails, dict[str, str]]:
    kind, fields = find_problem_kind(error), _list_field_problems(error)
    problem = build_problem(
        *kind,
        _format_detail(error),
        _find_hint(error) or next((each.hint for each in fields if each.hint), None),
        errors=fields,
        server=(error.server or None) if isinstance(error, ServerError) else None,
        code=error.code if isinstance(error, RpcError) else None,
        data=to_readable_json(error.data) if isinstance(error, RpcError) and error.data is not None else None,
        approval=error.link if isinstance(error, ApprovalNeeded) else None,
        current=_find_current_version(error),
    )
    headers: dict[str, str] = {}
    if (seconds := getattr(error, "retry_after", None)) is not None:
        headers["Retry-After"] = str(max(1, math.ceil(seconds)))
    # Required with 401 by RFC 9110.
    if kind.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="toolyard"'
    return problem, headers


def _find_current_version(error: ToolyardError) -> dict[str, Any] | None:
    """Return the stored version, once a route has turned it into a response without secrets."""
    if isinstance(error, chat.ChatChanged) and error.turn is not None:
        return {"turn": error.turn, "text": error.text}
    current = error.current if isinstance(error, Outdated) else None
    return current.model_dump(mode="json") if isinstance(current, BaseModel) else None


def _find_hint(error: ToolyardError) -> str | None:
    # The refusal of a quarantined tool has a hint of its own.
    if isinstance(error, ToolRefused) and error.rule not in (None, DEFINITION_RULE_TITLE):
        return "GET /api/v1/tools/{name}/why explains all rules"
    if isinstance(error, store.DatabaseUnavailable):
        return error.public_hint
    return error.hint


def _format_detail(error: ToolyardError) -> str:
    """Return a one-line explanation; for invalid input, the problems of all fields."""
    if isinstance(error, store.DatabaseUnavailable):
        return error.public_cause
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
    if isinstance(error, Taken | NameTaken):
        field = error.field if isinstance(error, Taken) else "name"
        return [FieldProblem(field=field, message=error.cause, hint=error.hint)]
    return []


def _describe_validation_error(error: RequestValidationError) -> ProblemDetails:
    problems = [_create_field_problem(each) for each in cast("Sequence[dict[str, Any]]", error.errors())]
    fields = ", ".join(each.field for each in problems if each.field)
    detail = f"the request is not valid: {fields}" if fields else "the request is not valid"
    return build_problem(422, "invalid", "Invalid input", detail, errors=problems)


def _create_field_problem(error: Mapping[str, Any]) -> FieldProblem:
    """Describe a validation error without the rejected value, which may be a secret."""
    path = [str(step) for step in error["loc"]]
    if error["type"] == "json_invalid":
        return FieldProblem(field="", message=f"not valid JSON: {error['ctx']['error']}")
    return FieldProblem(field=".".join(path[1:] or path), message=str(error["msg"]))


_HINTS_BY_STATUS = {
    405: "see /api/v1/openapi.json for the methods that each path supports",
    404: "see /api/v1/openapi.json for all paths",
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
