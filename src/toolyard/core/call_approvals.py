"""Approvals for calls of programs: each call is recorded once, and allowed after approval.

``MemoryApprovalStore`` is for a process whose only user is its own client.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace

import orjson

from toolyard.agents.chat.approval_grants import ApprovalStore, Approver, arguments_match, create_grant
from toolyard.catalog.hashes import definition_hash
from toolyard.errors import ApprovalNeeded, ToolRefused
from toolyard.types.approval import Approval, Grant, iterate_usable_grants
from toolyard.types.call import ApprovalRequest
from toolyard.types.tool import JsonObject

__all__ = ["CURRENT_APPROVAL", "CallApprovals", "MemoryApprovalStore", "RequestApproval"]


_MAX_PENDING_APPROVALS = 100
"""Maximum number of open approvals per owner; further calls are refused."""
_MAX_ARGUMENTS_BYTES = 256 * 1024
"""Maximum size of the arguments: a person could not review more."""


@dataclass(slots=True)
class RequestApproval:
    """The approval of one request: the hash of the approved tool definition."""

    approved_hash: str | None = None


CURRENT_APPROVAL: ContextVar[RequestApproval | None] = ContextVar("gateway_passed", default=None)
"""Approval of the request that the running task works on. It counts for all rounds of that request."""


class CallApprovals:
    """Approver of the call path for programs and chats.

    A call that no grant covers is recorded under an id; an equal call gets the same id.
    """

    def __init__(
        self,
        store: ApprovalStore,
        page_url: str | None = None,
        *,
        find_page_url: Callable[[], Awaitable[str | None]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``page_url`` is the address of the approvals page; None if there is none.

        ``find_page_url`` returns the address of a page that is opened only if the client cannot be asked.
        """
        self._store = store
        self._page_url = page_url
        self._find_page_url = find_page_url
        self._clock = clock
        self._create_lock = asyncio.Lock()
        self._approver = Approver(store, fallback=self._require_approval, clock=clock)

    async def __call__(self, question: ApprovalRequest) -> bool:
        """Return whether a call is allowed. Raises ApprovalNeeded, or ToolRefused without anyone to ask."""
        passed = CURRENT_APPROVAL.get()
        if passed is None:
            return await self._approver(question)
        now = definition_hash(question.definition)
        # Compared by definition: a tool that changed between two rounds needs a new approval.
        if passed.approved_hash == now:
            return True
        yes = await self._approver(question)
        passed.approved_hash = now if yes else None
        return yes

    async def answer(self, owner: str, approval_id: str, *, yes: bool) -> bool:
        """Record an answer for one call, and return whether the recorded answer is an approval.

        An earlier answer takes precedence.
        """
        approval = await self._store.find(owner, approval_id)
        if approval is None:
            return False
        now = self._clock()
        grant = create_grant(approval, None, now) if yes else None
        if await self._store.answer(owner, approval_id, yes=yes, at=now, grant=grant):
            return yes
        answered = await self._store.find(owner, approval_id)
        return answered is not None and answered.yes is True

    async def _require_approval(self, question: ApprovalRequest) -> bool:
        # No variable holds the error: with its traceback, it would be a reference cycle.
        raise self._build_error(await self._find_or_create(question))

    def _build_error(self, approval: Approval) -> ApprovalNeeded:
        cause = f"'{approval.name}' needs an approval: {approval.reason}"
        hint = "use a client that can ask you (elicitation), or set write_tools to 'allow'"
        needed = ApprovalNeeded(cause, approval=approval.id, hint=hint)
        if self._page_url is not None:
            _set_link(needed, self._page_url)
        return needed

    @property
    def has_page(self) -> bool:
        """Whether there is a page for approvals, or one that can be opened."""
        return self._page_url is not None or self._find_page_url is not None

    async def add_link(self, needed: ApprovalNeeded) -> None:
        """Add the link to the page, for a person who could not be asked otherwise."""
        if needed.link is None and self._find_page_url is not None:
            page_url = await self._find_page_url()
            if page_url is not None:
                _set_link(needed, page_url)

    async def _find_or_create(self, question: ApprovalRequest) -> Approval:
        """Return the open approval of this call, and record one if there is none."""
        made = self._build_approval(question)
        # Under a lock, so that two equal calls at the same time do not record two approvals.
        async with self._create_lock:
            waiting = [each for each in await self._store.list_pending(made.owner) if each.chat_id is None]
            # Comparing long arguments takes time.
            if waiting and (same := await asyncio.to_thread(_find_same_call, waiting, made)) is not None:
                return same
            if len(waiting) >= _MAX_PENDING_APPROVALS:
                hint = (
                    f"approve or decline some of them first: {self._page_url}"
                    if self._page_url is not None
                    else None
                )
                raise ToolRefused(f"{len(waiting)} calls are already waiting for approval", hint=hint)
            await self._store.add(made)
        return made

    def _build_approval(self, question: ApprovalRequest) -> Approval:
        decision, arguments = question.decision, dict(question.arguments)
        if len(_encode_arguments(arguments)) > _MAX_ARGUMENTS_BYTES:
            raise ToolRefused(
                f"'{decision.name}' needs an approval, and its arguments are too long to be shown",
                hint=f"the maximum is {_MAX_ARGUMENTS_BYTES:,} bytes",
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


def _set_link(needed: ApprovalNeeded, page_url: str) -> None:
    needed.link = f"{page_url}#{needed.approval}"
    needed.hint = f"approve it at {needed.link}, then make the same call again"


def _encode_arguments(arguments: dict[str, object]) -> bytes:
    """Encode the arguments as JSON. Raises ToolRefused for values that JSON cannot represent, such as too
    large numbers."""
    try:
        return orjson.dumps(arguments)
    except orjson.JSONEncodeError as error:
        raise ToolRefused(f"the arguments cannot be stored for an approval: {error}") from None


def _find_same_call(waiting: Sequence[Approval], made: Approval) -> Approval | None:
    return next((each for each in waiting if _is_same_call(each, made)), None)


def _is_same_call(one: Approval, other: Approval) -> bool:
    same = (one.tool, one.definition_hash) == (other.tool, other.definition_hash)
    return same and arguments_match({"": {"equal": dict(one.arguments)}}, other.arguments)


_MAX_APPROVALS = 256


class MemoryApprovalStore:
    """An ApprovalStore in memory. The oldest of many approvals are dropped."""

    def __init__(self) -> None:
        self._approvals: OrderedDict[str, Approval] = OrderedDict()
        self._grants: dict[str, Grant] = {}

    async def add(self, approval: Approval) -> None:
        self._approvals[approval.id] = approval
        while len(self._approvals) > _MAX_APPROVALS:
            self._approvals.popitem(last=False)

    async def find(self, owner: str, approval_id: str) -> Approval | None:
        found = self._approvals.get(approval_id)
        return found if found is not None and found.owner == owner else None

    async def list_pending(self, owner: str) -> Sequence[Approval]:
        return [each for each in self._approvals.values() if each.owner == owner and each.yes is None]

    async def answer(
        self, owner: str, approval_id: str, *, yes: bool, at: float, grant: Grant | None
    ) -> bool:
        found = await self.find(owner, approval_id)
        if found is None or found.yes is not None:
            return False
        self._approvals[approval_id] = replace(found, yes=yes, answered_at=at)
        if grant is not None:
            self._grants[grant.id] = grant
        return True

    async def list_grants(self, owner: str, now: float) -> Sequence[Grant]:
        self._grants = {id: each for id, each in self._grants.items() if each.expires_at > now}
        return [each for each in self._grants.values() if each.owner == owner]

    async def revoke(self, owner: str, grant_id: str) -> bool:
        found = self._grants.get(grant_id)
        if found is None or found.owner != owner:
            return False
        del self._grants[grant_id]
        return True

    async def use_grant(
        self,
        owner: str,
        tool: str,
        definition_hash: str,
        fits: Callable[[JsonObject], bool],
        chat_id: str | None,
        now: float,
    ) -> Grant | None:
        found = await self.list_grants(owner, now)
        async for grant in iterate_usable_grants(found, tool, definition_hash, fits, chat_id):
            if self._grants.get(grant.id) is not grant:
                continue  # Used or revoked by another task meanwhile.
            if grant.uses is not None and grant.uses <= 1:
                del self._grants[grant.id]
            elif grant.uses is not None:
                self._grants[grant.id] = replace(grant, uses=grant.uses - 1)
            return grant
        return None
