"""A PostgreSQL that stops answering, as clients of the API, the gateway and the pages see it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.postgres_proxy import FreezableProxy, run_freezable_proxy
from tests.web.conftest import environment

if TYPE_CHECKING:
    from tests.web.conftest import Opening

KEY = "a key for tests, long enough"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
HANG_GUARD = 120


@pytest.fixture
async def frozen(postgres_url: str, open_site: Opening) -> AsyncIterator[tuple[FreezableProxy, Any]]:
    """A site with accounts, and one person, whose database has just stopped answering."""
    async with run_freezable_proxy(postgres_url) as (proxy, url):
        services = await open_site(
            people_mode="password",
            database_url=f"{url}&connect_timeout=2",
            database_timeout=1,
            secret_key=KEY,
        )
        person = await services.person("Ann")
        proxy.freeze()
        yield proxy, person
        proxy.thaw()


async def test_every_interface_answers_503_and_says_when_to_try_again(
    frozen: tuple[FreezableProxy, Any], caplog: pytest.LogCaptureFixture
) -> None:
    proxy, ann = frozen
    async with asyncio.timeout(HANG_GUARD):
        api = await ann.token.get("/api/v1/instances")
        gateway = await ann.token.post("/mcp", PING)
        page = await ann.browser.get("/ui/approvals", headers={"Accept": "text/html"})
        ready = await ann.token.get("/readyz")
        stranger = await ann.token.get("/api/v1/me", headers={"Authorization": f"Bearer ty_{'x' * 43}"})
    assert api.status == gateway.status == page.status == ready.status == 503
    assert api.headers["Retry-After"] == gateway.headers["Retry-After"] == page.headers["Retry-After"] == "5"
    assert api.json["type"] == "urn:toolyard:problem:database-unavailable"
    assert "database is not available" in gateway.json["error"]["message"]
    # The log has the address of the database, and no response.
    for each in (api, gateway, page, ready, stranger):
        assert each.status == 503
        assert "postgres" not in each.text.lower()
    assert "GET /api/v1/instances: the database postgresql://" in caplog.text
    assert "<html" in page.text
    proxy.thaw()
    async with asyncio.timeout(HANG_GUARD):
        while (await ann.token.get("/api/v1/instances")).status != 200:
            await asyncio.sleep(0.1)
    assert (await ann.token.post("/mcp", PING)).status == 200


CALL = {"name": "demo_weekday", "arguments": {"date": "2026-07-28"}}


@pytest.mark.parametrize(
    ("path", "call"),
    [("/mcp", CALL), ("/mcp?mode=meta", {"name": "tools_call", "arguments": CALL})],
    ids=["direct", "meta"],
)
async def test_a_call_with_a_failed_audit_entry_does_not_name_the_database(
    postgres_url: str,
    open_site: Opening,
    demo: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    path: str,
    call: dict[str, Any],
) -> None:
    async with run_freezable_proxy(postgres_url) as (proxy, url):
        services = await open_site(
            {"demo": demo},
            people_mode="password",
            audit="strict",
            database_url=f"{url}&connect_timeout=2",
            database_timeout=1,
            secret_key=KEY,
        )
        ann = await services.person("Ann")
        proxy.freeze_on = b"INSERT INTO audit"
        async with asyncio.timeout(HANG_GUARD):
            reply = await ann.token.post(path, {**PING, "method": "tools/call", "params": call})
        proxy.freeze_on = None
        proxy.thaw()
    assert "the call was not made, since the audit log cannot be written" in reply.text
    assert "postgres" not in reply.text.lower()
    assert "the audit log cannot be written: the database postgresql://" in caplog.text


async def test_an_export_of_the_audit_log_begins_only_if_the_database_answers(
    postgres_url: str, open_site: Opening
) -> None:
    async with run_freezable_proxy(postgres_url) as (proxy, url):
        site = await open_site(
            people_mode="password",
            database_url=f"{url}&connect_timeout=2",
            database_timeout=1,
            secret_key=KEY,
        )
        admin = await site.person("Ann", "admin")
        for form in ("jsonl", "csv"):
            proxy.freeze_on = b"FROM audit"
            async with asyncio.timeout(HANG_GUARD):
                reply = await admin.token.get(f"/api/v1/audit/export?format={form}")
                proxy.freeze_on = None
                proxy.thaw()
                assert reply.status == 503
                assert reply.headers["Retry-After"] == "5"
                while (await admin.token.get(f"/api/v1/audit/export?format={form}")).status != 200:
                    await asyncio.sleep(0.1)


@pytest.mark.parametrize(("words", "code"), [(("users", "list"), 1), (("serve", "--port", "0"), 2)])
async def test_commands_end_and_name_the_database(
    postgres_url: str, tmp_path: Path, words: tuple[str, ...], code: int
) -> None:
    async with run_freezable_proxy(postgres_url) as (proxy, url):
        proxy.freeze_on = b"SELECT set_config"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "toolyard", *words),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment(
                tmp_path,
                TOOLYARD_DATABASE_URL=url,
                TOOLYARD_DATABASE_TIMEOUT="1",
                TOOLYARD_SECRET_KEY=KEY,
                TOOLYARD_PEOPLE_MODE="password",
            ),
        )
        _, errors = await asyncio.wait_for(process.communicate(), HANG_GUARD)
    assert process.returncode == code
    assert b"PostgreSQL did not answer within 1 s" in errors
    assert b"Traceback" not in errors
