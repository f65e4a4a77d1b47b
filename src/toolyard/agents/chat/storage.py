"""Storage protocol of approvals, implemented by the database and, for the stdio gateway, in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from toolyard.types.approval import Approval, Grant
from toolyard.types.tool import JsonObject

__all__ = ["ApprovalStore"]


class ApprovalStore(Protocol):
    """Stores approvals of calls, and the grants that follow from them."""

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
