"""``/api/v1/instances``: each person's own connections."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from yarl import URL

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram, ProgramStarter
    from tests.web.conftest import InProcessApp

ROOT = Path(__file__).parents[3]

VALUE = "my-very-secret-value"


@pytest.fixture
async def admin(password_site: InProcessApp) -> Any:
    return (await password_site.person("root", "admin")).token


@pytest.fixture
async def ada(password_site: InProcessApp) -> Any:
    return await password_site.person("ada")


async def server(admin: Any, url: str, **more: Any) -> Any:
    body = {"name": f"Server {uuid.uuid4()}", "url": url, "private_addresses": True, **more}
    answer = await admin.post("/api/v1/servers", body)
    assert answer.status == 201, answer.text
    return answer.json


@pytest.fixture
async def good(admin: Any, hostile_http: ListeningProgram) -> Any:
    """A public server that works."""
    return await server(admin, f"{hostile_http.url}/good/{uuid.uuid4().hex}")


async def create(client: Any, registered: Any, **more: Any) -> Any:
    answer = await client.post("/api/v1/instances", {"server_id": registered["id"], **more})
    assert answer.status == 201, answer.text
    return answer.json


async def test_a_person_has_a_limited_number_of_instances(open_site: Any) -> None:
    team = await open_site(people_mode="password", instance_limit=1)
    admin, ada = (await team.person("root", "admin")).token, await team.person("ada")
    registered = await server(admin, "http://127.0.0.1:9/mcp")
    made = await create(ada.token, registered, slug="one")
    refused = await ada.token.post("/api/v1/instances", {"server_id": registered["id"], "slug": "two"})
    assert (refused.status, refused.json["type"]) == (409, "urn:toolyard:problem:limit-reached")
    assert refused.json["hint"].endswith("or ask an admin to raise instance_limit")
    await create(admin, registered, slug="one")
    assert (await ada.token.delete(f"/api/v1/instances/{made['id']}")).status == 204
    await create(ada.token, registered, slug="two")


async def test_a_person_creates_sees_edits_disables_and_deletes_an_instance(ada: Any, good: Any) -> None:
    answer = await ada.token.post(
        "/api/v1/instances", {"server_id": good["id"], "slug": "work", "name": "Mine"}
    )
    assert answer.status == 201, answer.text
    place = answer.headers["location"]
    made = answer.json
    assert place == f"/api/v1/instances/{made['id']}"
    assert (made["slug"], made["name"], made["auth"], made["has_value"]) == ("work", "Mine", "public", False)
    assert made["status"]["state"] == "ready"
    assert made["status"]["slug"] == "work"

    changed = await ada.token.patch(place, {"slug": "play", "tool_filter": ["echo"]})
    assert changed.status == 200, changed.text
    assert (changed.json["slug"], changed.json["name"]) == ("play", "Mine")
    assert changed.json["tool_filter"] == ["echo"]
    assert (await ada.token.patch(place, {"name": "Other"})).json["tool_filter"] == ["echo"]
    assert (await ada.token.patch(place, {"tool_filter": []})).json["tool_filter"] == []
    assert (await ada.token.patch(place, {"tool_filter": None})).json["tool_filter"] is None

    off = (await ada.token.post(f"{place}/disable")).json
    assert (off["enabled"], off["status"]["state"]) == (False, "disabled")
    assert (await ada.token.post(f"{place}/enable")).json["status"]["state"] == "ready"
    assert [each["id"] for each in (await ada.token.get("/api/v1/instances")).json["items"]] == [made["id"]]
    assert (await ada.token.delete(place)).status == 204
    assert (await ada.token.get(place)).status == 404
    assert (await ada.token.get("/api/v1/instances")).json["items"] == []


async def test_its_tools_are_called_by_the_slug(ada: Any, good: Any) -> None:
    made = await create(ada.token, good, slug="my-github")
    listed = await ada.token.get(f"/api/v1/instances/{made['id']}/tools")
    assert listed.status == 200, listed.text
    assert [each["name"] for each in listed.json["items"]] == ["mcp_my-github__echo"]
    result = await ada.token.post(
        "/api/v1/tools/mcp_my-github__echo/call", {"arguments": {"text": "hello", "times": 2}}
    )
    assert (result.status, result.json["text"]) == (200, "hellohello")
    names = [each["name"] for each in (await ada.token.get("/api/v1/tools")).json["items"]]
    assert "mcp_my-github__echo" in names
    status = (await ada.token.get("/api/v1/status")).json["items"]
    assert [(each["kind"], each["id"]) for each in status][-1] == ("instance", made["id"])
    await ada.token.patch(f"/api/v1/instances/{made['id']}", {"tool_filter": []})
    assert (await ada.token.get(f"/api/v1/instances/{made['id']}/tools")).json["items"] == []
    refused = await ada.token.post("/api/v1/tools/mcp_my-github__echo/call", {"arguments": {}})
    assert refused.status == 404


async def test_a_value_is_sent_in_its_header_and_never_shown(
    ada: Any, admin: Any, hostile_http: ListeningProgram, password_site: InProcessApp
) -> None:
    key = uuid.uuid4().hex
    choices = [{"kind": "header", "key": "X-Api-Key"}]
    registered = await server(admin, f"{hostile_http.url}/good/{key}", choices=choices)
    missing = await ada.token.post("/api/v1/instances", {"server_id": registered["id"]})
    assert missing.status == 422
    assert missing.json["errors"][0]["field"] == "value"
    made = await create(ada.token, registered, slug="one", value=VALUE)
    assert made["has_value"] is True
    place = f"/api/v1/instances/{made['id']}"
    tested = await ada.token.post(f"{place}/test")
    assert tested.json["status"]["state"] == "ready", tested.text
    async with password_site.client().session.get(f"{hostile_http.url}/journal/{key}") as journal:
        seen = json.loads(await journal.read())
    assert any(entry.get("headers", {}).get("x-api-key") == VALUE for entry in seen), seen
    for path in (place, "/api/v1/instances", "/api/v1/status", f"{place}/tools"):
        assert VALUE not in (await ada.token.get(path)).text
    assert VALUE not in (await admin.get("/api/v1/audit/export")).text
    removed = (await ada.token.patch(place, {"value": ""})).json
    assert (removed["has_value"], removed["status"]["state"]) == (False, "pending")
    assert removed["status"]["hint"]


@pytest.mark.parametrize(
    ("mode", "state", "reason"),
    [
        ("html", "failed", "bad_answer"),
        ("status-500", "failed", "http_status"),
        ("redirects-for-ever", "failed", "unreachable"),
        ("resets-request", "failed", "unreachable"),
    ],
)
async def test_a_test_tells_what_is_wrong(
    ada: Any, admin: Any, hostile_http: ListeningProgram, mode: str, state: str, reason: str
) -> None:
    registered = await server(admin, f"{hostile_http.url}/{mode}/{uuid.uuid4().hex}?when=always")
    made = await create(ada.token, registered)
    tested = await ada.token.post(f"/api/v1/instances/{made['id']}/test")
    assert tested.status == 200, tested.text
    status = tested.json["status"]
    assert (status["state"], status["reason"]) == (state, reason), status
    assert status["cause"]
    assert status["hint"]
    listed = await ada.token.get(f"/api/v1/instances/{made['id']}/tools")
    assert listed.status == 200
    assert listed.json["items"] == []
    assert listed.json["failures"][0]["problem"]["detail"] == status["cause"]


async def test_a_slug_is_proposed_from_the_domain(ada: Any, good: Any) -> None:
    async def proposed() -> str:
        answer = await ada.token.get("/api/v1/instances/slug?url=https://api.github.com/mcp")
        assert answer.status == 200, answer.text
        return answer.json["slug"]

    assert await proposed() == "github"
    await create(ada.token, good, slug="GitHub")
    assert (await proposed()).lower() != "github"


async def test_a_slug_is_one_persons_own(ada: Any, password_site: InProcessApp, good: Any) -> None:
    await create(ada.token, good, slug="work")
    taken = await ada.token.post("/api/v1/instances", {"server_id": good["id"], "slug": "WORK"})
    assert taken.status == 409
    assert taken.json["errors"][0]["field"] == "slug"
    bob = await password_site.person("bob")
    await create(bob.token, good, slug="work")


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"slug": "has space"}, "slug"),
        ({"slug": "x" * 25}, "slug"),
        ({"slug": 7}, "slug"),
        ({"name": "x" * 81}, "name"),
        ({"name": "a\u0007b"}, "name"),
        ({"tool_filter": "echo"}, "tool_filter"),
        ({"tool_filter": [1]}, "tool_filter"),
        ({"choice_id": "other"}, "choice_id"),
        ({"enabled": 1}, "enabled"),
        ({"surprise": True}, "surprise"),
    ],
)
async def test_what_cannot_be_used_is_named(ada: Any, good: Any, more: dict[str, Any], field: str) -> None:
    answer = await ada.token.post("/api/v1/instances", {"server_id": good["id"], **more})
    assert answer.status == 422, answer.text
    assert any(each["field"].startswith(field) for each in answer.json["errors"]), answer.text
    assert (await ada.token.get("/api/v1/instances")).json["items"] == []


async def test_there_must_be_such_a_server(ada: Any) -> None:
    assert (await ada.token.post("/api/v1/instances", {"server_id": "nothing"})).status == 404


async def test_a_program_cannot_begin_a_sign_in(ada: Any, admin: Any, hostile_http: ListeningProgram) -> None:
    registered = await server(
        admin, f"{hostile_http.url}/good/{uuid.uuid4().hex}", choices=[{"kind": "oauth"}]
    )
    made = await create(ada.token, registered)
    assert made["status"]["state"] == "pending"
    refused = await ada.token.post(f"/api/v1/instances/{made['id']}/connect")
    assert refused.status == 403
    assert "/ui/mcp" in refused.json["hint"]


async def test_a_script_signs_in_by_oauth_and_the_sign_in_ends_when_it_is_taken_back(
    ada: Any,
    admin: Any,
    start_program: ProgramStarter,
    password_site: InProcessApp,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    program = start_program(sys.executable, "-I", ROOT / "tests/oauth/authorization_server.py", "{port}").url
    registered = await server(admin, f"{program}/mcp", choices=[{"kind": "oauth"}])
    made = await create(ada.browser, registered, slug="mine")
    place = f"/api/v1/instances/{made['id']}"
    assert made["status"]["state"] == "pending"
    tested = (await ada.token.post(f"{place}/test")).json["status"]
    assert (tested["state"], tested["reason"]) == ("pending", "never_signed_in")

    begun = await ada.browser.post(f"{place}/connect")
    assert begun.status == 200, begun.text
    session = ada.browser.session
    async with session.get(URL(begun.json["url"], encoded=True), allow_redirects=False) as provider:
        back = URL(provider.headers["Location"]).raw_path_qs
    assert (await ada.browser.get(back)).status == 303
    assert (await ada.token.get(place)).json["status"]["state"] == "ready"
    called = await ada.token.post("/api/v1/tools/mcp_mine__whoami/call", {})
    assert (called.status, called.json["text"]) == (200, "somebody"), called.text

    for what in ("access", "refresh"):
        async with session.post(f"{program}/forget?what={what}") as forgotten:
            assert forgotten.status < 300
    refused = await ada.token.post("/api/v1/tools/mcp_mine__whoami/call", {})
    assert refused.status == 424, refused.text
    assert refused.json["type"] == "urn:toolyard:problem:sign-in-needed"
    assert refused.json["hint"]
    status = (await ada.token.get(place)).json["status"]
    assert status["state"] == "needs_reauth"
    assert status["hint"]


async def test_a_server_that_offers_no_sign_in_says_so(
    ada: Any, admin: Any, hostile_http: ListeningProgram
) -> None:
    registered = await server(
        admin, f"{hostile_http.url}/good/{uuid.uuid4().hex}", choices=[{"kind": "oauth"}]
    )
    made = await create(ada.token, registered)
    answer = await ada.browser.post(f"/api/v1/instances/{made['id']}/connect")
    assert answer.status in (424, 502), answer.text
    assert answer.json["detail"]


async def test_what_an_admin_switches_off_is_off_for_everybody(ada: Any, admin: Any, good: Any) -> None:
    made = await create(ada.token, good, slug="one")
    await admin.post(f"/api/v1/servers/{good['id']}/disable")
    status = (await ada.token.get(f"/api/v1/instances/{made['id']}")).json["status"]
    assert status["state"] == "disabled"
    assert "admin" in status["cause"]
    assert (await ada.token.post("/api/v1/tools/mcp_one__echo/call", {})).status == 404


async def test_a_server_that_is_deleted_takes_its_instances_along(ada: Any, admin: Any, good: Any) -> None:
    made = await create(ada.token, good, slug="one")
    assert (await admin.get(f"/api/v1/servers/{good['id']}")).json["instance_count"] == 1
    await admin.delete(f"/api/v1/servers/{good['id']}")
    assert (await ada.token.get(f"/api/v1/instances/{made['id']}")).status == 404
    assert (await ada.token.post("/api/v1/tools/mcp_one__echo/call", {})).status == 404


async def test_changes_are_in_the_audit_log(ada: Any, admin: Any, good: Any) -> None:
    made = await create(ada.token, good, slug="one")
    await ada.token.delete(f"/api/v1/instances/{made['id']}")
    entries = (await admin.get("/api/v1/audit")).json["items"]
    found = [(each["action"], each["actor_name"]) for each in entries if each["target"] == made["id"]]
    assert found == [("instance.delete", "ada"), ("instance.create", "ada")]
