"""Every action of an admin is in the audit log: a walk over all routes that only admins may use."""

from __future__ import annotations

import contextlib
import itertools
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from tests.web.changing_tools import SCHEMA, ChangingToolsServer, changing
from tests.web.conftest import HttpReply, InProcessApp, Opening, SignedInUser, Starting

from toolyard.catalog.lock import build_pins, write_lock
from toolyard.types.audit import AuditEntry
from toolyard.types.tool import Definition, RawListing, ValidatedListing
from toolyard.web.access.authentication import require_admin
from toolyard.web.routes import list_routes

SAFE = {"GET", "HEAD", "OPTIONS"}


@dataclass
class AuditedSite:
    """An admin, and things to change: new ones for each route."""

    local: InProcessApp
    root: SignedInUser
    csrf: str
    words: ChangingToolsServer
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def name(self) -> str:
        return f"name {next(self.numbers)}"

    async def user(self) -> str:
        return (await self.local.person(self.name())).user.id

    async def server(self) -> str:
        body = {"name": self.name(), "url": "http://127.0.0.1:9/mcp", "private_addresses": True}
        answer = await self.root.token.post("/api/v1/servers", body)
        assert answer.status == 201, answer.text
        return answer.json["id"]

    async def change(self) -> str:
        """The key of a change of the server of the files that nobody accepted yet."""
        self.words.has(read=self.name(), count="Counts words")
        await self.root.token.get("/api/v1/tools?fresh=true")
        (item,) = (await self.root.token.get("/api/v1/servers/files/changes")).json["items"]
        return item["key"]

    async def entries(self, since: int | None) -> tuple[int, list[AuditEntry]]:
        """The entries after one, and the id of a new one that comes after all of them."""
        audit = self.local.services.database.audit
        await audit.write(AuditEntry(at=time.time(), action="mark", actor="", target=""))
        audit_entries = await audit.entries(before=None, limit=100, action=None, actor=None)
        assert audit_entries[0].action == "mark"
        newest = audit_entries[0].id
        assert newest is not None
        return newest, [each for each in audit_entries if since is None or (each.id or 0) > since]


@dataclass(frozen=True)
class AuditCase:
    """What to send to a route: JSON to the API, a form to a page. ``KEY`` stands for a change's key."""

    sent: Mapping[str, Any] | None = None
    of_files: bool = False
    query: str = ""


KEY = "the key of a change"
SERVER = {"name": "NAME", "url": "http://127.0.0.1:9/mcp", "private_addresses": True}
FORM = {"name": "NAME", "url": "http://127.0.0.1:9/mcp", "do": "save"}
CASES = {
    ("POST", "/api/v1/users"): AuditCase({"name": "NAME"}),
    ("POST", "/api/v1/users/{id}/invite"): AuditCase(),
    ("PATCH", "/api/v1/users/{id}"): AuditCase({"role": "admin"}),
    ("DELETE", "/api/v1/users/{id}"): AuditCase(),
    ("POST", "/api/v1/servers"): AuditCase(SERVER),
    ("PATCH", "/api/v1/servers/{id}"): AuditCase({"description": "other words"}),
    ("DELETE", "/api/v1/servers/{id}"): AuditCase(),
    ("POST", "/api/v1/servers/{id}/enable"): AuditCase(),
    ("POST", "/api/v1/servers/{id}/disable"): AuditCase(),
    ("POST", "/api/v1/servers/{id}/changes"): AuditCase({"keys": [KEY]}, of_files=True),
    ("POST", "/api/v1/servers/{id}/restart"): AuditCase(of_files=True),
    ("POST", "/ui/admin/people"): AuditCase({"name": "NAME"}),
    ("POST", "/ui/admin/people/{user_id}/role"): AuditCase({"role": "admin"}),
    ("POST", "/ui/admin/people/{user_id}/disable"): AuditCase({}),
    ("POST", "/ui/admin/people/{user_id}/enable"): AuditCase({}),
    ("POST", "/ui/admin/people/{user_id}/delete"): AuditCase({}),
    ("POST", "/ui/admin/mcp/new"): AuditCase(FORM),
    ("POST", "/ui/admin/mcp/{server_id}/edit"): AuditCase(FORM),
    ("POST", "/ui/admin/mcp/{server_id}/allow-private"): AuditCase({}),
    ("POST", "/ui/admin/mcp/{server_id}/enable"): AuditCase({}),
    ("POST", "/ui/admin/mcp/{server_id}/disable"): AuditCase({}),
    ("POST", "/ui/admin/mcp/{server_id}/delete"): AuditCase({}),
    ("POST", "/ui/admin/mcp/files/{server_id}/restart"): AuditCase({}, of_files=True),
    ("POST", "/ui/admin/mcp/files/{server_id}/changes"): AuditCase({"change": KEY}, of_files=True),
    ("POST", "/ui/admin/mcp/files/{server_id}/tool"): AuditCase(
        {"path": "x"}, of_files=True, query="?name=count"
    ),
}
COVERED_ROUTES = {
    ("POST", "/ui/catalog"),
    ("POST", "/ui/catalog/{known_id}"),
    ("POST", "/api/v1/catalog/{id}"),
    ("POST", "/api/v1/proposals/{id}/accept"),
    ("POST", "/api/v1/proposals/{id}/decline"),
    ("POST", "/ui/admin/proposals/{proposal_id}/accept"),
    ("POST", "/ui/admin/proposals/{proposal_id}/decline"),
    ("POST", "/ui/admin/mcp/{server_id}/changes"),
    ("POST", "/ui/admin/mcp/{server_id}/connect"),
    ("POST", "/api/v1/servers/{id}/issuer"),
    ("POST", "/ui/admin/mcp/{server_id}/choices/{choice_id}/issuer"),
    ("POST", "/api/v1/model-entries"),
    ("PATCH", "/api/v1/model-entries/{name}"),
    ("DELETE", "/api/v1/model-entries/{name}"),
    ("POST", "/api/v1/model-entries/{name:path}/test"),
    ("POST", "/ui/admin/models/new"),
    ("POST", "/ui/admin/models/{name}/edit"),
    ("POST", "/ui/admin/models/{name:path}/test"),
    ("POST", "/ui/admin/models/{name}/default"),
    ("POST", "/ui/admin/models/{name}/delete"),
}
"""Routes that need more than an admin, each with its audit entry in a test of its own: the first needs
somebody's instance (``test_tool_acceptance.py``), those of the
catalogue a server that answers (``test_server_catalog.py``), those of proposals a proposal
(``test_proposals.py``), the others an authorization server
(``test_pages_registry.py``, ``test_confirm_issuer.py``) or a model
(``test_api_model_entries.py``, ``test_pages_models.py``)."""

