"""Servers and instances in the store, in both databases."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event, text

from toolyard.auth.storage import OAuthGrant, PendingSignIn
from toolyard.registry.errors import NotFound, Taken
from toolyard.store import Database
from toolyard.types.account import User
from toolyard.types.approval import Approval, Grant
from toolyard.types.registry import Instance, InstanceState, RegistryServer

# Servers.


async def test_a_server_comes_back_as_it_was_added(database: Database, server: RegistryServer) -> None:
    plain = RegistryServer("a plain one", "http://plain.example", id="server-2")
    await database.registry.add_server(server)
    await database.registry.add_server(plain)
    assert await database.registry.get_server(server.id) == server
    assert await database.registry.list_servers() == [plain, server]
    assert await database.registry.get_server("server-3") is None


@pytest.mark.parametrize("same", ["GITHUB", "ｇｉｔｈｕｂ"])
async def test_a_server_name_is_taken_once(database: Database, server: RegistryServer, same: str) -> None:
    await database.registry.add_server(server)
    other = RegistryServer(same, "http://other.example", id="server-2")
    with pytest.raises(Taken, match="a server named") as exc_info:
        await database.registry.add_server(other)
    assert exc_info.value.field == "name"
    await database.registry.add_server(replace(other, name="Other"))
    with pytest.raises(Taken):
        await database.registry.save_server(other)
    # Nothing of either was written.
    assert (await database.registry.get_server("server-2")) == replace(other, name="Other")


async def test_a_saved_server_is_replaced_whole(database: Database, server: RegistryServer) -> None:
    await database.registry.add_server(server)
    secret = replace(server.choices[2], client_secret="another")
    changed_server = replace(server, name="GITHUB", allow_tools=None, choices=(secret, server.choices[0]))
    assert await database.registry.save_server(changed_server)
    assert await database.registry.get_server(server.id) == changed_server
    assert not await database.registry.save_server(replace(server, id="server-2", name="New"))
    assert await database.registry.get_server("server-2") is None


async def test_two_servers_may_use_the_same_ids_for_their_choices(
    database: Database, server: RegistryServer
) -> None:
    twin = replace(server, id="server-2", name="Twin")
    await database.registry.add_server(server)
    await database.registry.add_server(twin)
    assert await database.registry.get_server("server-2") == twin


async def test_a_deleted_server_takes_its_instances_and_sign_ins_along(
    database: Database,
    instance: Instance,
    grant: OAuthGrant,
    pending: PendingSignIn,
    rows: Callable[[str], Any],
) -> None:
    await database.auth.put_grant(instance.grant_key, grant)
    await database.auth.put_grant("user:x:files", grant)
    await database.auth.put_pending(pending)
    assert await database.registry.count_instances() == {instance.server_id: 1}
    assert await database.registry.delete_server(instance.server_id)
    assert not await database.registry.delete_server(instance.server_id)
    assert await database.registry.list_instances(instance.user_id) == []
    assert await database.registry.count_instances() == {}
    assert [row["key"] for row in await rows("auth_grants")] == ["user:x:files"]
    for table in ("auth_pending", "auth_choices", "instances"):
        assert await rows(table) == []


# Choices that are gone.


async def test_instances_of_a_choice_that_is_gone_start_again(
    database: Database,
    ann: User,
    server: RegistryServer,
    instance: Instance,
    grant: OAuthGrant,
    pending: PendingSignIn,
) -> None:
    kept_instance = Instance(
        server.id,
        "c-oauth",
        "work",
        "Work",
        id="instance-2",
        user_id=ann.id,
        state=InstanceState.READY,
        reason="fine",
    )
    await database.registry.add_instance(kept_instance)
    for key in (instance.grant_key, kept_instance.grant_key):
        await database.auth.put_grant(key, grant)
    await database.auth.put_pending(pending)

    await database.registry.save_server(replace(server, choices=server.choices[2:]))

    instances_by_id = {one.id: one for one, _ in await database.registry.list_instances(ann.id)}
    assert instances_by_id[kept_instance.id] == kept_instance
    removed_instance = instances_by_id[instance.id]
    assert (removed_instance.state, removed_instance.value, removed_instance.choice_id) == (
        InstanceState.PENDING,
        None,
        "c-header",
    )
    assert removed_instance.reason is not None
    assert await database.auth.get_grant(instance.grant_key) is None
    assert await database.auth.take_pending(pending.state) is None
    assert await database.auth.get_grant(kept_instance.grant_key) == grant


async def test_a_server_without_choices_is_possible(
    database: Database, server: RegistryServer, instance: Instance
) -> None:
    await database.registry.save_server(replace(server, choices=()))
    found_instance = await database.registry.get_instance(instance.user_id, instance.id)
    assert found_instance is not None
    assert found_instance[0].state is InstanceState.PENDING
    assert found_instance[1].choices == ()


# Instances.


async def test_an_instance_comes_back_with_its_server(
    database: Database, ann: User, server: RegistryServer, instance: Instance
) -> None:
    full = Instance(
        server.id,
        "c-public",
        "Alpha",
        "First",
        id="instance-2",
        user_id=ann.id,
        enabled=False,
        tool_filter=(),
        value="",
        state=InstanceState.FAILED,
        reason="it was down",
        created_at=3.5,
        updated_at=4.5,
    )
    await database.registry.add_instance(full)
    some = replace(full, id="instance-3", slug="beta", tool_filter=("read", "list"), value=None)
    await database.registry.add_instance(some)
    instances = await database.registry.list_instances(ann.id)
    assert instances == [(full, server), (some, server), (instance, server)]
    assert await database.registry.get_instance(ann.id, full.id) == (full, server)


async def test_users_cannot_see_or_change_instances_of_others(
    database: Database, bob: User, instance: Instance
) -> None:
    registry = database.registry
    assert await registry.list_instances(bob.id) == []
    assert await registry.get_instance(bob.id, instance.id) is None
    assert not await registry.delete_instance(bob.id, instance.id)
    assert not await registry.save_instance(replace(instance, user_id=bob.id, name="Mine"))
    found_instance = await registry.get_instance(instance.user_id, instance.id)
    assert found_instance is not None
    assert found_instance[0] == instance


async def test_a_slug_is_taken_once_by_each_user(
    database: Database, ann: User, bob: User, instance: Instance
) -> None:
    same = replace(instance, id="instance-2", slug="GITHUB")
    with pytest.raises(Taken, match="you already have an instance") as exc_info:
        await database.registry.add_instance(same)
    assert exc_info.value.field == "slug"
    await database.registry.add_instance(replace(same, user_id=bob.id))
    other = replace(instance, id="instance-3", slug="other")
    await database.registry.add_instance(other)
    with pytest.raises(Taken):
        await database.registry.save_instance(replace(other, slug="gitHub"))
    assert await database.registry.save_instance(replace(other, slug="OTHER"))
    assert [one.slug for one, _ in await database.registry.list_instances(ann.id)] == ["GitHub", "OTHER"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"server_id": "server-9"}, "the server no longer exists"),
        ({"choice_id": "c-9"}, "no longer offers"),
        ({"user_id": "nobody"}, "the user no longer exists"),
    ],
)
async def test_an_instance_of_nothing_cannot_be_added(
    database: Database, instance: Instance, change: dict[str, str], words: str
) -> None:
    with pytest.raises(NotFound, match=words):
        await database.registry.add_instance(replace(instance, id="instance-2", slug="two", **change))


async def test_a_saved_instance_is_replaced_but_not_moved(
    database: Database, server: RegistryServer, instance: Instance
) -> None:
    registry = database.registry
    changed_instance = replace(
        instance, name="New", slug="new", enabled=False, tool_filter=("a",), value="other", updated_at=9.0
    )
    assert await registry.save_instance(changed_instance)
    assert await registry.get_instance(instance.user_id, instance.id) == (changed_instance, server)
    twin = replace(server, id="server-2", name="Twin")
    await registry.add_server(twin)
    assert not await registry.save_instance(replace(changed_instance, server_id="server-2"))
    with pytest.raises(NotFound):
        await registry.save_instance(replace(changed_instance, choice_id="c-9"))
    await registry.delete_instance(instance.user_id, instance.id)
    assert not await registry.save_instance(changed_instance)


async def test_another_choice_drops_the_sign_in_of_the_first(
    database: Database, instance: Instance, grant: OAuthGrant, pending: PendingSignIn
) -> None:
    await database.auth.put_grant(instance.grant_key, grant)
    await database.registry.save_instance(replace(instance, name="Same choice"))
    assert await database.auth.get_grant(instance.grant_key) == grant
    await database.auth.put_pending(pending)
    await database.registry.save_instance(replace(instance, choice_id="c-oauth", value=None))
    assert await database.auth.get_grant(instance.grant_key) is None
    assert await database.auth.take_pending(pending.state) is None


async def test_learned_states_are_stored(database: Database, instance: Instance) -> None:
    registry = database.registry
    await registry.set_instance_state(
        instance.id, InstanceState.NEEDS_REAUTH, "refused\0 \ud800" + "x" * 50_000
    )
    found_instance = await registry.get_instance(instance.user_id, instance.id)
    assert found_instance is not None
    assert found_instance[0].state is InstanceState.NEEDS_REAUTH
    assert found_instance[0].reason is not None
    assert found_instance[0].reason.startswith("refused\ufffd ?xxx")
    assert found_instance[0].value == instance.value
    await registry.set_instance_state("instance-9", InstanceState.READY, None)


async def test_a_deleted_instance_takes_its_sign_ins_along(
    database: Database,
    instance: Instance,
    grant: OAuthGrant,
    pending: PendingSignIn,
    rows: Callable[[str], Any],
) -> None:
    await database.auth.put_grant(instance.grant_key, grant)
    await database.auth.put_pending(pending)
    await database.auth.put_pending(replace(pending, state="second tab"))
    assert await database.registry.delete_instance(instance.user_id, instance.id)
    assert await rows("auth_grants") == []
    assert await rows("auth_pending") == []


async def test_a_new_host_drops_credentials_of_the_old_one(
    database: Database, ann: User, server: RegistryServer, instance: Instance, grant: OAuthGrant
) -> None:
    public = Instance(
        server.id, "c-public", "p", "P", id="instance-2", user_id=ann.id, state=InstanceState.READY
    )
    await database.registry.add_instance(public)
    await database.registry.set_instance_state(instance.id, InstanceState.READY, None)
    await database.auth.put_grant(instance.grant_key, grant)
    await database.registry.reset_instances(server.id)
    instances_by_id = {one.id: one for one, _ in await database.registry.list_instances(ann.id)}
    assert instances_by_id[public.id] == public
    assert (instances_by_id[instance.id].state, instances_by_id[instance.id].value) == (
        InstanceState.PENDING,
        None,
    )
    assert await database.auth.get_grant(instance.grant_key) is None


# At once.


async def test_a_slug_taken_by_many_at_once_goes_to_one(database: Database, instance: Instance) -> None:
    async def take(number: int) -> bool:
        try:
            await database.registry.add_instance(replace(instance, id=f"i{number}", slug="Fresh"))
        except Taken:
            return False
        return True

    assert sum(await asyncio.gather(*map(take, range(20)))) == 1


async def test_no_instance_gets_a_choice_that_is_being_removed(
    database: Database, server: RegistryServer, instance: Instance
) -> None:
    entered, go_on, writer = threading.Event(), threading.Event(), database.executor.engines.writer

    def wait_before_reset(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE instances"):
            entered.set()
            assert go_on.wait(60)

    event.listen(writer, "before_cursor_execute", wait_before_reset)
    registry = database.registry
    saving = asyncio.create_task(registry.save_server(replace(server, choices=server.choices[1:])))
    assert await asyncio.to_thread(entered.wait, 20)
    late = replace(instance, id="late", slug="late", choice_id="c-public")
    changed_instance = replace(instance, choice_id="c-public")
    attempts = [
        asyncio.create_task(registry.add_instance(late)),
        asyncio.create_task(registry.save_instance(changed_instance)),
    ]
    # SQLite has one writer, so that nothing else can be waited for.
    if database.executor.engines.kind == "postgresql":
        await _wait_for_lock_waiters(database, len(attempts))
    go_on.set()
    assert await saving
    for outcome in await asyncio.gather(*attempts, return_exceptions=True):
        assert isinstance(outcome, NotFound)
    event.remove(writer, "before_cursor_execute", wait_before_reset)


async def _wait_for_lock_waiters(database: Database, count: int) -> None:
    waiters = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    async with asyncio.timeout(30):
        while await database.executor.fetch_value(waiters) != count:
            await asyncio.sleep(0.01)


async def test_listing_survives_servers_that_are_deleted_meanwhile(
    database: Database, server: RegistryServer, instance: Instance
) -> None:
    registry = database.registry

    async def come_and_go() -> None:
        for number in range(20):
            twin = replace(server, id=f"twin-{number}", name=f"Twin {number}")
            await registry.add_server(twin)
            await registry.add_instance(
                replace(instance, id=f"i{number}", slug=f"s{number}", server_id=twin.id)
            )
            await registry.delete_server(twin.id)

    async def look() -> list[tuple[Instance, RegistryServer]]:
        return [pair for _ in range(60) for pair in await registry.list_instances(instance.user_id)]

    _, *row_counts = await asyncio.gather(come_and_go(), look(), look())
    for pairs in row_counts:
        assert pairs
        assert all(one.server_id == of.id for one, of in pairs)


async def test_a_list_takes_the_same_few_queries_however_long_it_is(
    database: Database, ann: User, server: RegistryServer, instance: Instance
) -> None:
    for number in range(30):
        await database.registry.add_server(replace(server, id=f"s{number}", name=f"S {number}"))
        await database.registry.add_instance(
            replace(instance, id=f"i{number}", slug=f"i{number}", server_id=f"s{number}")
        )
    statements: list[str] = []

    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    reader = database.executor.engines.reader
    event.listen(reader, "before_cursor_execute", count)
    assert len(await database.registry.list_instances(ann.id)) == 31
    assert len(statements) == 3
    assert len(await database.registry.list_servers()) == 31
    assert len(statements) == 5
    assert await database.registry.get_instance(ann.id, "i5") is not None
    assert len(statements) == 8
    event.remove(reader, "before_cursor_execute", count)


# Approvals for the tools of instances.


@pytest.mark.parametrize("change", ["delete", "rename", "delete server", "move server"])
async def test_no_approval_is_left_to_the_next_server_under_a_slug(
    database: Database, instance: Instance, change: str
) -> None:
    own = f"@{instance.user_id}/{instance.slug}"
    tools = [f"{own}/write", f"{own}-2/write", f"@other/{instance.slug}/write", f"{instance.slug}/write"]
    for number, tool in enumerate(tools):
        approval = Approval(f"a{number}", instance.user_id, tool, "write", "hash", {}, "it writes", 1.0)
        await database.approvals.add(approval)
        grant = Grant(f"g{number}", instance.user_id, tool, "write", "hash", "{}", 1.0, 1_000.0)
        assert await database.approvals.answer(instance.user_id, approval.id, yes=True, at=1.0, grant=grant)
        await database.approvals.add(replace(approval, id=f"open{number}"))
    await database.registry.save_instance(replace(instance, name="Another label"))
    assert len(await database.approvals.list_grants(instance.user_id, 2.0)) == 4
    if change == "delete":
        await database.registry.delete_instance(instance.user_id, instance.id)
    elif change == "rename":
        await database.registry.save_instance(replace(instance, slug="elsewhere"))
    elif change == "delete server":
        await database.registry.delete_server(instance.server_id)
    else:
        await database.registry.reset_instances(instance.server_id)
    grants = await database.approvals.list_grants(instance.user_id, 2.0)
    assert sorted(each.tool for each in grants) == sorted(tools[1:])
    pending = await database.approvals.list_pending(instance.user_id)
    assert sorted(each.tool for each in pending) == sorted(tools[1:])
