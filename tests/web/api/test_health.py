"""``/healthz``, ``/readyz`` and ``/metrics``: for whoever runs it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from toolyard.store import Database
from toolyard.store.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from tests.web.conftest import InProcessApp, Opening


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_alive_and_ready_need_no_account(password_site: InProcessApp) -> None:
    assert (await password_site.client().get("/healthz")).text == "ok\n"
    assert (await password_site.client().get("/readyz")).text == "ready\n"


async def test_it_is_not_ready_without_its_database(
    password_site: InProcessApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> None:
        raise DatabaseUnavailable("postgresql://root:hunter2@db does not answer")

    monkeypatch.setattr(password_site.services.database, "ping", away)
    answer = await password_site.client().get("/readyz")
    assert answer.status == 503
    assert "hunter2" not in answer.text
    assert (await password_site.client().get("/healthz")).status == 200


async def test_health_has_a_hint_when_the_database_uses_another_key(open_site: Opening) -> None:
    local = await open_site(secret_key="old" * 10)
    database = await Database.open(
        local.services.data_dir, url=None, secret_key="new" * 10, former_key="old" * 10
    )
    await database.key_rotation.reencrypt_all()
    await database.close()
    answer = await local.client().get("/readyz")
    assert answer.status == 503
    assert "restart it with the current TOOLYARD_SECRET_KEY" in answer.text
    assert str(local.services.data_dir) not in answer.text


async def test_it_is_not_ready_while_its_database_hangs(
    password_site: InProcessApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password_site.services.database, "ping", asyncio.Event().wait)
    async with asyncio.timeout(30):
        answer = await password_site.client().get("/readyz")
    assert (answer.status, answer.text) == (503, "the database is not responding\n")


async def test_it_is_not_ready_while_it_stops(password_site: InProcessApp) -> None:
    password_site.services.stop()
    assert (await password_site.client().get("/readyz")).status == 503


async def test_numbers_are_by_route_state_and_outcome(local_site: InProcessApp) -> None:
    client = local_site.client()
    await client.get("/api/v1/servers/one")
    await client.get("/api/v1/servers/two")
    await client.get("/api/v1/no/such/route")
    await client.ask("BREW", "/api/v1/status")
    await client.post("/api/v1/tools/demo_weekday/call", {"arguments": {"date": "2026-07-28"}})
    await client.post("/api/v1/tools/demo_forget/call", {})
    metric_samples = samples((await client.get("/metrics")).text)
    route = ("route", "/api/v1/servers/{id}")
    requested_labels = (("method", "GET"), route, ("status", "404"))
    assert metric_samples["toolyard_http_requests_total", requested_labels] == 2
    assert metric_samples["toolyard_http_request_seconds_count", (("method", "GET"), route)] == 2
    assert (
        metric_samples[
            "toolyard_http_requests_total", (("method", "GET"), ("route", "none"), ("status", "404"))
        ]
        == 1
    )
    assert metric_samples["toolyard_connections", (("state", "ready"),)] == 1
    assert metric_samples["toolyard_tool_calls_total", (("outcome", "ok"),)] == 1
    assert metric_samples["toolyard_tool_calls_total", (("outcome", "ToolRefused"),)] == 1
    assert metric_samples["toolyard_tool_call_seconds_count", (("outcome", "ok"),)] == 1
    labels = {value for _, pairs in metric_samples for name, value in pairs if name == "method"}
    assert labels <= {"GET", "POST", "other"}, "nobody may make labels up"


async def test_numbers_are_for_admins(password_site: InProcessApp) -> None:
    admin, ada = await password_site.person("root", "admin"), await password_site.person("ada")
    assert (await admin.token.get("/metrics")).status == 200
    assert (await admin.browser.get("/metrics")).status == 200
    assert (await ada.token.get("/metrics")).status == 403
    assert (await password_site.client().get("/metrics")).status == 401
