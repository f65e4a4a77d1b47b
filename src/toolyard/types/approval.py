"""Requests that wait for a person: approvals of calls, resulting grants, and questions from servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

import orjson

from toolyard.types.chat import Question
from toolyard.types.tool import JsonObject

__all__ = [
    "MAX_ANSWER_CHARACTERS",
    "Approval",
    "Grant",
    "PageQuestion",
    "PendingItem",
    "PendingKind",
    "iterate_usable_grants",
]


@dataclass(frozen=True, slots=True)
class Approval:
    """Request to approve one call. Only its owner can answer it, and only once."""

    id: str
    owner: str
    tool: str
    """The canonical id."""
    name: str
    """The exposed name."""
    definition_hash: str
    arguments: JsonObject
    reason: str
    """Explanation of the policy rule that requires the approval."""
    asked_at: float
    chat_id: str | None = None
    """None: requested by a client of the gateway or of the API."""
    call_id: str | None = None
    answered_at: float | None = None
    yes: bool | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """An approval, limited to one owner, one definition of a tool, matching arguments and a time span."""

    id: str
    owner: str
    tool: str
    name: str
    definition_hash: str
    """The grant is void for any other definition of the tool, because only this one was approved."""
    predicate_json: str
    """``predicate`` as JSON, decoded only when it is needed: the arguments of hundreds of grants would be
    millions of objects, which the garbage collector would traverse at once."""
    created_at: float
    expires_at: float
    chat_id: str | None = None
    """Valid in this chat only; None: everywhere."""
    uses: int | None = None
    """Number of calls left; None: unlimited."""

    @property
    def predicate(self) -> JsonObject:
        """Required value by argument name, or ``{"glob": "docs/*"}`` for a string that must match.

        Empty: any arguments. ``{"": {"equal": {…}}}``: exactly these arguments and no others.
        """
        return orjson.loads(self.predicate_json)


async def iterate_usable_grants(
    grants: Iterable[Grant],
    tool: str,
    definition_hash: str,
    fits: Callable[[JsonObject], bool],
    chat_id: str | None,
) -> AsyncGenerator[Grant]:
    """Yield the grants that cover a call, unlimited ones before those with a number of uses."""
    candidates = [
        grant
        for grant in grants
        if (grant.tool, grant.definition_hash) == (tool, definition_hash) and grant.chat_id in (None, chat_id)
    ]
    for grant in sorted(candidates, key=lambda grant: (grant.uses is not None, grant.expires_at)):
        if fits(grant.predicate):
            yield grant
        await asyncio.sleep(0)  # To compare arguments of 256 KB takes milliseconds.


MAX_ANSWER_CHARACTERS = 64_000
"""Maximum length of an answer, written as JSON."""


@dataclass(frozen=True, slots=True)
class PageQuestion:
    """An open question. Only its owner can answer it, and only once."""

    id: str
    owner: str
    calls: tuple[str, ...]
    """Calls that the question may belong to, each with the name of its client."""
    question: Question
    asked_at: float
    expires_at: float


class PendingKind(StrEnum):
    """Reason why an item is listed."""

    RUNNING_CHAT = "running_chat"
    """A turn is running. Nothing is expected of the person."""
    WAITING_CHAT = "waiting_chat"
    """A turn waits for an approval or an answer."""
    APPROVAL = "approval"
    """A call of a program needs approval. Approvals in chats are part of the waiting chat."""
    QUESTION = "question"
    """A server asks a question that no client can answer."""
    PROPOSAL = "proposal"
    """Somebody proposed a server. For admins only."""


@dataclass(frozen=True, slots=True)
class PendingItem:
    """One chat, approval or question."""

    kind: PendingKind
    id: str
    title: str
    """Title of the chat, name of the tool, or name of the server."""
    since: float
