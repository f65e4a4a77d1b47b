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
    server_document = await server(admin, "http://127.0.0.1:9/mcp")
    instance = await create(ada.token, server_document, slug="one")
    response = await ada.token.post("/api/v1/instances", {"server_id": server_document["id"], "slug": "two"})
    assert (response.status, response.json["type"]) == (409, "urn:toolyard:problem:limit-reached")
    assert response.json["hint"].endswith("or ask an admin to raise instance_limit")
    await create(admin, server_document, slug="one")
    assert (await ada.token.delete(f"/api/v1/instances/{instance['id']}")).status == 204
    await create(ada.token, server_document, slug="two")


async def test_a_person_creates_sees_edits_disables_and_deletes_an_instance(ada: Any, good: Any) -> None:
    answer = await ada.token.post(
        "/api/v1/instances", {"server_id": good["id"], "slug": "work", "name": "Mine"}
    )
    assert answer.status == 201, answer.text
    place = answer.headers["location"]
    document = answer.json
    assert place == f"/api/v1/instances/{document['id']}"
    assert (document["slug"], document["name"], document["auth"], document["has_value"]) == (
        "work",
        "Mine",
        "public",
        False,
    )
    assert document["status"]["state"] == "ready"
    assert document["status"]["slug"] == "work"

    response = await ada.token.patch(place, {"slug": "play", "tool_filter": ["echo"]})
    assert response.status == 200, response.text
    assert (response.json["slug"], response.json["name"]) == ("play", "Mine")
    assert response.json["tool_filter"] == ["echo"]
    assert (await ada.token.patch(place, {"name": "Other"})).json["tool_filter"] == ["echo"]
    assert (await ada.token.patch(place, {"tool_filter": []})).json["tool_filter"] == []
    assert (await ada.token.patch(place, {"tool_filter": None})).json["tool_filter"] is None

    off = (await ada.token.post(f"{place}/disable")).json
    assert (off["enabled"], off["status"]["state"]) == (False, "disabled")
    assert (await ada.token.post(f"{place}/enable")).json["status"]["state"] == "ready"
    assert [each["id"] for each in (await ada.token.get("/api/v1/instances")).json["items"]] == [
        document["id"]
    ]
    assert (await ada.token.delete(place)).status == 204
    assert (await ada.token.get(place)).status == 404
    assert (await ada.token.get("/api/v1/instances")).json["items"] == []


async def test_its_tools_are_called_by_the_slug(ada: Any, good: Any) -> None:
    instance = await create(ada.token, good, slug="my-github")
    response = await ada.token.get(f"/api/v1/instances/{instance['id']}/tools")
    assert response.status == 200, response.text
    assert [each["name"] for each in response.json["items"]] == ["mcp_my-github__echo"]
    result = await ada.token.post(
        "/api/v1/tools/mcp_my-github__echo/call", {"arguments": {"text": "hello", "times": 2}}
    )
    assert (result.status, result.json["text"]) == (200, "hellohello")
    names = [each["name"] for each in (await ada.token.get("/api/v1/tools")).json["items"]]
    assert "mcp_my-github__echo" in names
    status = (await ada.token.get("/api/v1/status")).json["items"]
    assert [(each["kind"], each["id"]) for each in status][-1] == ("instance", instance["id"])
    await ada.token.patch(f"/api/v1/instances/{instance['id']}", {"tool_filter": []})
    assert (await ada.token.get(f"/api/v1/instances/{instance['id']}/tools")).json["items"] == []
    refused_response = await ada.token.post("/api/v1/tools/mcp_my-github__echo/call", {"arguments": {}})
    assert refused_response.status == 404


