"""In-memory approvals, for a process whose only user is its own client."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from toolyard.types.approval import Approval, Grant
from toolyard.types.tool import JsonObject

__all__ = ["MemoryApprovalStore"]

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

    async def waiting(self, owner: str) -> Sequence[Approval]:
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
        for grant in await self.list_grants(owner, now):
            same = (grant.tool, grant.definition_hash) == (tool, definition_hash)
            if not same or grant.chat_id not in (None, chat_id) or not fits(grant.predicate):
                continue
            if grant.uses is not None and grant.uses <= 1:
                del self._grants[grant.id]
            elif grant.uses is not None:
                self._grants[grant.id] = replace(grant, uses=grant.uses - 1)
            return grant
        return None
