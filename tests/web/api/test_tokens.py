"""``/api/v1/tokens``."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.types.account import Right, TokenScope

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram
    from tests.web.conftest import InProcessApp, Opening

SCOPE = {"rights": ["read", "call"], "servers": ["demo"], "tools": ["demo_w*"], "agents": None}


async def make(person: Any, **more: Any) -> Any:
    answer = await person.browser.post("/api/v1/tokens", {"name": "nightly", "scope": SCOPE, **more})
    assert answer.status == 201, answer.text
    return answer.json


async def test_a_token_is_made_shown_once_used_listed_and_deleted(password_site: InProcessApp) -> None:
    ada = await password_site.person("ada")
    token_document = await make(ada, expires_in=3600)
    assert token_document["token"].startswith("ty_")
    assert token_document["expires_at"] > token_document["created_at"]
    response = await ada.browser.get("/api/v1/tokens")
    assert token_document["token"] not in response.text
    entry = next(each for each in response.json["items"] if each["id"] == token_document["id"])
    assert (entry["name"], entry["scope"], entry["last_used_at"]) == ("nightly", SCOPE, None)
    client = password_site.client(Authorization=f"Bearer {token_document['token']}")
    me = (await client.get("/api/v1/me")).json
    assert (me["name"], me["token"]) == ("ada", SCOPE)
    assert (await ada.browser.delete(f"/api/v1/tokens/{token_document['id']}")).status == 204
    refused_response = await client.get("/api/v1/me")
    assert refused_response.status == 401
    assert refused_response.headers["www-authenticate"].startswith("Bearer")
    assert (await ada.browser.delete(f"/api/v1/tokens/{token_document['id']}")).status == 404


async def test_no_token_makes_or_deletes_tokens(password_site: InProcessApp) -> None:
    ada = await password_site.person("ada")
    token_document = await make(ada)
    body = {"name": "more", "scope": {"rights": ["read"]}}
    assert (await ada.token.post("/api/v1/tokens", body)).status == 403
    assert (await ada.token.delete(f"/api/v1/tokens/{token_document['id']}")).status == 403


async def test_a_user_cannot_give_a_token_more_than_they_have(password_site: InProcessApp) -> None:
    ada = await password_site.person("ada")
    answer = await ada.browser.post("/api/v1/tokens", {"name": "root", "scope": {"rights": ["admin"]}})
    assert answer.status == 403


async def test_a_token_can_have_every_right(password_site: InProcessApp) -> None:
    boss = await password_site.person("boss", "admin")
    rights = [right.value for right in Right]
    response = await boss.browser.post("/api/v1/tokens", {"name": "all", "scope": {"rights": rights}})
    assert (response.status, response.json["scope"]["rights"]) == (201, rights)


async def test_an_admins_token_needs_the_right_as_well(password_site: InProcessApp) -> None:
    admin = await password_site.person("root", "admin")
    weak = await make(admin)
    client = password_site.client(Authorization=f"Bearer {weak['token']}")
    assert (await client.get("/api/v1/users")).status == 403
    assert (await client.get("/metrics")).status == 403
    assert (await client.get("/api/v1/me")).json["is_admin"] is False
    assert (await admin.token.get("/api/v1/users")).status == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"scope": SCOPE}, "name"),
        ({"name": "a"}, "scope"),
        ({"name": "a", "scope": {"rights": []}}, "scope.rights"),
        ({"name": "a", "scope": {"rights": ["everything"]}}, "scope.rights"),
        ({"name": "", "scope": SCOPE}, "name"),
        ({"name": "x" * 101, "scope": SCOPE}, "name"),
        ({"name": "a", "scope": SCOPE, "expires_in": 0}, "expires_in"),
        ({"name": "a", "scope": SCOPE, "expires_in": "soon"}, "expires_in"),
        ({"name": "a", "scope": {**SCOPE, "servers": "demo"}}, "scope.servers"),
        ({"name": "a", "scope": {**SCOPE, "tools": ["*a" * 9]}}, "scope.tools"),
    ],
)
async def test_invalid_values_are_named(password_site: InProcessApp, body: Any, field: str) -> None:
    ada = await password_site.person("ada")
    answer = await ada.browser.post("/api/v1/tokens", body)
    assert answer.status == 422, answer.text
    assert any(each["field"].startswith(field) for each in answer.json["errors"]), answer.text


async def test_a_token_that_is_nonsense_is_refused(password_site: InProcessApp) -> None:
    for text in ("nonsense", "ty_", "ty_" + "x" * 43, ""):
        answer = await password_site.client(Authorization=f"Bearer {text}").get("/api/v1/me")
        assert answer.status == 401, text
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_limited_token_reaches_the_instances_that_it_names(
    password_site: InProcessApp, hostile_http: ListeningProgram
) -> None:
    admin, ada = await password_site.person("root", "admin"), await password_site.person("ada")
    body = {"name": "S", "url": f"{hostile_http.url}/good/token-scope", "private_addresses": True}
    server = (await admin.token.post("/api/v1/servers", body)).json
    responses = {}
    for slug in ("one", "two"):
        answer = await ada.browser.post("/api/v1/instances", {"server_id": server["id"], "slug": slug})
        responses[slug] = answer.json["id"]
    scope = {"rights": ["read", "call", "manage"], "servers": ["one"]}
    token = (await ada.browser.post("/api/v1/tokens", {"name": "t", "scope": scope})).json["token"]
    client = password_site.client(Authorization=f"Bearer {token}")
    assert [each["slug"] for each in (await client.get("/api/v1/instances")).json["items"]] == ["one"]
    assert (await client.get(f"/api/v1/instances/{responses['one']}")).status == 200
    other = f"/api/v1/instances/{responses['two']}"
    for method, path, attempt in (
        ("GET", other, None),
        ("PATCH", other, {"name": "x"}),
        ("DELETE", other, None),
        ("POST", f"{other}/test", None),
        ("POST", f"{other}/disable", None),
        ("GET", f"{other}/tools", None),
    ):
        assert (await client.ask(method, path, attempt)).status == 404, (method, path)
    names = [each["name"] for each in (await client.get("/api/v1/tools")).json["items"]]
    assert names == ["mcp_one__echo"]
    assert (await client.post("/api/v1/tools/mcp_two__echo/call", {})).status == 404


async def test_a_limited_token_makes_no_instance_that_it_does_not_name(
    password_site: InProcessApp, hostile_http: ListeningProgram
) -> None:
    admin, ada = await password_site.person("root", "admin"), await password_site.person("ada")
    body = {"name": "S", "url": f"{hostile_http.url}/good/token-slugs", "private_addresses": True}
    server = (await admin.token.post("/api/v1/servers", body)).json["id"]
    scope = {"rights": ["read", "manage"], "servers": ["one*"]}
    token = (await ada.browser.post("/api/v1/tokens", {"name": "t", "scope": scope})).json["token"]
    client = password_site.client(Authorization=f"Bearer {token}")
    for slug in ({"slug": "two"}, {"slug": " two "}, {}):
        response = await client.post("/api/v1/instances", {"server_id": server, **slug})
        assert response.status == 403, slug
        assert "does not cover an instance" in response.json["detail"]
    created_response = await client.post("/api/v1/instances", {"server_id": server, "slug": "one-more"})
    assert created_response.status == 201
    one = f"/api/v1/instances/{created_response.json['id']}"
    assert (await client.ask("PATCH", one, {"slug": "two"})).status == 403
    assert (await client.ask("PATCH", one, {"slug": "one"})).status == 200
    assert [each["slug"] for each in (await ada.browser.get("/api/v1/instances")).json["items"]] == ["one"]


@pytest.mark.parametrize("limits", [{"tools": ["mcp_one__*"]}, {"agents": ["reader"]}])
async def test_a_limited_token_brings_no_other_instance_under_a_name_that_it_covers(
    password_site: InProcessApp, hostile_http: ListeningProgram, limits: dict[str, Any]
) -> None:
    admin, ada = await password_site.person("root", "admin"), await password_site.person("ada")
    body = {"name": "S", "url": f"{hostile_http.url}/good/token-names", "private_addresses": True}
    server = (await admin.token.post("/api/v1/servers", body)).json["id"]
    response = await ada.browser.post("/api/v1/instances", {"server_id": server, "slug": "two"})
    scope = {"rights": ["read", "call", "manage"], **limits}
    token = (await ada.browser.post("/api/v1/tokens", {"name": "t", "scope": scope})).json["token"]
    client = password_site.client(Authorization=f"Bearer {token}")
    two = f"/api/v1/instances/{response.json['id']}"
    refused_response = await client.ask("PATCH", two, {"slug": "one"})
    assert (refused_response.status, "cannot rename instances" in refused_response.json["detail"]) == (
        403,
        True,
    )
    assert (await client.post("/api/v1/tools/mcp_one__echo/call", {})).status == 404
    assert (await client.ask("PATCH", two, {"slug": "two", "name": "Mine"})).status == 200
    assert (await ada.token.ask("PATCH", two, {"slug": "one"})).status == 200


async def test_tokens_expire_unless_their_owner_chooses_otherwise(open_site: Opening) -> None:
    for days in (90, 7, 0):
        local = await open_site(people_mode="password", token_lifetime=days)
        ann = await local.person("ann")

        async def create_token(**more: Any) -> Any:
            body = {"name": "x", "scope": {"rights": ["read"]}, **more}
            answer = await ann.browser.post("/api/v1/tokens", body)  # noqa: B023 - called in this round
            assert answer.status == 201, answer.text
            return answer.json

        token = await create_token()
        if days:
            lives = datetime.fromisoformat(token["expires_at"]) - datetime.fromisoformat(token["created_at"])
            assert lives == timedelta(days=days)
        else:
            assert token["expires_at"] is None
        assert token["expires_soon"] is (days == 7)
        assert (await create_token(expires_in=None))["expires_at"] is None
        token_document = await create_token(expires_in=3600)
        assert token_document["expires_soon"]


async def test_the_page_warns_of_tokens_that_expire_soon(open_site: Opening) -> None:
    local = await open_site(people_mode="password", token_lifetime=45)
    ann = await local.person("ann")
    page = (await ann.browser.get("/ui/tokens")).text
    assert '<option value="45" selected' in page
    assert "expires soon" not in page
    await local.services.people.create_token(ann.user, "brief", TokenScope(frozenset({Right.READ})), 86_400.0)
    assert "expires soon" in (await ann.browser.get("/ui/tokens")).text