async def test_a_value_is_sent_in_its_header_and_never_shown(
    ada: Any, admin: Any, hostile_http: ListeningProgram, password_site: InProcessApp
) -> None:
    key = uuid.uuid4().hex
    choices = [{"kind": "header", "key": "X-Api-Key"}]
    server_document = await server(admin, f"{hostile_http.url}/good/{key}", choices=choices)
    missing = await ada.token.post("/api/v1/instances", {"server_id": server_document["id"]})
    assert missing.status == 422
    assert missing.json["errors"][0]["field"] == "value"
    created_instance = await create(ada.token, server_document, slug="one", value=VALUE)
    assert created_instance["has_value"] is True
    place = f"/api/v1/instances/{created_instance['id']}"
    response = await ada.token.post(f"{place}/test")
    assert response.json["status"]["state"] == "ready", response.text
    async with password_site.client().session.get(f"{hostile_http.url}/journal/{key}") as journal:
        document = json.loads(await journal.read())
    assert any(entry.get("headers", {}).get("x-api-key") == VALUE for entry in document), document
    for path in (place, "/api/v1/instances", "/api/v1/status", f"{place}/tools"):
        assert VALUE not in (await ada.token.get(path)).text
    assert VALUE not in (await admin.get("/api/v1/audit/export")).text
    instance = (await ada.token.patch(place, {"value": ""})).json
    assert (instance["has_value"], instance["status"]["state"]) == (False, "pending")
    assert instance["status"]["hint"]


@pytest.mark.parametrize(
    ("mode", "state", "reason"),
    [
        ("html", "failed", "bad_answer"),
        ("status-500", "failed", "http_status"),
        ("redirects-for-ever", "failed", "unreachable"),
        ("resets-request", "failed", "unreachable"),
    ],
)
async def test_a_test_reports_the_failure(
    ada: Any, admin: Any, hostile_http: ListeningProgram, mode: str, state: str, reason: str
) -> None:
    server_document = await server(admin, f"{hostile_http.url}/{mode}/{uuid.uuid4().hex}?when=always")
    instance = await create(ada.token, server_document)
    response = await ada.token.post(f"/api/v1/instances/{instance['id']}/test")
    assert response.status == 200, response.text
    status = response.json["status"]
    assert (status["state"], status["reason"]) == (state, reason), status
    assert status["cause"]
    assert status["hint"]
    listed_response = await ada.token.get(f"/api/v1/instances/{instance['id']}/tools")
    assert listed_response.status == 200
    assert listed_response.json["items"] == []
    assert listed_response.json["failures"][0]["problem"]["detail"] == status["cause"]


async def test_a_slug_is_proposed_from_the_domain(ada: Any, good: Any) -> None:
    async def propose_slug() -> str:
        answer = await ada.token.get("/api/v1/instances/slug?url=https://api.github.com/mcp")
        assert answer.status == 200, answer.text
        return answer.json["slug"]

    assert await propose_slug() == "github"
    await create(ada.token, good, slug="GitHub")
    assert (await propose_slug()).lower() != "github"


async def test_a_slug_is_one_persons_own(ada: Any, password_site: InProcessApp, good: Any) -> None:
    await create(ada.token, good, slug="work")
    response = await ada.token.post("/api/v1/instances", {"server_id": good["id"], "slug": "WORK"})
    assert response.status == 409
    assert response.json["errors"][0]["field"] == "slug"
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
async def test_invalid_values_are_named(ada: Any, good: Any, more: dict[str, Any], field: str) -> None:
    answer = await ada.token.post("/api/v1/instances", {"server_id": good["id"], **more})
    assert answer.status == 422, answer.text
    assert any(each["field"].startswith(field) for each in answer.json["errors"]), answer.text
    assert (await ada.token.get("/api/v1/instances")).json["items"] == []


async def test_there_must_be_such_a_server(ada: Any) -> None:
    assert (await ada.token.post("/api/v1/instances", {"server_id": "nothing"})).status == 404


