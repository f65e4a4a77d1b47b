"""Whatever ends a sign-in, its tokens are given back; and whatever their giver does, it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.registry.conftest import OAUTH, RegistryFixture

from toolyard.config import parse_config
from toolyard.registry import ChoiceDraft, InstanceDraft
from toolyard.registry.sign_out import SignOutService
from toolyard.types.registry import InstanceState


class Beside:
    """What runs beside everything else."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def __call__(self, work: Any) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def done(self) -> None:
        async with asyncio.timeout(60):
            await asyncio.gather(*self.tasks)


@pytest.fixture
async def beside() -> AsyncIterator[Beside]:
    made = Beside()
    yield made
    for task in made.tasks:
        task.cancel()


@pytest.fixture
def sign_outs(office: RegistryFixture, beside: Beside) -> SignOutService:
    return SignOutService(office.database.auth, office.net, beside)


async def given_back(office: RegistryFixture) -> list[str]:
    return [each["kind"] for each in await office.program.log("revoke")]


BOTH = ["refresh_token", "access_token"]


async def test_with_a_server_go_the_sign_ins_of_all_its_instances(
    office: RegistryFixture, sign_outs: SignOutService, beside: Beside
) -> None:
    first = await office.sign_in(await office.instance())
    second = await office.registry.create_instance(office.ann.id, InstanceDraft(first.server_id))
    await office.sign_in(second)
    await office.registry.create_instance(office.bob.id, InstanceDraft(first.server_id))
    deleted = await sign_outs.delete_server(office.registry, first.server_id)
    assert deleted.id == first.server_id
    assert await office.registry.list_servers() == []
    await beside.done()
    assert sorted(await given_back(office)) == sorted(BOTH * 2)


async def test_with_a_user_goes_what_they_hold_and_nobody_elses(
    office: RegistryFixture, sign_outs: SignOutService, beside: Beside
) -> None:
    config = parse_config({"mcpServers": {"files": {"url": office.program.mcp}}}, env={})
    mine = await office.sign_in(await office.instance())
    grant = await office.database.auth.get_grant(mine.grant_key)
    assert grant is not None
    for whose in (office.ann.id, office.bob.id):
        await office.database.auth.put_grant(f"user:{whose}:files", grant)
    held = await sign_outs.collect_user_grants(office.registry, office.ann.principal, config.servers.values())
    assert held.keys() == {mine.grant_key, f"user:{office.ann.id}:files"}
    await office.database.accounts.delete_user(office.ann.id)
    sign_outs.revoke_in_background(held)
    await beside.done()
    assert sorted(await given_back(office)) == sorted(BOTH * 2)
    assert await office.database.auth.get_grant(f"user:{office.bob.id}:files") is not None


async def test_whoever_is_disabled_keeps_their_instances_and_no_sign_in(
    office: RegistryFixture, sign_outs: SignOutService, beside: Beside
) -> None:
    signed = await office.sign_in(await office.instance())
    public = await office.instance(ChoiceDraft("public"), slug="public")
    before = await office.state(public)
    await sign_outs.sign_out_user(office.registry, office.ann.principal, ())
    await beside.done()
    assert await given_back(office) == BOTH
    assert await office.database.auth.get_grant(signed.grant_key) is None
    state, reason = await office.state(signed)
    assert state is InstanceState.NEEDS_REAUTH
    assert reason is not None
    assert "disabled" in reason
    assert await office.state(public) == before


async def test_a_giver_that_does_not_answer_keeps_nobody_from_deleting(
    office: RegistryFixture, sign_outs: SignOutService, beside: Beside
) -> None:
    instance = await office.sign_in(await office.instance(OAUTH))
    await office.program.change(metadata_status=503)
    async with asyncio.timeout(30):
        await sign_outs.delete_server(office.registry, instance.server_id)
    assert await office.registry.list_servers() == []
    await beside.done()
    assert await given_back(office) == []


async def test_a_sign_in_that_cannot_be_read_keeps_nobody_from_deleting(
    office: RegistryFixture, sign_outs: SignOutService, beside: Beside
) -> None:
    instance = await office.sign_in(await office.instance())
    grant = await office.database.auth.get_grant(instance.grant_key)
    assert grant is not None
    await office.database.auth.put_grant("elsewhere", grant)
    await move_grant(office, "elsewhere", instance.grant_key)
    await sign_outs.delete_server(office.registry, instance.server_id)
    assert await office.registry.list_servers() == []
    assert beside.tasks == []


async def move_grant(office: RegistryFixture, old: str, new: str) -> None:
    """What is sealed for one place does not open at another."""
    from sqlalchemy import Connection, delete, update

    from toolyard.store.sql.stored_values import compute_digest
    from toolyard.store.sql.tables import auth_grants

    def work(connection: Connection) -> None:
        connection.execute(delete(auth_grants).where(auth_grants.c.digest == compute_digest(new)))
        moving = update(auth_grants).where(auth_grants.c.digest == compute_digest(old))
        connection.execute(moving.values(digest=compute_digest(new)))

    await office.database.executor.write(work)
