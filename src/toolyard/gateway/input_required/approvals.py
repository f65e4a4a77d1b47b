"""Calls of programs that need somebody's yes: written down once each, and let through when it was given."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

import orjson

from toolyard.agents.chat.approval_grants import Approver, fits, granted
from toolyard.agents.chat.storage import ApprovalStore
from toolyard.catalog.hashes import definition_hash
from toolyard.errors import ApprovalNeeded, ToolRefused
from toolyard.types.approval import Approval
from toolyard.types.call import Question

__all__ = ["PASSED", "Approvals", "Passed"]

_MOST = 100
"""Calls of one owner that wait at the same time, beyond which no more are written down."""
_LONGEST = 256 * 1024
"""Bytes of arguments: more, nobody could look at."""


@dataclass(slots=True)
class Passed:
    """What one request was let through for: the hash of a tool's definition."""

    hash: str | None = None


PASSED: ContextVar[Passed | None] = ContextVar("gateway_passed", default=None)
"""Of the request that the running task works for, where it may take several rounds: a yes counts for all."""


class Approvals:
    """The call path's ``approve`` where programs call, and chats besides. A call that no grant covers waits
    for an answer under an id, the same call under the same one."""

    def __init__(
        self, store: ApprovalStore, page: str | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        """``page`` is the address of the page where people answer; None where there is none."""
        self._store = store
        self._page = page
        self._clock = clock
        self._filing = asyncio.Lock()
        self._granted = Approver(store, otherwise=self._needed, clock=clock)

    async def __call__(self, question: Question) -> bool:
        """Whether the call may be made. Raises ApprovalNeeded, or ToolRefused where nobody can be asked."""
        passed = PASSED.get()
        if passed is None:
            return await self._granted(question)
        now = definition_hash(question.definition)
        if passed.hash == now:
            return True
        yes = await self._granted(question)
        passed.hash = now if yes else None
        return yes

    async def answer(self, owner: str, approval_id: str, *, yes: bool) -> bool:
        """Take somebody's answer to a call, for that one call. Whether the answer that counts is yes: another
        one may have come before."""
        approval = await self._store.find(owner, approval_id)
        if approval is None:
            return False
        now = self._clock()
        grant = granted(approval, None, now) if yes else None
        if await self._store.answer(owner, approval_id, yes=yes, at=now, grant=grant):
            return yes
        answered = await self._store.find(owner, approval_id)
        return answered is not None and answered.yes is True

    async def _needed(self, question: Question) -> bool:
        approval = await self._filed(question)
        told = f"'{approval.name}' needs an approval: {approval.reason}"
        if self._page is None:
            hint = "use a client that can ask you (elicitation), or set write_tools to 'allow'"
            raise ApprovalNeeded(told, approval=approval.id, hint=hint)
        link = f"{self._page}#{approval.id}"
        hint = f"it is given at {link}; then make the same call again"
        raise ApprovalNeeded(told, approval=approval.id, link=link, hint=hint)

    async def _filed(self, question: Question) -> Approval:
        """The approval that this call waits for, written down where it does not yet."""
        made = self._made(question)
        async with self._filing:
            waiting = [each for each in await self._store.waiting(made.owner) if each.chat_id is None]
            for each in waiting:
                if _is_same(each, made):
                    return each
            if len(waiting) >= _MOST:
                hint = f"answer some of them first: {self._page}" if self._page is not None else None
                raise ToolRefused(f"{len(waiting)} calls wait for an approval already", hint=hint)
            await self._store.ask(made)
        return made

    def _made(self, question: Question) -> Approval:
        decision, arguments = question.decision, dict(question.arguments)
        if len(_written(arguments)) > _LONGEST:
            raise ToolRefused(
                f"'{decision.name}' needs an approval, and its arguments are too long to be shown to anybody",
                hint=f"at most {_LONGEST} bytes can be approved",
            )
        return Approval(
            id=secrets.token_hex(12),
            owner=question.caller.principal.id,
            tool=decision.tool,
            name=decision.name,
            definition_hash=definition_hash(question.definition),
            arguments=arguments,
            reason="" if decision.decisive is None else decision.decisive.reason,
            asked_at=self._clock(),
        )


def _written(arguments: dict[str, object]) -> bytes:
    """As JSON. Raises ToolRefused for what is none: a number that is too large."""
    try:
        return orjson.dumps(arguments)
    except orjson.JSONEncodeError as error:
        raise ToolRefused(f"the arguments cannot be written down for an approval: {error}") from None


def _is_same(one: Approval, other: Approval) -> bool:
    same = (one.tool, one.definition_hash) == (other.tool, other.definition_hash)
    return same and fits({"": {"equal": dict(one.arguments)}}, other.arguments)
