"""Routes, base models and dependencies of the API. Its modules import this one as ``api``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from math import isfinite
from typing import Annotated, Any, Generic, Self, TypeVar, cast

from fastapi import Depends, Path, Request, Response
from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException

from toolyard.accounts.errors import NotAllowed
from toolyard.concurrency.tasks import iterate_in_steps
from toolyard.protocol.codec import encode, encode_fragment
from toolyard.types.account import Right
from toolyard.web import routes
from toolyard.web.access.authentication import RequestUser, require_right
from toolyard.web.problem_details import PROBLEM_JSON

__all__ = [
    "JSON_CONTENT_TYPE",
    "AgentWriter",
    "ApiModel",
    "ApiRoutes",
    "ChatApprover",
    "ChatReader",
    "ChatWriter",
    "EventNumber",
    "ItemList",
    "PathId",
    "RequestModel",
    "UserWithCall",
    "UserWithManage",
    "UserWithRead",
    "respond_with_items",
]


UserWithRead = Annotated[RequestUser, Depends(require_right(Right.READ))]
UserWithCall = Annotated[RequestUser, Depends(require_right(Right.CALL))]
UserWithManage = Annotated[RequestUser, Depends(require_right(Right.MANAGE))]

_Item = TypeVar("_Item")

PathId = Annotated[str, Path(min_length=1, max_length=128, description="Id, as returned by the list.")]


class ApiModel(BaseModel):
    """Base class of bodies. Requests are named ``…Request``, and responses that are not lists ``…Response``.

    ``schema`` is the published name in the OpenAPI document, from which clients may have generated code.
    """

    def __init_subclass__(cls, *, schema: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if schema:
            cls.__name__ = cls.__qualname__ = schema

    @classmethod
    def of(cls, record: object, **others: Any) -> Self:
        """Return the body for a record: its attributes with the names of the fields, and other fields.

        Pydantic turns times, which records have in seconds, into dates in UTC.
        """
        return cls.model_validate(cls.values_of(record, **others), from_attributes=True)

    @classmethod
    def values_of(cls, record: object, **others: Any) -> dict[str, Any]:
        """Return the fields of ``of`` as the record has them, for bodies that are encoded in steps."""
        return {name: others[name] if name in others else getattr(record, name) for name in cls.model_fields}


class ItemList(ApiModel, Generic[_Item]):
    """Base class of lists."""

    items: list[_Item]


async def respond_with_items(
    items: Iterable[dict[str, Any]], others: ItemList[Any] | None = None, *, items_per_step: int = 200
) -> Response:
    """Return a list whose items are made and encoded in steps, because there may be ten thousand of them.

    ``others`` has the other fields of the list.
    """
    fields = {} if others is None else others.model_dump(mode="json", exclude={"items"})
    encoded = [encode_fragment(each) async for each in iterate_in_steps(items, items_per_step)]
    return Response(encode({"items": encoded, **fields}), media_type=JSON_CONTENT_TYPE)


_MAX_REPORTED_ERRORS = 100


class RequestModel(ApiModel):
    """Base class of request bodies: unknown keys are rejected and types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="wrap")
    @classmethod
    def _validate(cls, value: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Reject NaN and infinity, which Python reads but which cannot be forwarded as JSON.

        Very many errors are only counted: a list of 190,000 would block the event loop for a second.
        """
        if not _has_only_finite_numbers(value):
            raise ValueError("contains a number that is not valid in JSON: NaN, or one that is too large")
        try:
            return validate(value)
        except ValidationError as error:
            count = error.error_count()
            if count <= _MAX_REPORTED_ERRORS:
                raise
            raise PydanticCustomError("too_many_errors", "has {count} errors", {"count": count}) from None


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


# Media types.

JSON_CONTENT_TYPE = "application/json"
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


def require_media_types(*types: str) -> Callable[[Request], Awaitable[None]]:
    """Return a dependency that checks the media types of a request.

    The client must accept one of the given types (else 406) and send a body, if any, as JSON (else 415).
    """

    async def check(request: Request) -> None:
        accepted = request.headers.get("accept")
        if accepted and not any(_is_type_accepted(accepted, each) for each in (*types, PROBLEM_JSON)):
            raise HTTPException(
                406, f"the response has the type {' or '.join(types)}, which the Accept header does not allow"
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


class ApiRoutes(routes.Routes):
    """Routes that respond with JSON, unless other media types are given, and with documented errors."""

    def route(
        self,
        path: str,
        *,
        media_types: Sequence[str] = (JSON_CONTENT_TYPE,),
        errors: Sequence[int] = (),
        **options: Any,
    ) -> Callable[[_Endpoint], _Endpoint]:
        """Add the decorated function. ``errors`` are the statuses besides those common to all routes.

        Without ``media_types``, neither the type of the response nor that of the request is checked.
        """
        if media_types:
            options["dependencies"] = [Depends(require_media_types(*media_types))]
        options["responses"] = {**_document_errors(errors), **options.get("responses", {})}
        return super().route(path, **options)


def _document_errors(statuses: Sequence[int]) -> dict[int, dict[str, Any]]:
    return {
        status: {
            "description": _DESCRIPTION_BY_STATUS[status],
            "content": {PROBLEM_JSON: {"schema": _PROBLEM_SCHEMA}},
        }
        for status in sorted({*_COMMON_STATUSES, *statuses})
    }


EventNumber = Annotated[int, Path(ge=1, le=2**62, description="Sequence number of an event.")]


def _require_unlimited_token(right: Right) -> Callable[..., Awaitable[RequestUser]]:
    """Return a dependency on a user with a right, which refuses tokens with other limits.

    A chat may call all tools of its owner, even days later after an approval, and a changed agent may have
    other tools, so the limits of a token could not be enforced.
    """

    authenticate = require_right(right)

    async def require_user(request: Request) -> RequestUser:
        request_user = await authenticate(request)
        scope = request_user.scope
        if scope is not None and (scope.servers, scope.tools, scope.agents) != (None, None, None):
            raise NotAllowed(
                "this token is limited to certain servers, tools or agents, so it cannot be used for chats "
                "or to change agents",
                hint="create a token without such limits",
            )
        return request_user

    return require_user


AgentWriter = Annotated[RequestUser, Depends(_require_unlimited_token(Right.MANAGE))]
"""User who may change their agents."""
ChatReader = Annotated[RequestUser, Depends(_require_unlimited_token(Right.READ))]
"""User who may read their chats."""
ChatWriter = Annotated[RequestUser, Depends(_require_unlimited_token(Right.CALL))]
"""User who may write in their chats, call tools and reply to servers."""
ChatApprover = Annotated[RequestUser, Depends(_require_unlimited_token(Right.APPROVE))]
"""User who may approve calls. A separate right, so that a token that calls cannot approve its own calls."""
