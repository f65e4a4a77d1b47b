"""What every route of the API shares: who comes in, in which form, and what can come back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from math import isfinite
from typing import Annotated, Any, cast

from fastapi import Depends, Path, Request
from pydantic import BaseModel, ConfigDict, model_validator
from starlette.exceptions import HTTPException

from toolyard.types.account import Right
from toolyard.web.access.dependencies import RequestUser, require_admin, require_browser_user, require_right
from toolyard.web.problem_details import PROBLEM_JSON
from toolyard.web.services import Services

__all__ = [
    "HTTP_URL_PATTERN",
    "JSON_CONTENT_TYPE",
    "PLAIN_TEXT_PATTERN",
    "AdminUser",
    "AppServices",
    "BrowserUser",
    "Given",
    "PathId",
    "UserWithCall",
    "UserWithManage",
    "UserWithRead",
    "problem_responses",
    "require_media_types",
    "to_datetime",
    "to_optional_datetime",
]


def _get_services(request: Request) -> Services:
    site: Services = request.app.state.site
    return site


AppServices = Annotated[Services, Depends(_get_services)]
UserWithRead = Annotated[RequestUser, Depends(require_right(Right.READ))]
UserWithCall = Annotated[RequestUser, Depends(require_right(Right.CALL))]
UserWithManage = Annotated[RequestUser, Depends(require_right(Right.MANAGE))]
AdminUser = Annotated[RequestUser, Depends(require_admin)]
BrowserUser = Annotated[RequestUser, Depends(require_browser_user)]
"""Somebody in a browser, or at this machine: no token."""

PathId = Annotated[str, Path(min_length=1, max_length=128, description="The id, as the list shows it.")]


_CONTROL_CHARACTERS = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
PLAIN_TEXT_PATTERN = rf"^[^{_CONTROL_CHARACTERS}]*[^{_CONTROL_CHARACTERS}\s][^{_CONTROL_CHARACTERS}]*$"
"""A text that is not blank and cannot rewrite the screen that shows it."""
HTTP_URL_PATTERN = r"^[Hh][Tt][Tt][Pp][Ss]?://[^\x00-\x20\x7f\\]+$"
# Patterns go into the document alone: the rooms that check say what is wrong in better words.


class Given(BaseModel):
    """What comes in: no key that we do not know, and nothing that has to be guessed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _reject_non_finite_numbers(cls, given: Any) -> Any:
        """Python reads numbers that JSON does not have, and nobody could send them on as they are."""
        if not _has_only_finite_numbers(given):
            raise ValueError("holds a number that JSON does not have: NaN, or one that is too large")
        return given


def _has_only_finite_numbers(value: Any) -> bool:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(cast("dict[str, Any]", value).values())
        elif isinstance(value, list):
            waiting.extend(cast("list[Any]", value))
        elif isinstance(value, float) and not isfinite(value):
            return False
    return True


def to_datetime(seconds: float) -> datetime:
    """A time as the API writes it."""
    return datetime.fromtimestamp(seconds, UTC)


def to_optional_datetime(seconds: float | None) -> datetime | None:
    """A time that may not have come."""
    return None if seconds is None else to_datetime(seconds)


# Forms.

JSON_CONTENT_TYPE = "application/json"
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


def require_media_types(*types: str) -> Callable[[Request], Awaitable[None]]:
    """A dependency: the caller takes one of these types (406) and sends JSON, if it sends anything (415)."""

    async def check(request: Request) -> None:
        accepted = request.headers.get("accept")
        if accepted and not any(_is_type_accepted(accepted, each) for each in (*types, PROBLEM_JSON)):
            raise HTTPException(406, f"the answer comes as {' or '.join(types)}, which is not accepted")
        sent = request.headers.get("content-type", "")
        brings = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
        if request.method in _METHODS_WITH_BODY and brings and not _is_json_type(sent):
            raise HTTPException(
                415, f"send {JSON_CONTENT_TYPE}, not {sent[:100] or 'something without a content type'}"
            )

    return check


def _is_type_accepted(accepted: str, offered: str) -> bool:
    family = offered.partition("/")[0]
    for part in accepted.split(","):
        wanted, *parameters = (each.strip().lower() for each in part.split(";"))
        if wanted in (offered, f"{family}/*", "*/*") and "q=0" not in parameters:
            return True
    return False


def _is_json_type(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == JSON_CONTENT_TYPE or (kind.startswith("application/") and kind.endswith("+json"))


# What can come back.

_DESCRIPTION_BY_STATUS = {
    400: "The request cannot be understood.",
    401: "Nobody is signed in, or the token is not accepted.",
    403: "Not with this role, this token, or from this place.",
    404: "There is no such thing, or it is another person's.",
    406: "The answer has no form that is accepted.",
    408: "The body did not arrive in time.",
    409: "The name is in use, the chat is busy, or it is not what it was.",
    413: "The body is too long, or holds too many values.",
    415: "The body is not JSON.",
    421: "This host name is not one of ours.",
    422: "A field cannot be used.",
    424: "The server wants a sign-in.",
    429: "Too many attempts.",
    500: "Something went wrong inside Toolyard.",
    502: "The server failed or cannot be reached.",
    503: "Not available right now.",
    504: "The server did not answer in time.",
}
_COMMON_STATUSES = (400, 401, 403, 406, 421, 422, 500, 503)
_PROBLEM_SCHEMA = {"$ref": "#/components/schemas/ProblemDetails"}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documentation of what can go wrong: these, and what can go wrong everywhere."""
    return {
        status: {
            "description": _DESCRIPTION_BY_STATUS[status],
            "content": {PROBLEM_JSON: {"schema": _PROBLEM_SCHEMA}},
        }
        for status in sorted({*_COMMON_STATUSES, *statuses})
    }
