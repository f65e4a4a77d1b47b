"""Another key, in both databases: nothing is lost on the way, and at its end the former one opens nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import LargeBinary, select, update
from tests.store.conftest import KEY

from toolyard.auth.storage import OAuthClient, OAuthGrant, PendingSignIn
from toolyard.store import Database
from toolyard.store.errors import KeyUnusable, Unreadable, WrongKey
from toolyard.store.key_rotation import ENCRYPTED_COLUMNS, KeyRotationResult
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.tables import auth_grants, metadata
from toolyard.types.registry import Instance, RegistryServer
from toolyard.types.stored_model import StoredModel

Open = Callable[..., Awaitable[Database]]
NEW = "another key, which is as long"
BETWEEN = {"secret_key": NEW, "former_key": KEY}


def test_the_former_key_opens_and_seals_nothing() -> None:
    old, new = Cipher(KEY), Cipher(NEW, KEY)
    assert new.decrypt(old.encrypt(b"secret", "here"), "here") == b"secret"
    with pytest.raises(Unreadable):
        old.decrypt(new.encrypt(b"secret", "here"), "here")
    reencrypted = new.reencrypt(old.encrypt(b"secret", "here"), "here")
    assert reencrypted is not None
    assert Cipher(NEW).decrypt(reencrypted, "here") == b"secret"
    assert new.reencrypt(reencrypted, "here") is None
    with pytest.raises(Unreadable):
        new.reencrypt(old.encrypt(b"secret", "there"), "here")
    with pytest.raises(KeyUnusable, match="the former secret key has 5 characters"):
        Cipher(NEW, "short")


def test_no_sealed_column_is_forgotten() -> None:
    """A column of bytes is sealed anew, or is none that the cipher sealed for long."""
    open_ = {
        *("catalogues.body", "chat_events.kept", "results.body", "pins.pins", "pins.seen"),
        *("config_pins.pins", "config_pins.seen", "letters.body", "keys.body", "attachment_chunks.body"),
    }
    columns = [column for table in metadata.sorted_tables for column in table.c]
    encrypted_columns = {
        f"{each.table.name}.{each.name}" for each in columns if isinstance(each.type, LargeBinary)
    }
    assert encrypted_columns - open_ == {
        f"{column.table.name}.{column.name}" for column, _ in ENCRYPTED_COLUMNS
    }


@pytest.fixture
async def full(
    database: Database,
    instance: Instance,
    grant: OAuthGrant,
    client: OAuthClient,
    pending: PendingSignIn,
    stored_model: StoredModel,
) -> None:
    """A database with something sealed in every column."""
    await database.auth.put_grant("one", grant)
    await database.auth.put_client(client)
    await database.auth.put_pending(pending)
    await database.accounts.put_sign_in("d" * 64, b"a sign-in", 2_000_000_000.0)
    await database.models.add_model(stored_model)


async def read_sealed_values(database: Database, server_id: str) -> list[object]:
    """All that is sealed and can be looked at more than once."""
    (user,) = await database.accounts.list_users()
    grant = await database.auth.get_grant("one")
    assert grant is not None
    client = await database.auth.get_client(grant.issuer, grant.client.redirect_uri)
    assert client is not None
    server = await database.registry.get_server(server_id)
    models = await database.models.list_models()
    return [grant, client, server, models, await database.registry.list_instances(user.id)]


@pytest.mark.usefixtures("full")
async def test_everything_is_readable_with_both_and_afterwards_with_the_new_one(
    reopen: Open, server: RegistryServer, pending: PendingSignIn
) -> None:
    before = await read_sealed_values(await reopen(), server.id)
    between = await reopen(**BETWEEN)
    assert await read_sealed_values(between, server.id) == before
    assert await between.key_rotation.reencrypt_all() == KeyRotationResult(reencrypted=7, unreadable=0)
    assert await between.key_rotation.reencrypt_all() == KeyRotationResult(reencrypted=0, unreadable=0)
    after = await reopen(secret_key=NEW)
    assert await read_sealed_values(after, server.id) == before
    assert await after.auth.take_pending(pending.state) == pending
    assert await after.accounts.take_sign_in("d" * 64, 0.0) == b"a sign-in"
    with pytest.raises(WrongKey):
        await reopen()


@pytest.mark.usefixtures("full")
async def test_forgetting_the_former_key_too_early_is_reported(reopen: Open, grant: OAuthGrant) -> None:
    between = await reopen(**BETWEEN)
    await between.auth.put_grant("two", grant)
    with pytest.raises(WrongKey) as wrong:
        await reopen(secret_key=NEW)
    assert wrong.value.hint is not None
    assert "TOOLYARD_SECRET_KEY_FORMER" in wrong.value.hint
    assert await between.auth.get_grant("two") == grant


@pytest.mark.usefixtures("full")
async def test_records_without_a_matching_key_are_counted_and_kept(reopen: Open, grant: OAuthGrant) -> None:
    between = await reopen(**BETWEEN)
    damaging_update = update(auth_grants).values(body=b"\x01" + b"damaged" * 5)
    await between.executor.write(lambda connection: connection.execute(damaging_update))
    assert await between.key_rotation.reencrypt_all() == KeyRotationResult(reencrypted=6, unreadable=1)
    after = await reopen(secret_key=NEW)
    with pytest.raises(Unreadable):
        await after.auth.get_grant("one")


@pytest.mark.usefixtures("full")
async def test_a_replica_with_the_former_key_alone_stops_encrypting_and_is_not_ready(
    reopen: Open, grant: OAuthGrant
) -> None:
    old, between = await reopen(), await reopen(**BETWEEN)
    await old.ping()
    # Until the end of the rotation both work, and what the old key encrypts is encrypted anew.
    await old.auth.put_grant("two", grant)
    await between.key_rotation.reencrypt_all()
    await between.ping()
    with pytest.raises(WrongKey):
        await old.ping()
    with pytest.raises(WrongKey, match="nothing was stored"):
        await old.auth.put_grant("three", grant)
    after = await reopen(secret_key=NEW)
    await after.ping()
    assert await after.auth.get_grant("two") == grant
    assert await after.auth.get_grant("three") is None


@pytest.mark.usefixtures("full")
async def test_a_replica_that_still_encrypts_with_the_replaced_key_notices_it_by_itself(
    reopen: Open,
    grant: OAuthGrant,
    caplog: pytest.LogCaptureFixture,
    wait_until: Callable[..., Awaitable[None]],
) -> None:
    # The first step of a rotation with replicas: they know the new key, and still encrypt with the old one.
    rotated_database, between = await reopen(secret_key=KEY, former_key=NEW), await reopen(**BETWEEN)
    watching = asyncio.ensure_future(rotated_database.watch_key())
    await wait_until(lambda: rotated_database.signals.is_listening)
    await rotated_database.auth.put_grant("two", grant)
    await between.key_rotation.reencrypt_all()
    await wait_until(lambda: "no more secrets are stored by this process" in caplog.text)
    with pytest.raises(WrongKey, match="nothing was stored"):
        await rotated_database.auth.put_grant("three", grant)
    assert await rotated_database.auth.get_grant("two") == grant
    with pytest.raises(WrongKey):
        await rotated_database.ping()
    assert caplog.text.count("no more secrets") == 1
    await rotated_database.signals.close()
    await watching


@pytest.mark.usefixtures("full")
async def test_swapped_keys_are_refused_once_the_key_was_replaced(reopen: Open) -> None:
    between = await reopen(**BETWEEN)
    await between.key_rotation.reencrypt_all()
    with pytest.raises(WrongKey, match="replaced by `toolyard rekey`") as wrong:
        await reopen(secret_key=KEY, former_key=NEW)
    assert "swap the two" in str(wrong.value.hint)
    # The next rotation goes on from the new key.
    third = await reopen(secret_key="a third key, long enough", former_key=NEW)
    await third.key_rotation.reencrypt_all()
    await third.ping()


_GRANTS = 1_200


@pytest.mark.timeout(300)
async def test_a_rekey_killed_at_any_moment_loses_nothing_and_can_be_repeated(
    reopen: Open, grant: OAuthGrant, database_url: str | None, tmp_path: Path
) -> None:
    database = await reopen()
    grants = {f"g{number}": replace(grant, access_token=f"token {number}") for number in range(_GRANTS)}
    await asyncio.gather(*(database.auth.put_grant(key, each) for key, each in grants.items()))
    bodies = select(auth_grants.c.digest, auth_grants.c.body)
    before = {row[0]: bytes(row[1]) for row in await database.executor.fetch_rows(bodies)}

    async def count_changed_rows() -> int:
        rows = await database.executor.fetch_rows(bodies)
        return sum(before[digest] != bytes(body) for digest, body in rows)

    environment = {**os.environ, "TOOLYARD_SECRET_KEY": NEW, "TOOLYARD_SECRET_KEY_FORMER": KEY}
    environment |= {"TOOLYARD_DATA_DIR": str(tmp_path / "data"), "TOOLYARD_PEOPLE_MODE": "password"}
    if database_url is not None:
        environment["TOOLYARD_DATABASE_URL"] = database_url
    words = [sys.executable, "-m", "toolyard", "rekey"]
    codes: list[int | None] = []
    # Before the first change, after one batch, in the middle, and when only the canary and the second pass
    # are left.
    for grant_count in (0, 1, _GRANTS // 2, _GRANTS):
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*words, env=environment, stdout=pipe, stderr=pipe)
        while process.returncode is None and await count_changed_rows() < grant_count:
            await asyncio.sleep(0)
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.communicate()
        codes.append(process.returncode)
        between = await reopen(**BETWEEN)
        for key, each in grants.items():
            assert await between.auth.get_grant(key) == each
        try:
            after = await reopen(secret_key=NEW)
        except WrongKey as error:
            hint = str(error.hint)  # the former key is still needed, and the error says so
        else:
            hint = "TOOLYARD_SECRET_KEY_FORMER"
            for key, each in grants.items():
                assert await after.auth.get_grant(key) == each
        assert "TOOLYARD_SECRET_KEY_FORMER" in hint
    assert codes[:3] == [-signal.SIGKILL] * 3
    last = await asyncio.create_subprocess_exec(*words, env=environment)
    assert await last.wait() == 0
    assert await count_changed_rows() == _GRANTS
    after = await reopen(secret_key=NEW)
    for key, each in grants.items():
        assert await after.auth.get_grant(key) == each
    with pytest.raises(WrongKey):
        await reopen()
