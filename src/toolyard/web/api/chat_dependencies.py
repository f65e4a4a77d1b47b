"""Who may use chats, and what the routes of one chat share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path

from toolyard.accounts.errors import NotAllowed
from toolyard.types.account import Right
from toolyard.web.access.dependencies import Visitor, needs
from toolyard.web.api.dependencies import Calling, Reading

__all__ = ["Approving", "Chatting", "Looking", "Seq"]

Seq = Annotated[int, Path(ge=1, le=2**62, description="The number of an event.")]


def _unlimited(visitor: Visitor) -> Visitor:
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


def _looking(visitor: Reading) -> Visitor:
    return _unlimited(visitor)


def _chatting(visitor: Calling) -> Visitor:
    return _unlimited(visitor)


def _approving(visitor: Annotated[Visitor, Depends(needs(Right.APPROVE))]) -> Visitor:
    return _unlimited(visitor)


Looking = Annotated[Visitor, Depends(_looking)]
"""Somebody who may see their chats."""
Chatting = Annotated[Visitor, Depends(_chatting)]
"""Somebody who may write in them, call tools and reply to servers."""
Approving = Annotated[Visitor, Depends(_approving)]
"""Somebody who may say yes to a call: whoever may call alone must not be able to say yes to themselves."""
