"""Proposed servers: people ask for one, an admin adds it or declines. No address is contacted before."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from yarl import URL

from toolyard.errors import Problem
from toolyard.registry.errors import Invalid, NotFound, Taken
from toolyard.registry.server_draft_from_config import EntryDraft
from toolyard.registry.service import Registry, derive_slug
from toolyard.types.account import User
from toolyard.types.proposal import Proposal, ProposalState

if TYPE_CHECKING:
    from toolyard.store.repositories.proposals import SqlProposalStore

__all__ = ["MAX_REASON_CHARACTERS", "Proposals"]

MAX_REASON_CHARACTERS = 1000


class Proposals:
    """Proposals of all people."""

    def __init__(
        self, storage: SqlProposalStore, registry: Registry, clock: Callable[[], float] = time.time
    ) -> None:
        self._storage = storage
        self._registry = registry
        self._clock = clock

    async def add_address(self, user: User, found: EntryDraft, reason: str) -> Proposal:
        """Propose the server of an address. Raises Invalid, Taken or LimitReached."""
        draft = replace(found.draft, name=found.draft.name or derive_slug(found.draft.url), choices=())
        checked = self._registry.check_server(draft)
        for each in await self._registry.list_servers():
            if each.url.rstrip("/") == checked.url.rstrip("/"):
                hint = "connect to it on the Instances page"
                raise Taken(f"'{each.name}' is already registered with this address", field="text", hint=hint)
        # With look-alike letters in punycode: an admin decides by the address.
        url = checked.url if checked.url.isascii() else str(URL(checked.url))
        entry: dict[str, object] = {"type": checked.transport, "url": url}
        # Only names of headers: the draft has no values.
        headers = {each.key: "${KEY}" for each in found.draft.choices if each.key and each.place == "header"}
        return await self._add(
            user, checked.name, reason, entry={**entry, "headers": headers} if headers else entry
        )

    async def add_known(self, user: User, known_id: str, title: str, reason: str) -> Proposal:
        """Propose a server of the catalogue. Raises Invalid or LimitReached."""
        return await self._add(user, title, reason, known_id=known_id)

    async def _add(
        self,
        user: User,
        name: str,
        reason: str,
        *,
        known_id: str | None = None,
        entry: dict[str, object] | None = None,
    ) -> Proposal:
        reason = reason.strip()
        if not reason:
            raise Invalid([Problem("is required", path="reason")])
        if len(reason) > MAX_REASON_CHARACTERS:
            message = f"has more than {MAX_REASON_CHARACTERS:,} characters"
            raise Invalid([Problem(message, path="reason")])
        proposal = Proposal(
            secrets.token_hex(8), user.id, user.name, name, reason, self._clock(), known_id, entry
        )
        await self._storage.add(proposal)
        return proposal

    async def list_own(self, user_id: str) -> Sequence[Proposal]:
        """Return the proposals of a person, open ones first."""
        return await self._storage.list(user_id)

    async def list_all(self) -> Sequence[Proposal]:
        """Return the proposals of everyone, open ones first."""
        return await self._storage.list()

    async def get_open(self, proposal_id: str) -> Proposal:
        """Return an open proposal of anyone. Raises NotFound."""
        proposal = await self._storage.get(proposal_id)
        if proposal is None or proposal.state is not ProposalState.OPEN:
            raise _build_not_found_error()
        return proposal

    async def list_unseen(self, user_id: str) -> Sequence[Proposal]:
        """Return the decisions that a person has not seen yet."""
        return await self._storage.list_unseen(user_id)

    async def mark_seen(self, user_id: str) -> None:
        """Remember that a person has seen all decisions."""
        await self._storage.mark_seen(user_id, self._clock())

    async def accept(self, proposal_id: str, by: str, server_id: str | None) -> None:
        """Close a proposal after its server was added. Raises NotFound."""
        await self._decide(proposal_id, ProposalState.ACCEPTED, by, server_id=server_id)

    async def decline(self, proposal_id: str, by: str, answer: str) -> None:
        """Close a proposal with an answer for the person. Raises NotFound."""
        answer = answer.strip()[:MAX_REASON_CHARACTERS]
        await self._decide(proposal_id, ProposalState.DECLINED, by, answer=answer)

    async def withdraw(self, user_id: str, proposal_id: str) -> None:
        """Delete a proposal of a person. Raises NotFound."""
        if not await self._storage.delete(user_id, proposal_id):
            raise _build_not_found_error()

    async def _decide(
        self,
        proposal_id: str,
        state: ProposalState,
        by: str,
        *,
        answer: str = "",
        server_id: str | None = None,
    ) -> None:
        at = self._clock()
        if not await self._storage.decide(
            proposal_id, state, by=by, at=at, answer=answer, server_id=server_id
        ):
            raise _build_not_found_error()


def _build_not_found_error() -> NotFound:
    return NotFound("proposal not found", hint="it may have been decided or withdrawn")
