"""Who asks: cookies, tokens, proxies and forms, in each mode, over real sockets."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import pytest
from yarl import URL

from toolyard.accounts.attempt_limits import SignInLimiter, guest_counters
from toolyard.types.account import Right, Role, TokenScope

if TYPE_CHECKING:
    from tests.web.conftest import Opening

PASSWORD = "correct horse battery staple"


@dataclass
class FetchedPage:
    """What a browser got."""

    status: int
    text: str
    headers: Any
    url: str

    @property
    def csrf(self) -> str:
        match = re.search(r'name="csrf" value="([0-9a-f]{128})"', self.text)
        assert match is not None, self.text[:2000]
        return match[1]

    @property
    def proof(self) -> str:
        """What the page proves, without the mask that is another one on each page."""
        return f"{int(self.csrf[:64], 16) ^ int(self.csrf[64:], 16):064x}"

    @property
    def to(self) -> str:
        return self.headers["Location"]

    @property
    def cookies(self) -> SimpleCookie:
        jar = SimpleCookie()
        for value in self.headers.getall("Set-Cookie", ()):
            jar.load(value)
        return jar


@dataclass
class CookieBrowser:
    """Keeps cookies, follows nothing by itself, and says where its forms come from."""

    url: str
    source: str = "127.0.0.1"
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.session = aiohttp.ClientSession(
            cookie_jar=aiohttp.CookieJar(unsafe=True),
            connector=aiohttp.TCPConnector(local_addr=(self.source, 0)),
        )

    async def ask(self, method: str, path: str, headers: Any = None, **more: Any) -> FetchedPage:
        request_headers = {**self.headers, **(headers or {})}
        at = URL(self.url + path, encoded=True)
        async with self.session.request(
            method, at, headers=request_headers, allow_redirects=False, **more
        ) as answer:
            return FetchedPage(answer.status, await answer.text(), answer.headers, str(answer.url))

    async def get(self, path: str, **headers: str) -> FetchedPage:
        return await self.ask("GET", path, {name.replace("_", "-"): value for name, value in headers.items()})

    async def post(self, path: str, **form: str) -> FetchedPage:
        return await self.ask("POST", path, {"Origin": self.url}, data=form)

    @property
    def cookie(self) -> str:
        (value,) = (each.value for each in self.session.cookie_jar if each.key == "toolyard")
        return value

    @cookie.setter
    def cookie(self, text: str) -> None:
        self.session.cookie_jar.update_cookies({"toolyard": text}, URL(self.url))

    async def sign_in(self, name: str, password: str = PASSWORD, to: str = "") -> FetchedPage:
        page = await self.get("/ui/sign-in")
        return await self.post("/ui/sign-in", name=name, password=password, next=to, csrf=page.csrf)


@pytest.fixture
async def browse() -> AsyncIterator[Callable[..., CookieBrowser]]:
    """``browse(local)``: a new browser."""
    open_: list[CookieBrowser] = []

    def start(local: Any, **more: Any) -> CookieBrowser:
        open_.append(CookieBrowser(local.url, **more))
        return open_[-1]

    yield start
    for browser in open_:
        await browser.session.close()


@pytest.fixture
async def password_site(open_site: Callable[..., Awaitable[Any]]) -> Any:
    return await open_site(people_mode="password")


async def me(browser: CookieBrowser) -> Any:
    return await browser.get("/api/v1/me")


async def _actions(local: Any) -> list[tuple[str, str, str, str]]:
    """The audit log, the oldest first."""
    writing = [task for task in asyncio.all_tasks() if task.get_name() == "toolyard-audit"]
    await asyncio.gather(*writing)
    entries = await local.services.database.audit.entries(before=None, limit=50, action=None, actor=None)
    return [(each.action, each.actor_name, each.target, each.outcome) for each in reversed(entries)]


# Signing in.


async def test_a_user_signs_in_and_out(password_site: Any, browse: Callable[..., CookieBrowser]) -> None:
    await password_site.person("ann")
    browser = browse(password_site)
    page = await browser.get("/ui/mcp?q=1")
    assert (page.status, page.to) == (303, "/ui/sign-in?next=%2Fui%2Fmcp%3Fq%3D1")
    page = await browser.get(page.to)
    assert (page.status, 'name="next" value="/ui/mcp?q=1"' in page.text) == (200, True)
    page = await browser.sign_in("ann", to="/ui/mcp?q=1")
    assert (page.status, page.to) == (303, "/ui/mcp?q=1")
    assert (await me(browser)).status == 200
    page = await browser.get("/ui/account")
    assert (page.status, "Sign out everywhere" in page.text) == (200, True)
    assert (await browser.get("/ui/sign-in?next=/ui/mcp")).to == "/ui/mcp", "who is in needs no form"
    page = await browser.post("/ui/sign-out", csrf=page.csrf)
    assert (page.status, page.to) == (303, "/ui/sign-in")
    assert (await me(browser)).status == 401
    assert (await _actions(password_site))[-2:] == [
        ("sign_in", "ann", "ann", "ok"),
        ("sign_out", "ann", "", "ok"),
    ]


async def test_a_failed_sign_in_does_not_name_the_wrong_field(
    password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    await password_site.person("ann")
    pages = []
    for name, password in (("ann", "a wrong one"), ("nobody", PASSWORD), ('"><script>', "x" * 20)):
        browser = browse(password_site)
        page = await browser.sign_in(name, password)
        assert page.status == 401
        assert "<script>" not in page.text.replace("<script src=", "")
        assert password not in page.text
        pages.append(re.search(r'role="alert".*?</div>', page.text, re.DOTALL)[0])  # type: ignore[index]
        assert (await me(browser)).status == 401
    assert len(set(pages)) == 1
    refused_entries = [entry for entry in await _actions(password_site) if entry[3] == "refused"]
    assert refused_entries == [("sign_in", "", "ann", "refused"), *[("sign_in", "", "", "refused")] * 2]


async def _guess(local: Any, name: str, address: str, times: int = 14) -> None:
    """Strangers' failures, without the time that each of them takes."""
    limits = SignInLimiter(local.services.database.accounts, time.time)
    for _ in range(times):
        await limits.record_failure(guest_counters(name, address))


