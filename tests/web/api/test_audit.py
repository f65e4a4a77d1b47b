"""``/api/v1/audit``: what happened, page by page and as a file."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.store.errors import DatabaseUnavailable
from toolyard.types.audit import AuditEntry

if TYPE_CHECKING:
    from tests.web.conftest import InProcessApp


@pytest.fixture
async def admin(password_site: InProcessApp) -> Any:
    for number in range(1200):
        action = "test.event" if number % 2 else "test.other"
        entry = AuditEntry(1000.0 + number, action, f"user{number % 3}", target="=1+1")
        password_site.services.database.audit.record(entry)
    root = await password_site.person("root", "admin")
    await password_site.services.database.audit.write(AuditEntry(5000.0, "test.last", ""))
    return root.token


async def test_it_is_read_from_the_newest_on_a_page_at_a_time(admin: Any) -> None:
    entry_ids: list[int] = []
    before = ""
    while True:
        answer = await admin.get(f"/api/v1/audit?limit=500{before}")
        assert answer.status == 200, answer.text
        entry_ids += [each["id"] for each in answer.json["items"]]
        if answer.json["next_before"] is None:
            break
        before = f"&before={answer.json['next_before']}"
    assert len(entry_ids) == 1201
    assert entry_ids == sorted(entry_ids, reverse=True)


async def test_it_is_filtered_by_action_and_actor(admin: Any) -> None:
    answer = await admin.get("/api/v1/audit?action=test.event&actor=user1&limit=500")
    assert len(answer.json["items"]) == 200
    assert {(each["action"], each["actor"]) for each in answer.json["items"]} == {("test.event", "user1")}


async def test_it_is_exported_whole_in_both_forms(admin: Any) -> None:
    lines = (await admin.get("/api/v1/audit/export")).text.splitlines()
    entries = [json.loads(line) for line in lines]
    assert len(entries) == 1202
    assert (entries[0]["action"], entries[-1]["action"]) == ("test.other", "audit.export")
    assert entries[0]["at"] == "1970-01-01T00:16:40Z"
    answer = await admin.get("/api/v1/audit/export?format=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 1203
    assert rows[0]["target"] == "'=1+1", "no table program may take it for a formula"


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=501", "limit=x", "before=0", f"before={2**63}", "format=xml"]
)
async def test_a_page_that_there_cannot_be_is_refused(admin: Any, query: str) -> None:
    path = "/api/v1/audit/export" if "format" in query else "/api/v1/audit"
    answer = await admin.get(f"{path}?{query}")
    assert answer.status == 422
    assert answer.json["errors"][0]["field"] == query.partition("=")[0]


async def test_it_is_for_admins(password_site: InProcessApp) -> None:
    ada = await password_site.person("ada")
    for path in ("/api/v1/audit", "/api/v1/audit/export"):
        assert (await ada.token.get(path)).status == 403
        assert (await ada.browser.get(path)).status == 403
        assert (await password_site.client().get(path)).status == 401


async def test_a_change_is_written_down_as_soon_as_the_database_takes_it(
    password_site: InProcessApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = await password_site.person("root", "admin")
    insert, away = password_site.services.database.audit._insert_entries, [True]

    async def inserting(entries: Sequence[AuditEntry]) -> None:
        if away:
            raise DatabaseUnavailable("the disk is full")
        await insert(entries)

    monkeypatch.setattr(password_site.services.database.audit, "_insert_entries", inserting)
    response = await root.browser.post("/api/v1/tokens", {"name": "t", "scope": {"rights": ["read"]}})
    assert response.status == 201
    away.clear()
    entries: list[Any] = []
    async with asyncio.timeout(30):
        while not entries:
            entries = (await root.token.get("/api/v1/audit?action=token.make")).json["items"]
    assert entries[0]["target"] == response.json["id"]
