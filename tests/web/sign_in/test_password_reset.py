"""A link that sets the password of somebody who has an account: what its holder gets, and what the person
learns of it."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import pytest
from tests.web.conftest import HttpClient, HttpReply, InProcessApp, SignedInUser

from toolyard.auth.storage import OAuthClient, OAuthGrant
from toolyard.types.registry import Instance

VALUE = "ann's key for the server"
NEW = "a password that somebody else chose"


@dataclass
class PasswordResetTeam:
    """An admin, and Ann, who stored credentials for three servers."""

    local: InProcessApp
    root: SignedInUser
    ann: SignedInUser
    instances: dict[str, str]
    """Ids by the kind of sign-in."""

    @property
    def keys(self) -> list[str]:
        """Keys of Ann's sign-ins, to an instance and to a server of the configuration."""
        return [f"instance:{self.instances['oauth']}", f"user:{self.ann.user.id}:files"]

    async def instance(self, kind: str) -> Instance:
        instance = await self.local.services.registry.get_instance(self.ann.user.id, self.instances[kind])
        return instance[0]

    async def grants(self) -> int:
        return len(await self.local.services.database.auth.get_grants(self.keys))


def _grant() -> OAuthGrant:
    client = OAuthClient("https://id.example", "us", "https://us.example/callback", "dynamic")
    return OAuthGrant(
        server_url="http://127.0.0.1:9/mcp",
        issuer=client.issuer,
        client=client,
        token_endpoint="https://id.example/token",
        resource=None,
        requested=(),
        scopes=(),
        access_token="ann's access token",
        refresh_token=None,
        issued_at=1.0,
        expires_at=None,
        wanted=(),
    )


@pytest.fixture
async def two(password_site: InProcessApp) -> PasswordResetTeam:
    root, ann = await password_site.person("root", "admin"), await password_site.person("ann")
    credentials: dict[str, str] = {}
    for kind, auth in (
        ("header", {"kind": "header", "key": "X-Key"}),
        ("oauth", {"kind": "oauth", "client_id": "us"}),
        ("public", {"kind": "public"}),
    ):
        body = {"name": kind, "url": "http://127.0.0.1:9/mcp", "private_addresses": True, "choices": [auth]}
        server = await root.token.post("/api/v1/servers", body)
        assert server.status == 201, server.text
        instance_draft = {"server_id": server.json["id"], "slug": kind}
        more = {"value": VALUE} if kind == "header" else {}
        instance = await ann.token.post("/api/v1/instances", instance_draft | more)
        assert instance.status == 201, instance.text
        credentials[kind] = instance.json["id"]
    here = PasswordResetTeam(password_site, root, ann, credentials)
    for key in here.keys:
        await password_site.services.database.auth.put_grant(key, _grant())
    return here


async def _link(two: PasswordResetTeam) -> str:
    answer = await two.root.token.post(f"/api/v1/users/{two.ann.user.id}/invite")
    assert answer.status == 200, answer.text
    return answer.json["url"].removeprefix(two.local.url)


async def _use(two: PasswordResetTeam, link: str, **form: str) -> tuple[HttpClient, HttpReply]:
    """Open a link in a new browser and set a password with it."""
    first = await two.local.client().get(link)
    assert first.status == 200, first.text
    # As a browser sends it: with the boxes that are ticked when the page opens, unless the test changes them.
    form = dict(re.findall(r'type="checkbox" name="(\w+)" value="(\w+)" checked', first.text)) | form
    browser = two.local.client(Cookie=_cookie(first), Origin=two.local.url)
    answer = await browser.post(link, data={"password": NEW, "again": NEW, "csrf": _csrf(first), **form})
    assert answer.status == 303, answer.text
    browser.headers["Cookie"] = _cookie(answer)
    return browser, first


def _cookie(answer: HttpReply) -> str:
    set_cookies = answer.headers.getall("Set-Cookie")  # type: ignore[attr-defined]
    (session_cookie,) = (each.partition(";")[0] for each in set_cookies if each.startswith("toolyard="))
    return session_cookie


def _csrf(answer: HttpReply) -> str:
    match = re.search(r'name="csrf" value="([^"]+)"', answer.text)
    assert match is not None
    return match[1]


async def test_a_password_reset_returns_none_of_the_users_credentials(
    two: PasswordResetTeam,
) -> None:
    assert await two.grants() == 2
    link = await _link(two)
    assert (await two.instance("header")).value == VALUE, "nothing is lost before the link is used"
    browser, _ = await _use(two, link)
    assert (await browser.get("/api/v1/me")).json["id"] == two.ann.user.id
    assert (await two.ann.browser.get("/api/v1/me")).status == 401, "other browsers are signed out"
    assert await two.grants() == 0
    assert (await two.instance("header")).value is None
    items = (await browser.get("/api/v1/instances")).json["items"]
    assert {each["slug"]: each["has_value"] for each in items} == dict.fromkeys(two.instances, False)


async def test_a_reset_revokes_the_tokens_unless_its_user_keeps_them(two: PasswordResetTeam) -> None:
    """Somebody who had taken over the account may have created them."""
    _, page = await _use(two, await _link(two), revoke_tokens="")
    assert "Revoke my API tokens (1)" in page.text
    assert (await two.ann.token.get("/api/v1/me")).status == 200
    await _use(two, await _link(two))
    assert (await two.ann.token.get("/api/v1/me")).status == 401


async def test_a_form_with_an_error_keeps_the_choice_about_tokens(two: PasswordResetTeam) -> None:
    link = await _link(two)
    first = await two.local.client().get(link)
    browser = two.local.client(Cookie=_cookie(first), Origin=two.local.url)
    for choice, checkbox in (("yes", True), ("", False)):
        form = {"password": NEW, "again": "x", "csrf": _csrf(first), "revoke_tokens": choice}
        answer = await browser.post(link, data=form)
        assert answer.status == 422
        assert ('name="revoke_tokens" value="yes" checked' in answer.text) is checkbox


async def test_the_person_is_told_of_the_link_and_of_its_use_until_they_dismiss_it(
    two: PasswordResetTeam,
) -> None:
    assert "link" not in (await two.ann.browser.get("/ui/account")).text.partition("<main")[2]
    link = await _link(two)
    text = (await two.ann.browser.get("/ui/account")).text
    assert "A link that can reset your password was created by root." in text
    browser, _ = await _use(two, link)
    for path in ("/ui/", "/ui/account"):
        page = await browser.get(path)
        assert "Your password was reset with a link" in page.text
        assert "created by root" in page.text
    response = await browser.post("/ui/account/notice", data={"csrf": _csrf(page), "next": "/ui/account"})
    assert (response.status, response.headers["Location"]) == (303, "/ui/account")
    assert "reset with a link" not in (await browser.get("/ui/account")).text
    actions: dict[str, Any] = {}
    async with asyncio.timeout(30):
        # Audit entries are written in batches, after the response.
        while "invite.accept" not in actions:
            answer = await two.root.token.get("/api/v1/audit?limit=50")
            actions = {each["action"]: each for each in answer.json["items"]}
    assert actions["user.invite"]["target"] == two.ann.user.id
    assert actions["invite.accept"]["details"]["link_made_by"] == "root"


async def test_a_new_user_gets_no_notice(two: PasswordResetTeam) -> None:
    response = await two.root.token.post("/api/v1/users", {"name": "new"})
    browser, page = await _use(two, response.json["invite"]["url"].removeprefix(two.local.url))
    assert "revoke" not in page.text
    assert "reset with a link" not in (await browser.get("/ui/account")).text
