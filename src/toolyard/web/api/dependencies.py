"""Dependencies, base models and documented errors shared by all API routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from math import isfinite
from typing import Annotated, Any, cast

from fastapi import Depends, Path, Request
from pydantic import BaseModel, ConfigDict, model_validator
from starlette.exceptions import HTTPException

from toolyard.accounts.errors import NotAllowed
from toolyard.types.account import Right
from toolyard.web.access.dependencies import RequestUser, require_admin, require_browser_user, require_right
from toolyard.web.problem_details import PROBLEM_JSON

__all__ = [
    "JSON_CONTENT_TYPE",
    "AdminUser",
    "AgentWriter",
    "ApiModel",
    "BrowserUser",
    "ChatApprover",
    "ChatReader",
    "ChatWriter",
    "EventNumber",
    "PathId",
    "RequestModel",
    "UserWithCall",
    "UserWithManage",
    "UserWithRead",
    "problem_responses",
    "require_media_types",
    "to_datetime",
    "to_optional_datetime",
]


UserWithRead = Annotated[RequestUser, Depends(require_right(Right.READ))]
UserWithCall = Annotated[RequestUser, Depends(require_right(Right.CALL))]
UserWithManage = Annotated[RequestUser, Depends(require_right(Right.MANAGE))]
AdminUser = Annotated[RequestUser, Depends(require_admin)]
BrowserUser = Annotated[RequestUser, Depends(require_browser_user)]
"""User in a browser or the local user; API tokens are refused."""

PathId = Annotated[str, Path(min_length=1, max_length=128, description="Id, as returned by the list.")]


class ApiModel(BaseModel):
    """Base class of bodies. Requests are named ``…Request``, and responses that are not lists ``…Response``.

    ``schema`` is the published name in the OpenAPI document, from which clients may have generated code.
    """

    def __init_subclass__(cls, *, schema: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if schema:
            cls.__name__ = cls.__qualname__ = schema


class RequestModel(ApiModel):
    """Base class of request bodies: unknown keys are rejected and types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _reject_non_finite_numbers(cls, value: Any) -> Any:
        """Reject NaN and infinity, which Python reads but which cannot be forwarded as JSON."""
        if not _has_only_finite_numbers(value):
            raise ValueError("contains a number that is not valid in JSON: NaN, or one that is too large")
        return value


def _has_only_finite_numbers(value: Any) -> bool:
    # Iterative, because a body may be nested deeper than Python's recursion limit.
    remaining = [value]
    while remaining:
        value = remaining.pop()
        if isinstance(value, dict):
            remaining.extend(cast("dict[str, Any]", value).values())
        elif isinstance(value, list):
            remaining.extend(cast("list[Any]", value))
        elif isinstance(value, float) and not isfinite(value):
            return False
    return True


def to_datetime(seconds: float) -> datetime:
    """Convert seconds since the epoch to a UTC time."""
    return datetime.fromtimestamp(seconds, UTC)


def to_optional_datetime(seconds: float | None) -> datetime | None:
    """Convert seconds since the epoch to a UTC time, or None to None."""
    return None if seconds is None else to_datetime(seconds)


# Media types.

JSON_CONTENT_TYPE = "application/json"
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


def require_media_types(*types: str) -> Callable[[Request], Awaitable[None]]:
    """Return a dependency that checks the media types of a request.

    The client must accept one of the given types (else 406) and send a body, if any, as JSON (else 415).
    """

    async def check(request: Request) -> None:
        accepted = request.headers.get("accept")
        if accepted and not any(_is_type_accepted(accepted, each) for each in (*types, PROBLEM_JSON)):
            raise HTTPException(
                406, f"the response is {' or '.join(types)}, which the Accept header excludes"
            )
        content_type = request.headers.get("content-type", "")
        has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
        if request.method in _METHODS_WITH_BODY and has_body and not _is_json_type(content_type):
            raise HTTPException(
                415, f"send {JSON_CONTENT_TYPE}, not {content_type[:100] or 'a body without a content type'}"
            )

    return check


def _is_type_accepted(accepted: str, offered: str) -> bool:
    family = offered.partition("/")[0]
    for part in accepted.split(","):
        media_type, *parameters = (each.strip().lower() for each in part.split(";"))
        if media_type in (offered, f"{family}/*", "*/*") and "q=0" not in parameters:
            return True
    return False


def _is_json_type(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == JSON_CONTENT_TYPE or (kind.startswith("application/") and kind.endswith("+json"))


# Documented errors.

_DESCRIPTION_BY_STATUS = {
    400: "The request is malformed.",
    401: "Not signed in, or the token is not valid.",
    403: "Not allowed with this role or token, or from this origin.",
    404: "Not found, or owned by another user.",
    406: "The response type is not accepted by the client.",
    408: "The body did not arrive in time.",
    409: "Conflict: the name is in use, the chat is busy, a limit is reached, or the data has changed.",
    413: "The body is too long, or contains too many values.",
    415: "The body is not JSON.",
    421: "The host name is not allowed.",
    422: "Invalid input.",
    424: "The server requires a sign-in.",
    429: "Too many attempts, or too many open event streams.",
    500: "Unexpected error in Toolyard.",
    502: "The server failed or cannot be reached.",
    503: "Temporarily unavailable.",
    504: "The server did not respond in time.",
}
_COMMON_STATUSES = (400, 401, 403, 406, 421, 422, 500, 503)
_PROBLEM_SCHEMA = {"$ref": "#/components/schemas/ProblemDetails"}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI documentation of these errors and of those common to all routes."""
    return {
        status: {
            "description": _DESCRIPTION_BY_STATUS[status],
            "content": {PROBLEM_JSON: {"schema": _PROBLEM_SCHEMA}},
        }
        for status in sorted({*_COMMON_STATUSES, *statuses})
    }


EventNumber = Annotated[int, Path(ge=1, le=2**62, description="Sequence number of an event.")]


def _require_unlimited_token(request_user: RequestUser) -> RequestUser:
    """Return the user. Raises NotAllowed for a token that is limited to servers, tools or agents.

    A chat may call all tools of its owner, even days later after an approval, and a changed agent may have
    other tools, so that the limits of a token could not be enforced.
    """
    scope = request_user.scope
    limits = [] if scope is None else [scope.servers, scope.tools, scope.agents]
    if any(each is not None for each in limits):
        raise NotAllowed(
            "this token is limited to certain servers, tools or agents, so it cannot be used for chats or "
            "to change agents",
            hint="create a token without such limits",
        )
    return request_user


def _require_chat_reader(request_user: UserWithRead) -> RequestUser:
    return _require_unlimited_token(request_user)


def _require_chat_writer(request_user: UserWithCall) -> RequestUser:
    return _require_unlimited_token(request_user)


def _require_chat_approver(
    request_user: Annotated[RequestUser, Depends(require_right(Right.APPROVE))],
) -> RequestUser:
    return _require_unlimited_token(request_user)


def _require_agent_writer(request_user: UserWithManage) -> RequestUser:
    return _require_unlimited_token(request_user)


AgentWriter = Annotated[RequestUser, Depends(_require_agent_writer)]
"""User who may change their agents."""
ChatReader = Annotated[RequestUser, Depends(_require_chat_reader)]
"""User who may read their chats."""
ChatWriter = Annotated[RequestUser, Depends(_require_chat_writer)]
"""User who may write in their chats, call tools and reply to servers."""
ChatApprover = Annotated[RequestUser, Depends(_require_chat_approver)]
"""User who may approve calls. A separate right, so that a token that calls cannot approve its own calls."""