READ_ONLY = {("POST", "/ui/catalog/_public"), ("POST", "/ui/catalog/_public/add")}
"""Routes that contact a public registry and show what it answers: they store nothing, and are no links, which
a page of another site could make a browser follow."""


def admin_routes(local: InProcessApp) -> set[tuple[str, str]]:
    """Methods that change something, and paths, of all routes that only admins may use."""
    audited_routes: set[tuple[str, str]] = set()

    def calls(of: Dependant) -> Iterator[Callable[..., Any] | None]:
        for each in of.dependencies:
            yield each.call
            yield from calls(each)

    for route in list_routes(local.app):
        if require_admin in calls(route.api_route.dependant):
            audited_routes.update((method, route.path) for method in route.methods - SAFE)
    return audited_routes


@pytest.fixture
async def audited_site(open_site: Opening, tmp_path: Path) -> AuditedSite:
    words, data = changing(tmp_path), tmp_path / "data"
    data.mkdir()
    descriptions = {"read": "Reads a file", "count": "Counts words"}
    had = tuple(
        Definition("files", name, None, description, SCHEMA) for name, description in descriptions.items()
    )
    write_lock(data / "mcp.lock", {"files": build_pins(ValidatedListing("files", "", RawListing(), had))})
    local = await open_site({"files": words.entry}, data=data, people_mode="password", write_tools="allow")
    root = await local.person("root", "admin")
    page = await root.browser.get("/ui/account")
    match = re.search(r'name="csrf" value="([^"]+)"', page.text)
    assert match is not None
    return AuditedSite(local, root, match[1], words)


async def _perform(audited_site: AuditedSite, method: str, path: str, case: AuditCase) -> HttpReply:
    target = "files" if case.of_files else ""
    if not target and "{" in path:
        target = await (
            audited_site.user() if "/users" in path or "/people" in path else audited_site.server()
        )
    at = re.sub(r"\{\w+\}", target, path) + case.query
    body = None if case.sent is None else dict(case.sent)
    if body is not None and body.get("name") == "NAME":
        body["name"] = audited_site.name()
    for key in () if body is None else ("keys", "change"):
        if key in body:
            change = await audited_site.change()
            body[key] = [change] if key == "keys" else change
    if path.startswith("/api"):
        return await audited_site.root.token.ask(method, at, body)
    headers = {"Origin": audited_site.local.url}
    form = {"csrf": audited_site.csrf, **(body or {})}
    return await audited_site.root.browser.ask(method, at, data=form, headers=headers)


async def test_every_change_that_an_admin_makes_is_in_the_audit_log(audited_site: AuditedSite) -> None:
    routes = admin_routes(audited_site.local)
    assert set(CASES) | COVERED_ROUTES | READ_ONLY == routes, "a route for admins that is new or gone"
    silent: list[str] = []
    for (method, path), case in CASES.items():
        mark, _ = await audited_site.entries(None)
        answer = await _perform(audited_site, method, path, case)
        assert answer.status < 400, f"{method} {path}: {answer.status} {answer.text[:2000]}"
        _, entries = await audited_site.entries(mark)
        own_entries = [each for each in entries if each.actor == audited_site.root.user.id]
        # Preparing a case may add a server, which is an entry of its own.
        if not own_entries or (own_entries[0].action == "server.add" and path not in _ADDING):
            silent.append(f"{method} {path}")
    assert silent == []


_ADDING = {"/api/v1/servers", "/ui/admin/mcp/new"}


async def test_a_change_of_an_account_that_stops_half_way_is_in_the_audit_log(
    audited_site: AuditedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = await audited_site.user()

    async def fail(*_: object) -> None:
        raise RuntimeError("the turns cannot be stopped")

    monkeypatch.setattr(audited_site.local.services.chats, "stop_all_turns", fail)
    mark, _ = await audited_site.entries(None)
    answer = await audited_site.root.token.patch(f"/api/v1/users/{user}", {"role": "admin", "disabled": True})
    assert answer.status == 500
    _, entries = await audited_site.entries(mark)
    (entry,) = (each for each in entries if each.action == "user.edit")
    assert (entry.target, entry.details["role"], entry.details["disabled"]) == (user, "admin", True)


async def test_the_link_for_the_first_admin_is_in_the_audit_log(serve: Starting) -> None:
    site = await serve(TOOLYARD_PEOPLE_MODE="password")
    query = "SELECT action, actor_name, target FROM audit"
    with contextlib.closing(sqlite3.connect(site.data / "toolyard.db")) as database:
        assert database.execute(query).fetchall() == [("user.invite", "server start", "admin")]
