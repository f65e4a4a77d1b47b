"""Dependencies and parameters shared by the routes of chats."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path

from toolyard.accounts.errors import NotAllowed
from toolyard.types.account import Right
from toolyard.web.access.dependencies import RequestUser, require_right
from toolyard.web.api.dependencies import UserWithCall, UserWithRead

__all__ = ["ChatApprover", "ChatReader", "ChatWriter", "EventNumber"]

EventNumber = Annotated[int, Path(ge=1, le=2**62, description="Sequence number of an event.")]


def _require_unlimited_token(visitor: RequestUser) -> RequestUser:
    """Return the user. Raises NotAllowed for a token that is limited to servers, tools or agents.

    A chat may call all tools of its owner, even days later after an approval, so that the limits of a token
    could not be enforced.
    """
    scope = visitor.scope
    limits = [] if scope is None else [scope.servers, scope.tools, scope.agents]
    if any(each is not None for each in limits):
        raise NotAllowed(
            "this token is limited to some servers, tools or agents, so that it cannot be used for chats",
            hint="create a token without such limits",
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
"""User who may read their chats."""
ChatWriter = Annotated[RequestUser, Depends(_require_chat_writer)]
"""User who may write in their chats, call tools and reply to servers."""
ChatApprover = Annotated[RequestUser, Depends(_require_chat_approver)]
"""User who may approve calls. A separate right, so that a token that calls cannot approve its own calls."""
