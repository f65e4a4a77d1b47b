"""No secret lies in the database as it is: every byte of it is searched."""

from __future__ import annotations

import base64
import urllib.parse
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolyard.auth.storage import OAuthClient, OAuthGrant, PendingSignIn
from toolyard.store import Database
from toolyard.types.account import User
from toolyard.types.registry import Instance, RegistryServer
from toolyard.types.stored_model import StoredModel

KEY = "a key for tests, long enough"

SECRETS = [
    "the-client-secret",
    "the-header-value",
    "the-registered-secret",
    "the-access-token",
    "the-refresh-token",
    "the-verifier",
    "the-state",
    "the-nonce-of-a-sign-in",
    "the-model-key",
    KEY,
]


async def everything(database: Database, database_url: str | None, tmp_path: Path) -> bytes:
    """Every byte that is stored: the files, or all columns of all tables."""
    if database_url is None:
        # What is in the write-ahead log counts too; and what was deleted stays in the pages.
        return b"".join(path.read_bytes() for path in (tmp_path / "data").glob("toolyard.db*"))
    from sqlalchemy import text

    from toolyard.store.sql.tables import metadata

    def dump(connection: Any) -> bytes:
        byte_parts: list[bytes] = []
        for table in metadata.tables:
            for row in connection.execute(text(f"SELECT * FROM {table}")):
                byte_parts += [
                    bytes(x) if isinstance(x, bytes | memoryview) else str(x).encode() for x in row
                ]
        return b"\0".join(byte_parts)

    return await database.executor.read(dump)


@pytest.fixture
async def full(
    database: Database,
    ann: User,
    server: RegistryServer,
    instance: Instance,
    client: OAuthClient,
    grant: OAuthGrant,
    pending: PendingSignIn,
    stored_model: StoredModel,
) -> Database:
    """Everything secret is in it, some of it more than once."""
    await database.accounts.put_sign_in("digest", b"the-nonce-of-a-sign-in", 1.0)
    await database.registry.save_server(server)
    await database.registry.save_instance(replace(instance, name="Changed"))
    await database.models.add_model(stored_model)
    await database.auth.put_client(client)
    await database.auth.put_pending(pending)
    await database.auth.put_grant(instance.grant_key, grant)
    await database.auth.swap_grant(instance.grant_key, grant.serial, grant)
    return database


async def test_no_secret_is_readable(full: Database, database_url: str | None, tmp_path: Path) -> None:
    stored_bytes = await everything(full, database_url, tmp_path)
    for secret in SECRETS:
        for encoded_secret in (
            secret.encode(),
            secret.encode("utf-16-le"),
            secret.encode().hex().encode(),
            base64.b64encode(secret.encode())[:-4],
            urllib.parse.quote(secret).encode(),
        ):
            assert encoded_secret not in stored_bytes, secret


async def test_the_search_finds_public_values(
    full: Database, database_url: str | None, tmp_path: Path
) -> None:
    """The test above can fail."""
    stored_bytes = await everything(full, database_url, tmp_path)
    for plain in ("https://api.example/mcp", "Changed", "instance:instance-1", "client-id"):
        assert plain.encode() in stored_bytes


async def test_the_secrets_are_there(
    full: Database, instance: Instance, grant: OAuthGrant, pending: PendingSignIn, client: OAuthClient
) -> None:
    found_instance = await full.registry.get_instance(instance.user_id, instance.id)
    assert found_instance is not None
    assert found_instance[0].value == "the-header-value"
    assert found_instance[1].choices[2].client_secret == "the-client-secret"
    assert await full.auth.get_grant(instance.grant_key) == grant
    assert await full.auth.take_pending("the-state") == pending
    assert await full.auth.get_client(client.issuer, client.redirect_uri) == client
    assert await full.accounts.take_sign_in("digest", 0.0) == b"the-nonce-of-a-sign-in"


async def test_the_key_file_says_nothing_about_the_key_in_use(tmp_path: Path) -> None:
    database = await Database.open(tmp_path, url=None, secret_key=None)
    text = (tmp_path / "secret.key").read_bytes().strip()
    stored_bytes = b"".join(path.read_bytes() for path in tmp_path.glob("toolyard.db*"))
    await database.close()
    assert text not in stored_bytes


async def test_a_secret_never_shows_in_a_repr(full: Database, instance: Instance) -> None:
    found_instance = await full.registry.get_instance(instance.user_id, instance.id)
    text = repr(
        (full, full.cipher, vars(full), found_instance, await full.auth.get_grant(instance.grant_key))
    )
    for secret in SECRETS:
        assert secret not in text
