"""Grants that follow from an approval: one tool with an unchanged definition, matching arguments, limited
time.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import orjson

from toolyard.agents.chat.errors import ChatRefused
from toolyard.catalog.hashes import definition_hash
from toolyard.errors import ToolRefused
from toolyard.policy.glob import matches_glob as glob_fits
from toolyard.types.approval import Approval, Grant
from toolyard.types.call import ApprovalRequest
from toolyard.types.json_values import object_or_empty
from toolyard.types.tool import JsonObject

__all__ = [
    "ApprovalStore",
    "Approver",
    "GrantScope",
    "arguments_match",
    "create_grant",
    "describe_grant_scope",
    "grant_covers",
    "is_same_json",
]

_SINGLE_USE_SECONDS = 3_600.0
"""Validity of an approval for one call: the call follows at once, or when a client repeats it."""
_MAX_GRANT_SECONDS = 366 * 86_400.0
_ALL_ARGUMENTS_KEY = ""
"""Key of a predicate that compares all arguments at once."""


@dataclass(frozen=True, slots=True)
class GrantScope:
    """Scope of an approval: exactly these arguments or any, and this chat only or all of them."""

    seconds: float
    arguments: Literal["these", "any"]
    this_chat_only: bool


class ApprovalStore(Protocol):
    """Stores approvals of calls, and the grants that follow from them: in the database or, for the stdio
    gateway, in memory."""

    async def add(self, approval: Approval) -> None: ...

    async def find(self, owner: str, approval_id: str) -> Approval | None: ...

    async def list_pending(self, owner: str) -> Sequence[Approval]:
        """Return unanswered approvals, oldest first."""
        ...

    async def answer(
        self, owner: str, approval_id: str, *, yes: bool, at: float, grant: Grant | None
    ) -> bool:
        """Answer a pending approval and store its grant.

        Return False if it was answered already or does not exist.
        """
        ...

    async def list_grants(self, owner: str, now: float) -> Sequence[Grant]:
        """Return the grants that have not expired."""
        ...

    async def revoke(self, owner: str, grant_id: str) -> bool: ...

    async def use_grant(
        self,
        owner: str,
        tool: str,
        definition_hash: str,
        fits: Callable[[JsonObject], bool],
        chat_id: str | None,
        now: float,
    ) -> Grant | None:
        """Return a grant that covers a call, or None; ``fits`` tests its predicate against the call's
        arguments.

        A grant limited to a number of uses loses one use, atomically.
        """
        ...


def arguments_match(predicate: JsonObject, arguments: JsonObject) -> bool:
    """Return whether arguments satisfy a predicate (described at ``Grant``).

    An invalid predicate matches nothing.
    """
    for key, expected in predicate.items():
        if key == _ALL_ARGUMENTS_KEY:
            if not is_same_json(object_or_empty(expected).get("equal"), arguments):
                return False
        elif key not in arguments or not _value_matches(expected, arguments[key]):
            return False
    return True


def _value_matches(expected: object, value: object) -> bool:
    if list(object_or_empty(expected)) != ["glob"]:
        return is_same_json(expected, value)
    glob: object = object_or_empty(expected)["glob"]
    if not isinstance(glob, str) or not isinstance(value, str):
        return False
    # A value that matches ``folder/*`` must not leave the folder.
    return ".." not in value.replace("\\", "/").split("/") and glob_fits(glob, value)


def is_same_json(one: object, other: object) -> bool:
    """Compare as JSON: true differs from 1, and the order of keys is irrelevant."""
    try:
        return _encode_sorted_json(one) == _encode_sorted_json(other)
    except orjson.JSONEncodeError:
        return False


def _encode_sorted_json(value: object) -> bytes:
    return orjson.dumps(value, default=_convert_mapping, option=orjson.OPT_SORT_KEYS)


def _convert_mapping(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(cast("JsonObject", value))
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


def grant_covers(grant: Grant, approval: Approval, now: float) -> bool:
    """Return whether a grant approves the call for which this approval would be asked, at this time."""
    return (
        (grant.tool, grant.definition_hash) == (approval.tool, approval.definition_hash)
        and grant.chat_id in (None, approval.chat_id)
        and grant.expires_at > now
        and (grant.uses is None or grant.uses > 0)
        and arguments_match(grant.predicate, approval.arguments)
    )


def create_grant(approval: Approval, remember: GrantScope | None, now: float) -> Grant:
    """Return the grant that follows from an approval.

    Without ``remember`` it covers one call with these arguments in the chat that requested it. Raises
    ChatRefused for an invalid duration.
    """
    if remember is None:
        remember, uses = GrantScope(_SINGLE_USE_SECONDS, "these", this_chat_only=True), 1
    else:
        uses = None
    if not 0 < remember.seconds <= _MAX_GRANT_SECONDS:
        raise ChatRefused("an approval must be remembered for more than 0 seconds and at most 366 days")
    is_any = remember.arguments == "any"
    predicate = {} if is_any else {_ALL_ARGUMENTS_KEY: {"equal": dict(approval.arguments)}}
    return Grant(
        id=secrets.token_hex(12),
        owner=approval.owner,
        tool=approval.tool,
        name=approval.name,
        definition_hash=approval.definition_hash,
        predicate_json=orjson.dumps(predicate).decode(),
        created_at=now,
        expires_at=now + remember.seconds,
        chat_id=approval.chat_id if remember.this_chat_only else None,
        uses=uses,
    )


def describe_grant_scope(remember: GrantScope) -> str:
    """Describe for users how far an approval extends."""
    what = "with any arguments" if remember.arguments == "any" else "with these arguments"
    where = "in this chat" if remember.this_chat_only else "in all your chats and clients"
    return f"{what}, {where}, for {_format_duration(remember.seconds)}"


def _format_duration(seconds: float) -> str:
    for length, word in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= length:
            count = round(seconds / length)
            return f"{count} {word}" if count == 1 else f"{count} {word}s"
    return "a moment"


class Approver:
    """Approves calls in the call path if a grant covers them.

    It compares the definition that is actually called, so a definition that changed since the approval is
    refused.
    """

    def __init__(
        self,
        store: ApprovalStore,
        *,
        fallback: Callable[[ApprovalRequest], Awaitable[bool]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``fallback`` decides about a call outside of chats that no grant covers."""
        self._store = store
        self._fallback = fallback
        self._clock = clock

    async def __call__(self, request: ApprovalRequest) -> bool:
        """Use up a grant and return True, or return False. Raises ToolRefused if nobody can be asked."""
        caller, decision = request.caller, request.decision
        grant = await self._store.use_grant(
            caller.principal.id,
            decision.tool,
            definition_hash(request.definition),
            lambda predicate: arguments_match(predicate, request.arguments),
            caller.chat,
            self._clock(),
        )
        if grant is not None:
            return True
        # In a chat the turn asks before the call and stores a grant (``Turn``). Without one the call is
        # refused.
        if caller.chat is not None:
            return False
        if self._fallback is not None:
            return await self._fallback(request)
        raise ToolRefused(
            f"'{decision.name}' needs an approval, and nobody is available to ask",
            hint="call the tool from a chat, where you can approve the call, or set write_tools to 'allow'",
        )
