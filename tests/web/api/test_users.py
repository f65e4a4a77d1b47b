"""``/api/v1/users`` and ``/api/v1/me``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.web.conftest import InProcessApp, Opening


@pytest.fixture
async def root(password_site: InProcessApp) -> Any:
    return await password_site.person("root", "admin")


async def test_me_describes_the_caller(
    password_site: InProcessApp, root: Any, local_site: InProcessApp
) -> None:
    me = (await root.browser.get("/api/v1/me")).json
    assert (me["name"], me["role"], me["is_admin"], me["token"]) == ("root", "admin", True, None)
    assert me["people_mode"] == "password"
    local = (await local_site.client().get("/api/v1/me")).json
    assert (local["id"], local["people_mode"], local["is_admin"]) == ("local", "none", True)
    nobody = await password_site.client().get("/api/v1/me")
    assert nobody.status == 401
    assert nobody.json["hint"]


async def test_an_admin_invites_changes_and_deletes_people(root: Any, password_site: InProcessApp) -> None:
    answer = await root.token.post("/api/v1/users", {"name": "ada"})
    assert answer.status == 201, answer.text
    ada = answer.json
    place = answer.headers["location"]
    assert (ada["role"], ada["has_password"], ada["disabled"]) == ("user", False, False)
    assert ada["invite"]["url"].startswith(f"{password_site.url}/ui/invite/")
    again = await root.token.post(f"{place}/invite")
    assert again.json["url"] != ada["invite"]["url"]
    assert (await root.token.get(place)).json["name"] == "ada"
    response = await root.token.patch(place, {"name": "Ada L.", "role": "admin"})
    assert (response.json["name"], response.json["role"]) == ("Ada L.", "admin")
    names = [each["name"] for each in (await root.token.get("/api/v1/users")).json["items"]]
    assert sorted(names) == ["Ada L.", "root"]
    assert (await root.token.delete(place)).status == 204
    assert (await root.token.get(place)).status == 404


async def test_a_disabled_user_is_signed_out_at_once(root: Any, password_site: InProcessApp) -> None:
    ada = await password_site.person("ada")
    await ada.token.get("/api/v1/tools")
    assert (await root.token.patch(f"/api/v1/users/{ada.user.id}", {"disabled": True})).status == 200
    assert (await ada.token.get("/api/v1/me")).status == 401
    assert (await ada.browser.get("/api/v1/me")).status == 401
    own_statuses = [
        each for each in password_site.services.core.manager.statuses() if each.principal == ada.user.id
    ]
    assert own_statuses == []


async def test_users_cannot_lock_themselves_out(root: Any) -> None:
    place = f"/api/v1/users/{root.user.id}"
    assert (await root.token.delete(place)).status == 403
    assert (await root.token.patch(place, {"disabled": True})).status == 403
    assert (await root.token.patch(place, {"role": "user"})).status == 403
    assert (await root.token.get(place)).json["role"] == "admin"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\u0000b"}, "name"),
        ({"name": 5}, "name"),
        ({"name": "a", "role": "owner"}, "role"),
    ],
)
async def test_invalid_values_are_named(root: Any, body: Any, field: str) -> None:
    answer = await root.token.post("/api/v1/users", body)
    assert answer.status == 422, answer.text
    assert answer.json["errors"][0]["field"] == field


async def test_a_name_that_is_taken_is_a_conflict(root: Any) -> None:
    answer = await root.token.post("/api/v1/users", {"name": "ROOT"})
    assert answer.status == 409
    assert answer.json["errors"][0]["field"] == "name"


async def test_in_the_mode_none_invitations_are_refused(local_site: InProcessApp) -> None:
    answer = await local_site.client().post("/api/v1/users", {"name": "ada"})
    assert answer.status == 403
    assert "none" in answer.json["detail"]


async def test_behind_a_proxy_roles_come_from_the_setting_and_no_account_is_handed_over(
    open_site: Opening,
) -> None:
    local = await open_site(
        people_mode="proxy", trusted_proxies=["127.0.0.1"], proxy_header="Remote-User", admins=["root"]
    )
    root, ada = (local.client(**{"Remote-User": name}) for name in ("root", "ada"))
    me = (await ada.get("/api/v1/me")).json
    people = {each["name"]: each for each in (await root.get("/api/v1/users")).json["items"]}
    assert {name: each["role"] for name, each in people.items()} == {"root": "admin", "ada": "user"}
    # Under another name the account, with its connections, would be somebody else's.
    answer = await root.patch(f"/api/v1/users/{me['id']}", {"name": "root2"})
    assert answer.status == 403
    other = local.client(**{"Remote-User": "root2"})
    assert (await other.get("/api/v1/me")).json["id"] != me["id"]
