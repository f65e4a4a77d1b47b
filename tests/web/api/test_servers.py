"""``/api/v1/servers``: the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram, ProgramStarter
    from tests.web.conftest import InProcessApp

SECRET = "very-secret-client-secret"


@pytest.fixture
async def admin(password_site: InProcessApp) -> Any:
    return (await password_site.person("root", "admin")).token


@pytest.fixture
async def user(password_site: InProcessApp) -> Any:
    return (await password_site.person("ada")).token


def draft(**more: Any) -> dict[str, Any]:
    return {"name": "GitHub", "url": "https://mcp.example.com/mcp", **more}


async def add(admin: Any, **more: Any) -> Any:
    answer = await admin.post("/api/v1/servers", draft(**more))
    assert answer.status == 201, answer.text
    return answer.json


async def test_an_admin_adds_views_edits_disables_and_deletes_a_server(admin: Any) -> None:
    choices = [{"kind": "oauth", "registration": "entered", "client_id": "us", "client_secret": SECRET}]
    answer = await admin.post("/api/v1/servers", draft(choices=choices, description="Code"))
    assert answer.status == 201, answer.text
    document = answer.json
    place = answer.headers["location"]
    assert place == f"/api/v1/servers/{document['id']}"
    assert (document["name"], document["description"], document["enabled"]) == ("GitHub", "Code", True)
    assert document["choices"][0]["client_id"] == "us"
    assert document["choices"][0]["has_client_secret"] is True
    assert document["created_at"].endswith("Z")

    response = await admin.patch(place, {"name": "GitHub 2", "allow_tools": ["read*"]})
    assert response.status == 200, response.text
    assert (response.json["name"], response.json["allow_tools"]) == ("GitHub 2", ["read*"])
    assert response.json["url"] == document["url"]
    assert response.json["choices"] == document["choices"]
    assert (await admin.patch(place, {"allow_tools": None})).json["allow_tools"] is None

    assert (await admin.post(f"{place}/disable")).json["enabled"] is False
    assert (await admin.get(place)).json["enabled"] is False
    assert (await admin.post(f"{place}/enable")).json["enabled"] is True

    items = (await admin.get("/api/v1/servers")).json["items"]
    assert [(each["id"], each["instance_count"]) for each in items] == [(document["id"], 0)]
    missing_response = await admin.delete(place)
    assert (missing_response.status, missing_response.body) == (204, b"")
    assert (await admin.get(place)).status == 404
    assert (await admin.delete(place)).status == 404


async def test_a_secret_never_comes_back(admin: Any, user: Any) -> None:
    choices = [{"kind": "oauth", "registration": "entered", "client_id": "us", "client_secret": SECRET}]
    server_document = await add(admin, choices=choices)
    place = f"/api/v1/servers/{server_document['id']}"
    for client in (admin, user):
        for path in (place, "/api/v1/servers"):
            answer = await client.get(path)
            assert answer.status == 200
            assert SECRET not in answer.text
    assert SECRET not in (await admin.get("/api/v1/audit")).text
    assert SECRET not in (await admin.get("/api/v1/audit/export")).text


async def test_an_edit_keeps_the_secret_unless_it_is_said(admin: Any) -> None:
    choices = [{"kind": "oauth", "registration": "entered", "client_id": "us", "client_secret": SECRET}]
    server_document = await add(admin, choices=choices)
    place = f"/api/v1/servers/{server_document['id']}"
    choice = {**choices[0], "id": server_document["choices"][0]["id"], "client_secret": None, "scopes": ["a"]}
    kept_choice = (await admin.patch(place, {"choices": [choice]})).json["choices"][0]
    assert (kept_choice["id"], kept_choice["has_client_secret"], kept_choice["scopes"]) == (
        choice["id"],
        True,
        ["a"],
    )
    removed_choice = (await admin.patch(place, {"choices": [{**choice, "client_secret": ""}]})).json[
        "choices"
    ][0]
    assert removed_choice["has_client_secret"] is False


async def test_users_see_the_registry_and_change_nothing(admin: Any, user: Any) -> None:
    server_document = await add(admin, choices=[{"kind": "header", "key": "X-Key"}])
    place = f"/api/v1/servers/{server_document['id']}"
    document = (await user.get(place)).json
    assert (document["name"], document["instance_count"]) == ("GitHub", None)
    assert document["choices"][0]["key"] == "X-Key"
    for method, path, body in (
        ("POST", "/api/v1/servers", draft(name="Other")),
        ("PATCH", place, {"name": "Other"}),
        ("DELETE", place, None),
        ("POST", f"{place}/enable", None),
        ("POST", f"{place}/disable", None),
        ("GET", f"{place}/preview", None),
    ):
        answer = await user.ask(method, path, body)
        assert answer.status == 403, (method, path, answer.text)
        assert answer.json["type"] == "urn:toolyard:problem:not-allowed"
    assert (await admin.get(place)).json["name"] == "GitHub"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"url": "https://a.example"}, "name"),
        ({"name": "a"}, "url"),
        (draft(name=3), "name"),
        (draft(name=""), "name"),
        (draft(name=" "), "name"),
        (draft(name="x" * 81), "name"),
        (draft(name="a\u0000b"), "name"),
        (draft(url="not a url"), "url"),
        (draft(url="ftp://example.com"), "url"),
        (draft(url="https://user:pass@example.com/"), "url"),
        (draft(url="https://" + "x" * 2048), "url"),
        (draft(transport="stdio"), "transport"),
        (draft(trust="untrusted"), "allow_tools"),
        (draft(trust="maybe"), "trust"),
        (draft(enabled="yes"), "enabled"),
        (draft(choices=[{"kind": "header"}]), "choices"),
        (draft(choices=[{"kind": "header", "key": "Host"}]), "choices"),
        (draft(choices={"kind": "public"}), "choices"),
        (draft(choices=[{"kind": "public"}] * 11), "choices"),
        (draft(choices=[{"id": "nobody's"}]), "choices"),
        (draft(surprise=1), "surprise"),
        ([], ""),
        ("text", ""),
    ],
)
async def test_invalid_fields_are_named_and_nothing_is_stored(admin: Any, body: Any, field: str) -> None:
    answer = await admin.post("/api/v1/servers", body)
    assert answer.status == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json
    assert problem["status"] == 422
    assert problem["detail"]
    assert any(each["field"].startswith(field) for each in problem["errors"]), problem
    assert (await admin.get("/api/v1/servers")).json["items"] == []


async def test_all_problems_are_told_at_once(admin: Any) -> None:
    answer = await admin.post("/api/v1/servers", draft(name=" ", url="nonsense", trust="untrusted"))
    assert {each["field"] for each in answer.json["errors"]} == {"name", "url", "allow_tools"}


async def test_a_name_that_is_taken_is_a_conflict(admin: Any) -> None:
    await add(admin)
    answer = await admin.post("/api/v1/servers", draft(name="gitHUB"))
    assert answer.status == 409
    assert answer.json["type"] == "urn:toolyard:problem:taken"
    assert answer.json["errors"][0]["field"] == "name"


async def test_any_web_address_is_accepted(admin: Any) -> None:
    server_document = await add(admin, url="http://127.0.0.1:1/mcp")
    response = await admin.get(f"/api/v1/servers/{server_document['id']}/preview")
    assert response.status == 200
    assert response.json["ok"] is False


# Looking at a server.


async def test_a_preview_shows_the_features_of_a_server(
    admin: Any, start_program: ProgramStarter, everything_server: str
) -> None:
    program = start_program(everything_server, "streamableHttp", PORT="{port}")
    answer = await admin.post(
        "/api/v1/servers?preview=true", draft(url=f"{program.url}/mcp", private_addresses=True)
    )
    assert answer.status == 201, answer.text
    preview = answer.json["preview"]
    assert (preview["ok"], preview["error"]) == (True, None), preview["error"]
    assert {"tools", "resources", "prompts"} <= set(preview["capabilities"])
    assert preview["protocol_version"]
    assert preview["tools"]
    assert preview["resources"]
    assert preview["prompts"]
    tool = next(each for each in preview["tools"] if each["name"] == "echo")
    assert tool["token_cost"] > 0
    assert tool["input_schema"]["type"] == "object"
    assert preview["token_cost"] == sum(each["token_cost"] for each in preview["tools"])
    again = await admin.get(f"/api/v1/servers/{answer.json['id']}/preview")
    assert [each["name"] for each in again.json["tools"]] == [each["name"] for each in preview["tools"]]


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("html", "text/html"),
        ("status-500", "500"),
        ("redirects-for-ever", "redirect"),
        ("status-401", ""),
        ("bad-json", "JSON"),
        ("closes", ""),
    ],
)
async def test_a_server_that_misbehaves_is_told_in_full(
    admin: Any, hostile_http: ListeningProgram, mode: str, words: str
) -> None:
    url = f"{hostile_http.url}/{mode}/api-{mode}?when=always"
    server_document = await add(admin, url=url, private_addresses=True)
    answer = await admin.get(f"/api/v1/servers/{server_document['id']}/preview")
    assert answer.status == 200, answer.text
    error = answer.json["error"]
    assert answer.json["ok"] is False
    assert words.lower() in f"{error['detail']} {error.get('hint')}".lower(), error
    assert answer.json["tools"] == []


async def test_a_private_address_is_not_dialled_unless_the_admin_says_so(
    admin: Any, hostile_http: ListeningProgram
) -> None:
    server_document = await add(admin, url=f"{hostile_http.url}/good/api-guarded")
    answer = await admin.get(f"/api/v1/servers/{server_document['id']}/preview")
    assert "private" in answer.json["error"]["detail"]
