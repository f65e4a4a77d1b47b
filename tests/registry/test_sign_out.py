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
    beside_site = Beside()
    yield beside_site
    for task in beside_site.tasks:
        task.cancel()


@pytest.fixture
def sign_outs(registry_fixture: RegistryFixture, beside: Beside) -> SignOutService:
    return SignOutService(registry_fixture.database.auth, registry_fixture.net, beside)


async def list_revoked_tokens(registry_fixture: RegistryFixture) -> list[str]:
    return [each["kind"] for each in await registry_fixture.program.log("revoke")]


BOTH = ["refresh_token", "access_token"]


async def test_with_a_server_go_the_sign_ins_of_all_its_instances(
    registry_fixture: RegistryFixture, sign_outs: SignOutService, beside: Beside
) -> None:
    first = await registry_fixture.sign_in(await registry_fixture.instance())
    second = await registry_fixture.registry.create_instance(
        registry_fixture.ann.id, InstanceDraft(first.server_id)
    )
    await registry_fixture.sign_in(second)
    await registry_fixture.registry.create_instance(registry_fixture.bob.id, InstanceDraft(first.server_id))
    deleted_sign_ins = await sign_outs.delete_server(registry_fixture.registry, first.server_id)
    assert deleted_sign_ins.id == first.server_id
    assert await registry_fixture.registry.list_servers() == []
    await beside.done()
    assert sorted(await list_revoked_tokens(registry_fixture)) == sorted(BOTH * 2)


async def test_deleting_a_user_deletes_only_their_records(
    registry_fixture: RegistryFixture, sign_outs: SignOutService, beside: Beside
) -> None:
    config = parse_config({"mcpServers": {"files": {"url": registry_fixture.program.mcp}}}, env={})
    sign_in = await registry_fixture.sign_in(await registry_fixture.instance())
    grant = await registry_fixture.database.auth.get_grant(sign_in.grant_key)
    assert grant is not None
    for whose in (registry_fixture.ann.id, registry_fixture.bob.id):
        await registry_fixture.database.auth.put_grant(f"user:{whose}:files", grant)
    user_grants = await sign_outs.collect_user_grants(
        registry_fixture.registry, registry_fixture.ann.principal, config.servers.values()
    )
    assert user_grants.keys() == {sign_in.grant_key, f"user:{registry_fixture.ann.id}:files"}
    await registry_fixture.database.accounts.delete_user(registry_fixture.ann.id)
    sign_outs.revoke_in_background(user_grants)
    await beside.done()
    assert sorted(await list_revoked_tokens(registry_fixture)) == sorted(BOTH * 2)
    assert await registry_fixture.database.auth.get_grant(f"user:{registry_fixture.bob.id}:files") is not None


async def test_a_disabled_user_keeps_instances_but_no_sign_ins(
    registry_fixture: RegistryFixture, sign_outs: SignOutService, beside: Beside
) -> None:
    sign_in = await registry_fixture.sign_in(await registry_fixture.instance())
    public = await registry_fixture.instance(ChoiceDraft("public"), slug="public")
    before = await registry_fixture.state(public)
    await sign_outs.sign_out_user(registry_fixture.registry, registry_fixture.ann.principal, ())
    await beside.done()
    assert await list_revoked_tokens(registry_fixture) == BOTH
    assert await registry_fixture.database.auth.get_grant(sign_in.grant_key) is None
    state, reason = await registry_fixture.state(sign_in)
    assert state is InstanceState.NEEDS_REAUTH
    assert reason is not None
    assert "disabled" in reason
    assert await registry_fixture.state(public) == before


async def test_an_unresponsive_issuer_does_not_prevent_deletion(
    registry_fixture: RegistryFixture, sign_outs: SignOutService, beside: Beside
) -> None:
    instance = await registry_fixture.sign_in(await registry_fixture.instance(OAUTH))
    await registry_fixture.program.change(metadata_status=503)
    async with asyncio.timeout(30):
        await sign_outs.delete_server(registry_fixture.registry, instance.server_id)
    assert await registry_fixture.registry.list_servers() == []
    await beside.done()
    assert await list_revoked_tokens(registry_fixture) == []


async def test_an_unreadable_sign_in_does_not_prevent_deletion(
    registry_fixture: RegistryFixture, sign_outs: SignOutService, beside: Beside
) -> None:
    instance = await registry_fixture.sign_in(await registry_fixture.instance())
    grant = await registry_fixture.database.auth.get_grant(instance.grant_key)
    assert grant is not None
    await registry_fixture.database.auth.put_grant("elsewhere", grant)
    await move_grant(registry_fixture, "elsewhere", instance.grant_key)
    await sign_outs.delete_server(registry_fixture.registry, instance.server_id)
    assert await registry_fixture.registry.list_servers() == []
    assert beside.tasks == []


async def move_grant(registry_fixture: RegistryFixture, old: str, new: str) -> None:
    """What is sealed for one place does not open at another."""
    from sqlalchemy import Connection, delete, update

    from toolyard.store.sql.stored_values import compute_digest
    from toolyard.store.sql.tables import auth_grants

    def work(connection: Connection) -> None:
        connection.execute(delete(auth_grants).where(auth_grants.c.digest == compute_digest(new)))
        moving = update(auth_grants).where(auth_grants.c.digest == compute_digest(old))
        connection.execute(moving.values(digest=compute_digest(new)))

    await registry_fixture.database.executor.write(work)
