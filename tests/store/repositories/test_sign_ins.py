"""Sign-ins to servers in the store, in both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.tasks import cancel

from toolyard.auth.storage import OAuthClient, OAuthGrant, PendingSignIn, new_serial
from toolyard.store import Database
from toolyard.store.errors import Unreadable, Unstorable

DAY_SECONDS = 86_400.0


async def test_a_pending_sign_in_is_taken_once(database: Database, pending: PendingSignIn) -> None:
    auth = database.auth
    await auth.put_pending(pending)
    assert await auth.take_pending("another") is None
    results = await asyncio.gather(*(auth.take_pending(pending.state) for _ in range(10)))
    assert [one for one in results if one] == [pending]


async def test_old_pending_sign_ins_are_forgotten(
    database: Database, pending: PendingSignIn, rows: Callable[[str], Any]
) -> None:
    await database.auth.put_pending(pending)
    await database.auth.put_pending(
        replace(pending, state="later", began_at=pending.began_at + DAY_SECONDS + 1)
    )
    assert len(await rows("auth_pending")) == 1
    assert await database.auth.take_pending("later") is not None


@pytest.mark.parametrize("state", ["", "a\0b", "\ud800", "x" * 100_000])
async def test_a_state_that_cannot_be_is_unknown(database: Database, state: str) -> None:
    assert await database.auth.take_pending(state) is None


async def test_a_grant_comes_back_as_it_was_put(database: Database, grant: OAuthGrant) -> None:
    auth = database.auth
    bare = replace(
        grant,
        client=replace(grant.client, secret=None, scopes=None, expires_at=None),
        resource=None,
        refresh_token=None,
        expires_at=None,
        scopes=(),
        wanted=(),
    )
    await auth.put_grant("k", grant)
    await auth.put_grant("K", bare)
    assert await auth.get_grant("k") == grant
    assert await auth.get_grant("K") == bare
    assert await auth.get_grant("other") is None
    await auth.put_grant("k", bare)
    assert await auth.get_grant("k") == bare
    await auth.drop_grant("k")
    await auth.drop_grant("k")
    assert await auth.get_grant("k") is None
    assert await auth.get_grant("K") == bare


async def test_a_key_may_be_longer_than_an_index_takes(database: Database, grant: OAuthGrant) -> None:
    key = "https://api.example/" + "x" * 20_000
    await database.auth.put_grant(key, grant)
    assert await database.auth.get_grant(key) == grant


async def test_a_grant_is_swapped_by_one_of_many(database: Database, grant: OAuthGrant) -> None:
    auth = database.auth
    await auth.put_grant("k", grant)
    news = [replace(grant, access_token=f"token {number}", serial=new_serial()) for number in range(20)]
    results = await asyncio.gather(*(auth.swap_grant("k", grant.serial, new) for new in news))
    assert sum(results) == 1
    assert await auth.get_grant("k") == news[results.index(True)]
    assert not await auth.swap_grant("k", grant.serial, grant)
    assert not await auth.swap_grant("nothing", grant.serial, grant)
    assert await auth.get_grant("nothing") is None


async def test_a_client_is_kept_by_issuer_and_redirect(database: Database, client: OAuthClient) -> None:
    auth = database.auth
    await auth.put_client(client)
    assert await auth.get_client(client.issuer, client.redirect_uri) == client
    assert await auth.get_client(client.issuer, "https://elsewhere.example") is None
    assert await auth.get_client(client.issuer + client.redirect_uri, "") is None
    newer = replace(client, client_id="second", scopes=None)
    await auth.put_client(newer)
    await auth.drop_client(client)
    assert await auth.get_client(client.issuer, client.redirect_uri) == newer
    await auth.drop_client(newer)
    assert await auth.get_client(client.issuer, client.redirect_uri) is None


async def test_an_issuer_is_bound_with_and_without_a_secret(database: Database) -> None:
    auth, client = database.auth, ("https://s.example", "us")
    for for_secret in (False, True):
        assert await auth.get_bound_issuer(*client, for_secret=for_secret) is None
    await auth.bind_issuer(*client, "https://h.example", for_secret=False)
    await auth.bind_issuer(*client, "https://i.example", for_secret=False)
    assert await auth.get_bound_issuer(*client, for_secret=False) == "https://i.example"
    assert await auth.get_bound_issuer(*client, for_secret=True) is None
    await auth.bind_issuer(*client, "https://j.example", for_secret=True)
    for for_secret in (False, True):
        assert await auth.get_bound_issuer(*client, for_secret=for_secret) == "https://j.example"


async def test_a_record_of_an_older_or_newer_version_is_read(database: Database, grant: OAuthGrant) -> None:
    """Replicas are updated one after the other."""
    import orjson
    from sqlalchemy import update

    from toolyard.store.sql.tables import auth_grants

    await database.auth.put_grant("k", grant)
    row = await database.executor.read(lambda c: c.execute(auth_grants.select()).one())
    place = f"auth_grants.body:{row.digest}"
    body = orjson.loads(database.cipher.decrypt(row.body, place))
    del body["wanted"]
    body["of_tomorrow"] = ["x"]
    encrypted_body = database.cipher.encrypt(orjson.dumps(body), place)
    await database.executor.write(lambda c: c.execute(update(auth_grants).values(body=encrypted_body)))
    assert await database.auth.get_grant("k") == replace(grant, wanted=())


async def test_a_body_that_was_moved_to_another_row_does_not_open(
    database: Database, grant: OAuthGrant
) -> None:
    """Who can write to the database must not be able to give one person the tokens of another."""
    from sqlalchemy import select, update

    from toolyard.store.sql.tables import auth_grants

    await database.auth.put_grant("instance:ann", grant)
    await database.auth.put_grant("instance:bob", grant)
    other = select(auth_grants.c.body).where(auth_grants.c.key == "instance:ann").scalar_subquery()
    moving = update(auth_grants).where(auth_grants.c.key == "instance:bob").values(body=other)
    await database.executor.write(lambda c: c.execute(moving))
    assert await database.auth.get_grant("instance:ann") == grant
    with pytest.raises(Unreadable, match="auth_grants"):
        await database.auth.get_grant("instance:bob")


async def test_a_client_that_does_not_open_is_not_there_and_that_is_told(
    database: Database, client: OAuthClient, caplog: pytest.LogCaptureFixture
) -> None:
    from sqlalchemy import update

    from toolyard.store.sql.tables import auth_clients

    await database.auth.put_client(client)
    await database.executor.write(lambda c: c.execute(update(auth_clients).values(body=b"of another key")))
    assert await database.auth.get_client(client.issuer, client.redirect_uri) is None
    [log_messages] = [
        record.getMessage() for record in caplog.records if record.name == "toolyard.store.auth"
    ]
    assert client.issuer in log_messages
    assert client.client_id not in log_messages


async def test_unencodable_values_are_refused_whole(database: Database, grant: OAuthGrant) -> None:
    with pytest.raises(Unstorable):
        await database.auth.put_grant("k", replace(grant, access_token="\ud800"))
    with pytest.raises(Unstorable, match="NUL"):
        await database.auth.put_grant("k\0", grant)
    assert await database.auth.get_grant("k") is None
    assert await database.auth.get_grant("k\0") is None
    # Inside of what is encrypted every character is welcome.
    await database.auth.put_grant("k", replace(grant, access_token="a\0b"))
    found_grant = await database.auth.get_grant("k")
    assert found_grant is not None
    assert found_grant.access_token == "a\0b"


# One refresh at a time.


async def test_tasks_refresh_one_after_the_other(database: Database) -> None:
    inside, most = 0, 0

    async def refresh(key: str) -> None:
        nonlocal inside, most
        async with database.auth.refresh_lock(key):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= 1

    await asyncio.gather(*(refresh("k") for _ in range(50)))
    assert most == 1
    both = asyncio.Barrier(2)

    async def beside(key: str) -> None:
        async with database.auth.refresh_lock(key):
            await both.wait()

    async with asyncio.timeout(30):
        await asyncio.gather(beside("k1"), beside("k2"))


async def test_two_processes_refresh_one_after_the_other(
    database: Database, reopen: Callable[..., Any]
) -> None:
    other: Database = await reopen()
    order: list[str] = []

    async def refresh(one: Database, name: str) -> None:
        async with one.auth.refresh_lock("k"):
            order.append(f"{name} begins")
            await asyncio.sleep(0.02)
            order.append(f"{name} ends")

    await asyncio.gather(*(refresh(one, name) for one, name in ((database, "a"), (other, "b")) * 5))
    for begin_step, end_step in zip(order[::2], order[1::2], strict=True):
        assert begin_step.split()[0] == end_step.split()[0]


async def test_a_waiter_that_gives_up_leaves_the_lock_to_others(database: Database) -> None:
    async def wait() -> None:
        async with database.auth.refresh_lock("k"):
            raise AssertionError("the lock was held twice")

    async with database.auth.refresh_lock("k"):
        waiters = [asyncio.create_task(wait()) for _ in range(5)]
        await asyncio.sleep(0.1)
        await cancel(*waiters)
    async with asyncio.timeout(30), database.auth.refresh_lock("k"):
        pass


async def test_a_waiter_between_processes_that_gives_up_leaves_the_lock(
    database: Database, reopen: Callable[..., Any]
) -> None:
    other: Database = await reopen()

    async def wait() -> None:
        async with other.auth.refresh_lock("k"):
            raise AssertionError("the lock was held twice")

    async with database.auth.refresh_lock("k"):
        waiter = asyncio.create_task(wait())
        await asyncio.sleep(0.1)
        await cancel(waiter)
    for one in (database, other):
        async with asyncio.timeout(30), one.auth.refresh_lock("k"):
            pass


async def test_a_failed_refresh_lets_go(database: Database) -> None:
    with pytest.raises(RuntimeError, match="no"):
        async with database.auth.refresh_lock("k"):
            raise RuntimeError("no")
    async with asyncio.timeout(30), database.auth.refresh_lock("k"):
        pass


async def test_waiting_for_one_key_does_not_delay_other_keys(database: Database) -> None:
    async def refresh(key: str) -> None:
        async with database.auth.refresh_lock(key):
            pass

    async with database.auth.refresh_lock("k"):
        waiters = [asyncio.create_task(refresh("k")) for _ in range(50)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(30):
            await refresh("another")
        assert not any(waiter.done() for waiter in waiters)
    async with asyncio.timeout(30):
        await asyncio.gather(*waiters)


async def test_many_refreshes_and_much_other_work_do_not_block_each_other(
    database: Database, grant: OAuthGrant
) -> None:
    """More refreshes at once than the pool has connections, each of which uses the database inside."""

    async def refresh(number: int) -> None:
        key = f"k{number % 60}"
        async with database.auth.refresh_lock(key):
            await database.auth.put_grant(key, grant)
            assert await database.auth.get_grant(key) == grant

    async with asyncio.timeout(60):
        await asyncio.gather(*map(refresh, range(120)))