async def test_too_many_failures_are_told_with_the_time_to_wait(
    password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    await password_site.person("ann")
    browser = browse(password_site)
    assert (await browser.sign_in("ann", "wrong")).status == 401
    await _guess(password_site, "ann", "127.0.0.1")
    page = await browser.sign_in("ann")
    assert (page.status, 100 < int(page.headers["Retry-After"]) <= 300) == (429, True)
    assert "minutes" in page.text


async def test_a_browser_that_was_signed_in_before_is_let_in_while_strangers_guess(
    password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    await password_site.person("ann")
    await password_site.person("bob")
    known_browser, new = browse(password_site), browse(password_site)
    page = await known_browser.sign_in("ann")
    (device,) = (each for each in page.cookies.values() if each.key == "toolyard-device")
    assert (device["httponly"], device["samesite"]) == (True, "Lax")
    await known_browser.post("/ui/sign-out", csrf=(await known_browser.get("/ui/account")).csrf)
    await _guess(password_site, "ann", "127.0.0.1")
    await _guess(password_site, "bob", "127.0.0.1")
    assert (await new.sign_in("ann")).status == 429
    assert (await known_browser.sign_in("bob")).status == 429, "it is known for ann alone"
    assert (await known_browser.sign_in("ann")).status == 303
    assert (await me(known_browser)).status == 200


async def test_failures_are_counted_by_client_behind_a_trusted_proxy(
    open_site: Opening, browse: Callable[..., CookieBrowser]
) -> None:
    local = await open_site(people_mode="password", trusted_proxies=["127.0.0.2"])
    await local.person("ann")

    async def fail(browser: CookieBrowser, behind: str) -> int:
        csrf = (await browser.get("/ui/sign-in")).csrf
        form = {"name": "ann", "password": "wrong", "csrf": csrf}
        headers = {"Origin": browser.url, "X-Forwarded-For": behind}
        return (await browser.ask("POST", "/ui/sign-in", headers, data=form)).status

    proxied_browser, direct = browse(local, source="127.0.0.2"), browse(local)
    await _guess(local, "ann", "192.0.2.1")
    assert await fail(proxied_browser, "192.0.2.1") == 429
    assert await fail(proxied_browser, "192.0.2.2") == 401
    await _guess(local, "ann", "127.0.0.1")
    assert await fail(direct, "192.0.2.3") == 429, "anybody can write that"


# Cookies.


async def test_a_session_begins_with_a_new_cookie(
    password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    """Session fixation: a cookie that somebody planted is worth nothing afterwards."""
    await password_site.person("ann")
    victim, attacker = browse(password_site), browse(password_site)
    await attacker.get("/ui/sign-in")
    victim.cookie = attacker.cookie
    cookie = attacker.cookie
    await victim.sign_in("ann")
    assert (await me(victim)).status == 200
    assert victim.cookie != cookie
    assert (await me(attacker)).status == 401
    first = victim.cookie
    page = await victim.get("/ui/account")
    await victim.post("/ui/sign-out", csrf=page.csrf)
    await victim.sign_in("ann")
    assert victim.cookie not in (first, cookie)
    attacker.cookie = first
    assert (await me(attacker)).status == 401


async def test_signing_in_again_ends_the_session_before(
    password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    await password_site.person("ann")
    await password_site.person("bob")
    browser, other = browse(password_site), browse(password_site)
    page = await browser.get("/ui/sign-in")
    await browser.post("/ui/sign-in", name="ann", password=PASSWORD, csrf=page.csrf)
    other.cookie = anns = browser.cookie
    csrf = (await browser.get("/ui/account")).csrf
    await browser.post("/ui/sign-in", name="bob", password=PASSWORD, csrf=csrf)
    assert browser.cookie != anns
    assert (await me(other)).status == 401


async def test_a_sign_in_page_from_before_another_windows_sign_in_works_at_the_second_try(
    password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    await password_site.person("ann")
    browser = browse(password_site)
    old = (await browser.get("/ui/sign-in?next=/ui/chat")).csrf
    await browser.sign_in("ann")
    form = {"name": "ann", "password": PASSWORD, "next": "/ui/chat"}
    page = await browser.post("/ui/sign-in", csrf=old, **form)
    assert page.status == 403
    assert 'value="ann"' in page.text
    assert PASSWORD not in page.text
    again = await browser.post("/ui/sign-in", csrf=page.csrf, **form)
    assert (again.status, again.headers["Location"]) == (303, "/ui/chat")


@pytest.mark.parametrize(
    ("public_url", "name", "secure"),
    [
        (None, "toolyard", False),
        ("http://yard.lan", "toolyard", False),
        ("https://t.example", "__Host-toolyard", True),
    ],
)
async def test_the_session_cookie_has_secure_attributes(
    open_site: Opening, browse: Callable[..., CookieBrowser], public_url: str | None, name: str, secure: bool
) -> None:
    local = await open_site(people_mode="password", **({"public_url": public_url} if public_url else {}))
    await local.person("ann")
    browser = browse(local)
    page = await browser.get("/ui/sign-in")
    before = page.cookies[name]
    jar = {"Cookie": f"{name}={before.value}", "Origin": local.url}
    form = {"name": "ann", "password": PASSWORD, "csrf": page.csrf}
    after = (await browser.ask("POST", "/ui/sign-in", jar, data=form)).cookies[name]
    for cookie in (before, after):
        assert (cookie["path"], cookie["samesite"], cookie["httponly"]) == ("/", "Lax", True)
        assert bool(cookie["secure"]) is secure
        assert cookie["domain"] == ""
        assert len(cookie.value) == 43
    assert int(after["max-age"]) == 90 * 86_400
    assert before.value != after.value


async def test_programs_get_no_cookie(
    open_site: Opening, password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    for local in (password_site, await open_site()):
        for path in ("/api/v1/me", "/healthz"):
            assert "Set-Cookie" not in (await browse(local).get(path)).headers


async def test_a_cookie_that_is_none_of_ours(
    password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    for text in ("", "x", "A" * 43, "A" * 5000, "é", "a;b"):
        browser = browse(password_site)
        page = await browser.ask("GET", "/api/v1/me", {"Cookie": f"toolyard={text}"})
        assert page.status == 401
        page = await browser.ask("GET", "/ui/sign-in", {"Cookie": f"toolyard={text}"})
        assert page.status == 200


# Forms.


async def test_a_form_without_the_proof_changes_nothing(
    password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    await password_site.person("ann")
    await password_site.person("eve")
    ann, eve = browse(password_site), browse(password_site)
    await ann.sign_in("ann")
    await eve.sign_in("eve")
    stolen = (await eve.get("/ui/account")).csrf
    anonymous = (await browse(password_site).get("/ui/sign-in")).csrf
    own = (await ann.get("/ui/account")).csrf
    assert len({stolen, anonymous, own}) == 3
    for csrf in (
        {},
        {"csrf": ""},
        {"csrf": stolen},
        {"csrf": anonymous},
        {"csrf": own[:-1]},
        {"csrf": "\ud7ff"},
    ):
        for path in ("/ui/sign-out", "/ui/account/sign-out-everywhere", "/ui/account/password"):
            page = await ann.post(path, **csrf, old_password=PASSWORD, new_password="x" * 12, again="x" * 12)
            assert page.status == 403, (path, csrf)
    assert (await me(ann)).status == 200
    page = await ann.ask("POST", "/ui/account/sign-out-everywhere", {"X-CSRF-Token": own})
    assert page.status == 303
    assert (await me(ann)).status == 401


async def test_signing_in_needs_the_proof_too(
    password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    """Otherwise a page elsewhere could sign somebody in as its author, and read what they do."""
    await password_site.person("eve")
    browser = browse(password_site)
    page = await browser.post("/ui/sign-in", name="eve", password=PASSWORD)
    assert page.status == 403
    await browser.get("/ui/sign-in")
    foreign = (await browse(password_site).get("/ui/sign-in")).csrf
    assert (await browser.post("/ui/sign-in", name="eve", password=PASSWORD, csrf=foreign)).status == 403
    assert (await me(browser)).status == 401


async def test_the_proof_outlives_a_restart_and_holds_on_every_replica(
    open_site: Opening, browse: Callable[..., CookieBrowser], tmp_path: Any
) -> None:
    one = await open_site(people_mode="password", data=tmp_path / "shared")
    other = await open_site(people_mode="password", data=tmp_path / "shared")
    await one.person("ann")
    browser = browse(one)
    page = await browser.get("/ui/sign-in")
    at_other = browse(other)
    at_other.cookie = browser.cookie
    response = await at_other.post("/ui/sign-in", name="ann", password=PASSWORD, csrf=page.csrf)
    assert response.status == 303


async def test_the_api_takes_no_types_that_a_form_elsewhere_could_send(
    open_site: Opening, browse: Callable[..., CookieBrowser]
) -> None:
    local = await open_site()
    body = b'{"name": "x", "scope": {"rights": ["read"]}}'
    browser = browse(local)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json", ""):
        skip = {"skip_auto_headers": ["Content-Type"], "data": body}
        content_headers = {"Content-Type": kind} if kind else {}
        assert (await browser.ask("POST", "/api/v1/tokens", content_headers, **skip)).status == 415, kind
    for good in ("application/json", "application/json; charset=utf-8"):
        assert (await browser.ask("POST", "/api/v1/tokens", {"Content-Type": good}, data=body)).status == 201


async def test_no_route_of_the_api_takes_a_body_that_a_form_elsewhere_could_send(
    open_site: Opening, browse: Callable[..., CookieBrowser]
) -> None:
    local, wrong = await open_site(), []
    browser = browse(local)
    unsafe = [
        each for each in _routes(local) if each[0] not in ("GET", "HEAD") and each[1].startswith("/api")
    ]
    assert len(unsafe) > 50, "the routes were not found"
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        for method, path in unsafe:
            text = re.sub(r"\{\w+(:path)?\}", "x", path)
            if (await browser.ask(method, text, {"Content-Type": kind}, data=b"{}")).status != 415:
                wrong.append(f"{method} {path} takes {kind}")
    assert not wrong, "\n".join(wrong)


# Where to go next.


ELSEWHERE = [
    "https://evil.example/",
    "//evil.example",
    "/\\evil.example",
    "/ui\\..\\..//evil.example",
    "///evil.example",
    "javascript:alert(1)",
    "/ui/\r\nSet-Cookie: x=1",
    "/ui/\x00",
    "ui/mcp",
    "/api/v1/me",
    "",
    "http:evil.example",
    "/%2f/evil.example",
    "\t/ui/",
    "https:/ui/",
]


async def test_a_sign_in_leads_nowhere_else(password_site: Any, browse: Callable[..., CookieBrowser]) -> None:
    await password_site.person("ann")
    browser = browse(password_site)
    for to in ELSEWHERE:
        page = await browser.get(f"/ui/sign-in?next={quote(to, safe='')}")
        assert 'name="next" value="/ui/"' in page.text, to
        page = await browser.sign_in("ann", to=to)
        assert (page.status, page.to) == (303, "/ui/"), to
        page = await browser.get(f"/ui/sign-in?next={quote(to, safe='')}")
        assert (page.status, page.to) == (303, "/ui/"), to
        await browser.post("/ui/sign-out", csrf=(await browser.get("/ui/account")).csrf)


# Links.


async def test_a_link_sets_a_password_once(password_site: Any, browse: Callable[..., CookieBrowser]) -> None:
    text = await password_site.services.people.invite("bob", Role.USER)
    browser = browse(password_site)
    page = await browser.get(f"/ui/invite/{text}")
    assert (page.status, "Welcome, bob" in page.text) == (200, True)
    short = await browser.post(f"/ui/invite/{text}", csrf=page.csrf, password="short", again="short")
    assert (short.status, "at least 10 characters" in short.text) == (422, True)
    differ = await browser.post(f"/ui/invite/{text}", csrf=page.csrf, password=PASSWORD, again="x")
    assert (differ.status, "passwords don’t match" in differ.text) == (422, True)
    assert PASSWORD not in differ.text
    no_proof = await browser.post(f"/ui/invite/{text}", password=PASSWORD, again=PASSWORD)
    assert no_proof.status == 403
    response = await browser.post(f"/ui/invite/{text}", csrf=page.csrf, password=PASSWORD, again=PASSWORD)
    assert (response.status, response.to) == (303, "/ui/")
    assert (await me(browser)).status == 200
    again = browse(password_site)
    used_link = await again.get(f"/ui/invite/{text}")
    assert (used_link.status, "<h1>Invalid link</h1>" in used_link.text) == (404, True)
    csrf = (await again.get("/ui/sign-in")).csrf
    assert (
        await again.post(f"/ui/invite/{text}", csrf=csrf, password=PASSWORD, again=PASSWORD)
    ).status == 404
    assert (await again.sign_in("bob")).status == 303
    assert ("invite.accept", "bob", "bob", "ok") in await _actions(password_site)


async def test_a_link_that_was_never_made(password_site: Any, browse: Callable[..., CookieBrowser]) -> None:
    for text in ("x", "A" * 43, "..%2f..%2fetc", "%00", "é", "A" * 5000):
        assert (await browse(password_site).get(f"/ui/invite/{quote(text, safe='%')}")).status == 404, text


# The account.


async def test_changing_the_password(password_site: Any, browse: Callable[..., CookieBrowser]) -> None:
    await password_site.person("ann")
    one, other = browse(password_site), browse(password_site)
    await one.sign_in("ann")
    await other.sign_in("ann")
    csrf = (await one.get("/ui/account")).csrf

    async def change(old: str, new: str, again: str) -> FetchedPage:
        return await one.post(
            "/ui/account/password", csrf=csrf, old_password=old, new_password=new, again=again
        )

    for old, new, again, word in (
        ("wrong", "another password", "another password", "old password is wrong"),
        (PASSWORD, "short", "short", "at least 10"),
        (PASSWORD, "another password", "another passwort", "passwords don’t match"),
    ):
        page = await change(old, new, again)
        assert (page.status, word in page.text) == (422, True), word
    page = await change(PASSWORD, "another password", "another password")
    assert (page.status, page.to) == (303, "/ui/account")
    assert (await me(one)).status == 200
    assert (await me(other)).status == 401
    assert (await browse(password_site).sign_in("ann")).status == 401
    assert (await browse(password_site).sign_in("ann", "another password")).status == 303


# Tokens.


async def test_a_token_opens_the_api_and_no_page(
    password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    ann = await password_site.person("ann")
    browser = browse(password_site, headers={"Authorization": f"Bearer {ann.secret}"})
    assert (await me(browser)).status == 200
    for method, path in (
        ("GET", "/ui/"),
        ("GET", "/ui/account"),
        ("POST", "/ui/account/sign-out-everywhere"),
    ):
        assert (await browser.ask(method, path)).status == 403, path


@pytest.mark.parametrize("mode", ["none", "password", "proxy"])
async def test_a_wrong_token_is_refused_in_every_mode(
    open_site: Opening, browse: Callable[..., CookieBrowser], mode: str
) -> None:
    local = await open_site(people_mode=mode, trusted_proxies=["127.0.0.1"])
    for authorization in ("Bearer ty_" + "A" * 43, "Bearer x", "bearer ", "Bearer  ty_x y"):
        page = await browse(local).ask(
            "GET", "/api/v1/me", {"Authorization": authorization, "Remote-User": "ann"}
        )
        assert page.status == 401, authorization
        assert page.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_token_allows_only_its_rights(
    password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    def scope(*rights: Right) -> TokenScope:
        return TokenScope(frozenset(rights))

    root = await password_site.person("root", Role.ADMIN, scope(Right.READ))
    whole = await password_site.person("whole", Role.ADMIN, scope(Right.READ, Right.ADMIN))
    _, call = await password_site.services.people.create_token(root.user, "x", scope(Right.CALL), None)
    for secret, path, status in (
        (root.secret, "/api/v1/me", 200),
        (call, "/api/v1/me", 403),
        (root.secret, "/api/v1/users", 403),
        (whole.secret, "/api/v1/users", 200),
    ):
        page = await browse(password_site).get(path, Authorization=f"Bearer {secret}")
        assert page.status == status, (path, page.text)
    more = {"name": "more", "scope": {"rights": ["manage"]}}
    bearer = {"Authorization": f"Bearer {whole.secret}"}
    page = await browse(password_site).ask("POST", "/api/v1/tokens", bearer, json=more)
    assert page.status == 403, "a token makes no tokens"


async def test_another_scheme_is_not_our_business(
    open_site: Opening, browse: Callable[..., CookieBrowser]
) -> None:
    page = await browse(await open_site()).get("/api/v1/me", Authorization="Basic YTpi")
    assert page.status == 200


# Admins.


async def test_to_others_the_pages_of_admins_do_not_exist(
    password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    await password_site.person("ann")
    await password_site.person("root", Role.ADMIN)
    ann, root = browse(password_site), browse(password_site)
    await ann.sign_in("ann")
    await root.sign_in("root")
    assert (await ann.get("/ui/admin/people")).status == 404
    assert (await root.get("/ui/admin/people")).status == 200
    assert (await ann.get("/api/v1/users")).status == 403
    assert (await browse(password_site).get("/ui/admin/people")).status == 303


# The mode none.


async def test_the_local_user_needs_nothing_and_forms_need_the_proof_all_the_same(
    open_site: Opening, browse: Callable[..., CookieBrowser]
) -> None:
    local = await open_site()
    browser = browse(local)
    assert (await me(browser)).status == 200
    page = await browser.get("/ui/account")
    assert page.status == 200
    assert "Sign out" not in page.text
    assert page.cookies["toolyard"]["httponly"]
    assert (await browser.post("/ui/account/sign-out-everywhere")).status == 403
    assert (await browse(local).post("/ui/account/sign-out-everywhere", csrf=page.csrf)).status == 403
    assert (await browser.get("/ui/sign-in")).to == "/ui/"
    assert (await browser.get("/ui/sign-in/oidc")).status == 404
    again = await browser.get("/ui/account")
    assert again.proof == page.proof, "one browser stays one browser"
    assert "toolyard" not in again.cookies


# The mode proxy.


async def test_the_proxy_names_the_user(open_site: Opening, browse: Callable[..., CookieBrowser]) -> None:
    local = await open_site(people_mode="proxy", trusted_proxies=["127.0.0.2"], admins=["root"])
    proxied_browser = browse(local, source="127.0.0.2")
    assert (await proxied_browser.get("/api/v1/me", Remote_User="ann")).status == 200
    assert (await proxied_browser.get("/ui/admin/people", Remote_User="ann")).status == 404
    assert (await proxied_browser.get("/ui/admin/people", Remote_User="root")).status == 200
    for path in ("/api/v1/me", "/ui/"):
        page = await proxied_browser.get(path)
        assert page.status == 401
        assert "Remote-User" in page.text
        assert (await proxied_browser.get(path, Remote_User=" ")).status == 401
    page = await proxied_browser.get("/api/v1/me", Remote_User="Jörg")
    assert (page.status, '"Jörg"' in page.text) == (200, True)


async def test_a_forged_header_from_anywhere_else_is_refused_with_the_reason(
    open_site: Opening, browse: Callable[..., CookieBrowser]
) -> None:
    local = await open_site(people_mode="proxy", trusted_proxies=["127.0.0.2"], admins=["root"])
    forger = browse(local)
    for path in ("/api/v1/me", "/ui/", "/ui/admin/people"):
        for headers in (
            {"Remote_User": "root"},
            {"Remote_User": "root", "X_Forwarded_For": "127.0.0.2"},
            {"Remote_User": "root", "X_Real_IP": "127.0.0.2", "Forwarded": "for=127.0.0.2"},
        ):
            page = await forger.get(path, **headers)
            assert page.status == 403
            assert "trusted_proxies" in page.text
            assert "127.0.0.1" in page.text
        assert (await forger.get(path)).status == 401
    assert [user.name for user in await local.services.database.accounts.list_users()] == []


async def test_two_names_are_none(open_site: Opening) -> None:
    local = await open_site(people_mode="proxy", trusted_proxies=["127.0.0.1"], admins=["root"])
    port = URL(local.url).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Remote-User: root\r\nRemote-User: ann\r\n\r\n"
    )
    assert b" 403 " in (await asyncio.wait_for(reader.read(), 30)).partition(b"\r\n")[0]
    writer.close()


async def test_another_header_may_be_chosen(open_site: Opening, browse: Callable[..., CookieBrowser]) -> None:
    local = await open_site(people_mode="proxy", trusted_proxies=["127.0.0.1"], proxy_header="X-Who")
    assert (await browse(local).get("/api/v1/me", Remote_User="ann")).status == 401
    assert (await browse(local).get("/api/v1/me", X_Who="ann")).status == 200


# Every route.

PUBLIC = {
    "/",
    "/ui",
    "/healthz",
    "/readyz",
    "/static",
    "/api/v1/openapi.json",
    "/oauth/client.json",
    "/oauth/client/{digest}.json",
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/{path:path}",
    "/ui/sign-in",
    "/ui/sign-in/oidc",
    "/ui/oidc/callback",
    "/ui/sign-out",
    "/ui/invite/{token}",
    "/ui/theme",
    "/ui/docs",
    "/ui/docs/{name:path}",
}
"""What anybody may ask for. A form of a page needs the proof all the same, except the choice of colours."""


def _routes(local: Any) -> list[tuple[str, str]]:
    from toolyard.web.routes import list_routes

    routes = list_routes(local.app)
    return sorted({(method, route.path) for route in routes for method in route.methods})


async def test_without_a_sign_in_nothing_but_the_way_in_answers(
    password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    browser, routes, wrong = browse(password_site), _routes(password_site), []
    assert len(routes) > 40, "the routes were not found"
    for method, path in routes:
        if path in PUBLIC:
            continue
        page = await browser.ask(method, re.sub(r"\{\w+(:path)?\}", "x", path))
        away = page.status == 303 and page.to.startswith("/ui/sign-in")
        if not (away if path.startswith("/ui") else page.status == 401):
            wrong.append(f"{method} {path}: {page.status} {page.headers.get('Location', '')}")
    assert not wrong, "\n".join(wrong)


async def test_no_two_pages_carry_the_same_proof_and_each_counts(
    password_site: Any, browse: Callable[..., CookieBrowser]
) -> None:
    """Otherwise the lengths of compressed pages would give it away, piece by piece (BREACH)."""
    await password_site.person("ann")
    browser = browse(password_site)
    await browser.sign_in("ann")
    pages = [await browser.get("/ui/account") for _ in range(5)]
    proofs = [page.csrf for page in pages]
    assert len({half for proof in proofs for half in (proof[:64], proof[64:])}) == 10
    # A page that was open while Toolyard was updated carries the proof without a mask.
    (plain,) = {page.proof for page in pages}
    other = proofs[0][64:]
    wrong = [plain[:-2], plain + "00", other + other, "0" * 128, "0" * 64, "ä" * 64, plain[::-1], ""]
    for proof in wrong:
        assert (await browser.post("/ui/account/sign-out-everywhere", csrf=proof)).status == 403, proof
    for proof in (*proofs, plain):
        page = await browser.post("/ui/account/password", csrf=proof, old_password="no", new_password="x")
        assert page.status != 403


async def test_no_form_of_any_page_counts_without_the_proof(
    open_site: Opening, browse: Callable[..., CookieBrowser]
) -> None:
    local, wrong = await open_site(), []
    browser = browse(local)
    await browser.get("/ui/account")
    forms = [path for method, path in _routes(local) if method == "POST" and path.startswith("/ui")]
    assert len(forms) > 10, "the forms were not found"
    for path in forms:
        page = await browser.post(re.sub(r"\{\w+(:path)?\}", "x", path), name="x", password="x" * 12)
        if page.status != 403 and path != "/ui/theme":
            wrong.append(f"{path}: {page.status}")
    assert not wrong, "\n".join(wrong)