async def test_a_program_cannot_begin_a_sign_in(ada: Any, admin: Any, hostile_http: ListeningProgram) -> None:
    server_document = await server(
        admin, f"{hostile_http.url}/good/{uuid.uuid4().hex}", choices=[{"kind": "oauth"}]
    )
    instance = await create(ada.token, server_document)
    assert instance["status"]["state"] == "pending"
    response = await ada.token.post(f"/api/v1/instances/{instance['id']}/connect")
    assert response.status == 403
    assert "/ui/mcp" in response.json["hint"]


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
    server_document = await server(admin, f"{program}/mcp", choices=[{"kind": "oauth"}])
    instance = await create(ada.browser, server_document, slug="mine")
    place = f"/api/v1/instances/{instance['id']}"
    assert instance["status"]["state"] == "pending"
    tested_status = (await ada.token.post(f"{place}/test")).json["status"]
    assert (tested_status["state"], tested_status["reason"]) == ("pending", "never_signed_in")

    response = await ada.browser.post(f"{place}/connect")
    assert response.status == 200, response.text
    session = ada.browser.session
    async with session.get(URL(response.json["url"], encoded=True), allow_redirects=False) as provider:
        back = URL(provider.headers["Location"]).raw_path_qs
    assert (await ada.browser.get(back)).status == 303
    assert (await ada.token.get(place)).json["status"]["state"] == "ready"
    called_response = await ada.token.post("/api/v1/tools/mcp_mine__whoami/call", {})
    assert (called_response.status, called_response.json["text"]) == (200, "somebody"), called_response.text

    for token_kind in ("access", "refresh"):
        async with session.post(f"{program}/forget?what={token_kind}") as forgotten:
            assert forgotten.status < 300
    refused_response = await ada.token.post("/api/v1/tools/mcp_mine__whoami/call", {})
    assert refused_response.status == 424, refused_response.text
    assert refused_response.json["type"] == "urn:toolyard:problem:sign-in-needed"
    assert refused_response.json["hint"]
    status = (await ada.token.get(place)).json["status"]
    assert status["state"] == "needs_reauth"
    assert status["hint"]


async def test_a_server_that_offers_no_sign_in_says_so(
    ada: Any, admin: Any, hostile_http: ListeningProgram
) -> None:
    server_document = await server(
        admin, f"{hostile_http.url}/good/{uuid.uuid4().hex}", choices=[{"kind": "oauth"}]
    )
    instance = await create(ada.token, server_document)
    answer = await ada.browser.post(f"/api/v1/instances/{instance['id']}/connect")
    assert answer.status in (424, 502), answer.text
    assert answer.json["detail"]


async def test_an_instance_switched_off_by_an_admin_is_off_for_all(ada: Any, admin: Any, good: Any) -> None:
    instance = await create(ada.token, good, slug="one")
    await admin.post(f"/api/v1/servers/{good['id']}/disable")
    status = (await ada.token.get(f"/api/v1/instances/{instance['id']}")).json["status"]
    assert status["state"] == "disabled"
    assert "admin" in status["cause"]
    assert (await ada.token.post("/api/v1/tools/mcp_one__echo/call", {})).status == 404


async def test_a_server_that_is_deleted_takes_its_instances_along(ada: Any, admin: Any, good: Any) -> None:
    instance = await create(ada.token, good, slug="one")
    assert (await admin.get(f"/api/v1/servers/{good['id']}")).json["instance_count"] == 1
    await admin.delete(f"/api/v1/servers/{good['id']}")
    assert (await ada.token.get(f"/api/v1/instances/{instance['id']}")).status == 404
    assert (await ada.token.post("/api/v1/tools/mcp_one__echo/call", {})).status == 404


async def test_changes_are_in_the_audit_log(ada: Any, admin: Any, good: Any) -> None:
    instance = await create(ada.token, good, slug="one")
    await ada.token.delete(f"/api/v1/instances/{instance['id']}")
    entries = (await admin.get("/api/v1/audit")).json["items"]
    audit_pairs = [
        (each["action"], each["actor_name"]) for each in entries if each["target"] == instance["id"]
    ]
    assert audit_pairs == [("instance.delete", "ada"), ("instance.create", "ada")]
