"""Yes, and what it covers: one tool as it was defined then, arguments that fit, some time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import orjson

from toolyard.agents.chat.errors import ChatRefused
from toolyard.agents.chat.storage import ApprovalStore
from toolyard.catalog.hashes import definition_hash
from toolyard.errors import ToolRefused
from toolyard.policy.glob import matches_glob as glob_fits
from toolyard.types.approval import Approval, Grant
from toolyard.types.call import ApprovalRequest
from toolyard.types.tool import JsonObject

__all__ = [
    "Approver",
    "GrantScope",
    "UnapprovedCall",
    "arguments_match",
    "create_grant",
    "describe_grant_scope",
    "grant_covers",
]

_SINGLE_USE_SECONDS = 3_600.0
"""Seconds for which a yes to one call counts: the call follows at once, or when a client repeats it."""
_MAX_GRANT_SECONDS = 366 * 86_400.0
_ALL_ARGUMENTS_KEY = ""
"""The key of a predicate that names all arguments at once."""


@dataclass(frozen=True, slots=True)
class GrantScope:
    """How far a yes reaches. ``arguments``: these ones only, or any. ``here``: in this chat only."""

    seconds: float
    arguments: Literal["these", "any"]
    here: bool


@dataclass(frozen=True, slots=True)
class UnapprovedCall:
    """A call that needs somebody's yes."""

    tool: str
    """The canonical id."""
    name: str
    definition_hash: str
    arguments: JsonObject
    reason: str


def arguments_match(predicate: JsonObject, arguments: JsonObject) -> bool:
    """Whether arguments satisfy a predicate (see ``Grant``). One that cannot be read is satisfied by none."""
    for key, wanted in predicate.items():
        if key == _ALL_ARGUMENTS_KEY:
            if not _is_same_json(_mapping_or_empty(wanted).get("equal"), arguments):
                return False
        elif key not in arguments or not _value_matches(wanted, arguments[key]):
            return False
    return True


def _value_matches(expected: object, value: object) -> bool:
    if list(_mapping_or_empty(expected)) != ["glob"]:
        return _is_same_json(expected, value)
    glob: object = _mapping_or_empty(expected)["glob"]
    if not isinstance(glob, str) or not isinstance(value, str):
        return False
    # What matches folder/* must not climb out of the folder.
    return ".." not in value.replace("\\", "/").split("/") and glob_fits(glob, value)


def _mapping_or_empty(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, Mapping) else {}


def _is_same_json(one: object, other: object) -> bool:
    """Equal as JSON: true is not 1, and the order of keys does not matter."""
    try:
        return _encode_sorted_json(one) == _encode_sorted_json(other)
    except orjson.JSONEncodeError:
        return False


def _encode_sorted_json(value: object) -> bytes:
    return orjson.dumps(value, default=_convert_mapping, option=orjson.OPT_SORT_KEYS)


def _convert_mapping(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(cast("JsonObject", value))
    raise TypeError(f"{type(value).__name__} is no JSON")


def grant_covers(grant: Grant, call: UnapprovedCall, chat_id: str | None, now: float) -> bool:
    """Whether a grant is a yes to this call, here and now."""
    return (
        (grant.tool, grant.definition_hash) == (call.tool, call.definition_hash)
        and grant.chat_id in (None, chat_id)
        and grant.expires_at > now
        and (grant.uses is None or grant.uses > 0)
        and arguments_match(grant.predicate, call.arguments)
    )


def create_grant(approval: Approval, remember: GrantScope | None, now: float) -> Grant:
    """What follows from a yes. Without ``remember`` it is good for one call with these arguments, in the chat
    that asked. Raises ChatRefused for a time that cannot be meant."""
    if remember is None:
        remember, uses = GrantScope(_SINGLE_USE_SECONDS, "these", here=True), 1
    else:
        uses = None
    if not 0 < remember.seconds <= _MAX_GRANT_SECONDS:
        raise ChatRefused("an approval is remembered for some seconds, and a year at most")
    return Grant(
        id=secrets.token_hex(12),
        owner=approval.owner,
        tool=approval.tool,
        name=approval.name,
        definition_hash=approval.definition_hash,
        predicate={}
        if remember.arguments == "any"
        else {_ALL_ARGUMENTS_KEY: {"equal": dict(approval.arguments)}},
        created_at=now,
        expires_at=now + remember.seconds,
        chat_id=approval.chat_id if remember.here else None,
        uses=uses,
    )


def describe_grant_scope(remember: GrantScope) -> str:
    """How far a yes reaches, for people."""
    what = "with any arguments" if remember.arguments == "any" else "with these arguments"
    where = "in this chat" if remember.here else "everywhere"
    return f"{what}, {where}, for {_format_duration(remember.seconds)}"


def _format_duration(seconds: float) -> str:
    for length, word in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= length:
            count = round(seconds / length)
            return f"{count} {word}" if count == 1 else f"{count} {word}s"
    return "a moment"


class Approver:
    """The call path's ``approve``: yes where a grant covers the call. It is asked about the definition that
    is called, so one that changed since the person said yes is refused."""

    def __init__(
        self,
        store: ApprovalStore,
        *,
        fallback: Callable[[ApprovalRequest], Awaitable[bool]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``otherwise`` takes a call that is part of no chat and that no grant covers."""
        self._store = store
        self._fallback = fallback
        self._clock = clock

    async def __call__(self, question: ApprovalRequest) -> bool:
        """Use a grant. Raises ToolRefused where there is none and nobody to ask."""
        caller, decision = question.caller, question.decision
        grant = await self._store.use_grant(
            caller.principal.id,
            decision.tool,
            definition_hash(question.definition),
            lambda predicate: arguments_match(predicate, question.arguments),
            caller.chat,
            self._clock(),
        )
        if grant is not None:
            return True
        if caller.chat is not None:
            return False
        if self._fallback is not None:
            return await self._fallback(question)
        raise ToolRefused(
            f"'{decision.name}' needs an approval, and there is nobody to ask",
            hint="call it from a chat, where you are asked; or set write_tools to 'allow'",
        )
