"""``/usage``: sums of tool calls and model requests."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from toolyard.accounts.errors import NotAllowed
from toolyard.types.audit import UsageGroup
from toolyard.web import service_dependencies as deps
from toolyard.web.api import base as api

__all__ = ["router"]

router = api.ApiRoutes(prefix="/usage", tags=["usage"])


class UsageSumsResponse(api.ApiModel):
    """Sums of one group."""

    key: str = Field(
        description="Date, or id of a person, server, tool, agent or model; empty without an agent."
    )
    calls: int = Field(description="Calls of existing tools, whatever their outcome.")
    failures: int = Field(description="Calls that ended with an error, other than a cancellation.")
    seconds: float = Field(description="Total duration of the calls.")
    slowest_seconds: float
    requests: int = Field(description="Requests to models in chats.")
    input_tokens: int
    output_tokens: int
    cost: float = Field(description="Cost of the model requests in US dollars, as far as it is known.")


class UsageResponse(BaseModel):
    """Sums of a period, which includes both days. Days begin at midnight UTC."""

    first_day: date
    last_day: date
    items: list[UsageSumsResponse]


@router.get(
    "",
    summary="Sum up calls, tokens and cost",
)
async def get_usage(
    usage: deps.UsageDep,
    request_user: api.UserWithRead,
    group: UsageGroup = UsageGroup.DAY,
    days: Annotated[int, Query(ge=1, le=3_660, description="Length of the period, until today.")] = 30,
    everyone: Annotated[bool, Query(description="Usage of all users. For admins only.")] = False,
) -> UsageResponse:
    """Return sums by day, person, server, tool, agent or model. Days are in order; other groups start with
    the one that has most calls and requests."""
    if everyone and not request_user.is_admin:
        raise NotAllowed("only admins may read the usage of everyone", hint="omit the parameter `everyone`")
    scope = request_user.scope
    if scope is not None and (scope.servers, scope.tools, scope.agents) != (None, None, None):
        raise NotAllowed(
            "a token limited to certain servers, tools or agents cannot read usage",
            hint="use a token without limits",
        )
    last_day = datetime.now(UTC).date()
    first_day = last_day - timedelta(days - 1)
    person = None if everyone else request_user.user.id
    sums = await usage.sum_by(group, first_day, last_day, person=person)
    items = [UsageSumsResponse.of(each) for each in sums]
    return UsageResponse(first_day=first_day, last_day=last_day, items=items)
