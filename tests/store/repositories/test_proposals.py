"""Storage of proposals, on both databases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from toolyard.errors import LimitReached
from toolyard.store import Database
from toolyard.store.repositories.proposals import SqlProposalStore
from toolyard.types.account import Role, User
from toolyard.types.proposal import Proposal, ProposalState


def proposal(user: User, id: str, at: float = 1.0) -> Proposal:
    entry = {"type": "http", "url": f"https://{id}.example/mcp"}
    return Proposal(id, user.id, user.name, id, "I need it", at, None, entry)


@pytest.fixture
async def database(reopen: Callable[..., Awaitable[Database]]) -> Database:
    return await reopen()


async def test_a_proposal_is_read_back_and_decided_once(database: Database) -> None:
    ann = await database.accounts.add_user("Ann", Role.USER)
    store = database.proposals
    await store.add(proposal(ann, "one"))
    assert await store.get("one") == proposal(ann, "one")
    decision = {"by": "root", "at": 2.0, "answer": "No \u0000words", "server_id": None}
    assert await store.decide("one", ProposalState.DECLINED, **decision)
    assert not await store.decide("one", ProposalState.ACCEPTED, by="root", at=3.0)
    (found_proposal,) = await store.list(ann.id)
    assert (found_proposal.state, found_proposal.decided_by, found_proposal.decided_at) == (
        ProposalState.DECLINED,
        "root",
        2.0,
    )
    assert [each.id for each in await store.list_unseen(ann.id)] == ["one"]
    await store.mark_seen(ann.id, 4.0)
    assert await store.list_unseen(ann.id) == []


async def test_open_proposals_are_limited_and_old_decisions_are_deleted(database: Database) -> None:
    ann, bob = [await database.accounts.add_user(name, Role.USER) for name in ("Ann", "Bob")]
    store = SqlProposalStore(database.executor, max_open=2, max_decided=1)
    for name in ("a", "b"):
        await store.add(proposal(ann, name))
    with pytest.raises(LimitReached, match="2 open proposals"):
        await store.add(proposal(ann, "c"))
    await store.add(proposal(bob, "d", 9.0))
    for at, name in enumerate(("a", "b")):
        await store.decide(name, ProposalState.ACCEPTED, by="root", at=float(at))
    await store.add(proposal(ann, "c", 5.0))
    assert [each.id for each in await store.list(ann.id)] == ["c", "b"]
    assert [(each.id, each.user_name) for each in await store.list()] == [
        ("d", "Bob"),
        ("c", "Ann"),
        ("b", "Ann"),
    ]


async def test_only_its_owner_deletes_a_proposal_and_it_goes_with_them(database: Database) -> None:
    ann, bob = [await database.accounts.add_user(name, Role.USER) for name in ("Ann", "Bob")]
    for name in ("a", "b"):
        await database.proposals.add(proposal(ann, name))
    assert not await database.proposals.delete(bob.id, "a")
    assert await database.proposals.delete(ann.id, "a")
    await database.accounts.delete_user(ann.id)
    assert await database.proposals.get("b") is None
    assert await database.proposals.get("\x00") is None
