"""Who may use chats, and what the routes of one chat share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path

from toolyard.accounts.errors import NotAllowed
from toolyard.types.account import Right
from toolyard.web.access.dependencies import RequestUser, require_right
from toolyard.web.api.dependencies import UserWithCall, UserWithRead

__all__ = ["ChatApprover", "ChatReader", "ChatWriter", "EventNumber"]

EventNumber = Annotated[int, Path(ge=1, le=2**62, description="The number of an event.")]


def _require_unlimited_token(visitor: RequestUser) -> RequestUser:
    """A chat calls whatever its owner may call, now and when an approval comes days later: it cannot be held
    to the limits of a token."""
    scope = visitor.scope
    limits = [] if scope is None else [scope.servers, scope.tools, scope.agents]
    if any(each is not None for each in limits):
        raise NotAllowed(
            "this token is limited to some servers, tools or agents, and chats are not",
            hint="make a token without such limits",
        )
    return visitor


def _require_chat_reader(visitor: UserWithRead) -> RequestUser:
    return _require_unlimited_token(visitor)


def _require_chat_writer(visitor: UserWithCall) -> RequestUser:
    return _require_unlimited_token(visitor)


def _require_chat_approver(
    visitor: Annotated[RequestUser, Depends(require_right(Right.APPROVE))],
) -> RequestUser:
    return _require_unlimited_token(visitor)


ChatReader = Annotated[RequestUser, Depends(_require_chat_reader)]
"""Somebody who may see their chats."""
ChatWriter = Annotated[RequestUser, Depends(_require_chat_writer)]
"""Somebody who may write in them, call tools and reply to servers."""
ChatApprover = Annotated[RequestUser, Depends(_require_chat_approver)]
"""Somebody who may say yes to a call: whoever may call alone must not be able to say yes to themselves."""
