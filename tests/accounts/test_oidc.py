"""Sign-in at an identity provider: a real one, and one that sends wrong values."""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from joserfc.jwk import RSAKey
from tests.accounts import hostile_oidc_provider
from tests.manual_clock import ManualClock
from yarl import URL

from toolyard.accounts import AccountService
from toolyard.accounts.effective_role import Identity
from toolyard.accounts.errors import NotAllowed, ProviderFailed, SignInRefused, TooManySignIns
from toolyard.accounts.oidc.provider import PROVIDER_TIMEOUT_SECONDS, ProviderMetadata
from toolyard.accounts.oidc.sign_in import OidcSignIn
from toolyard.accounts.provisioning import find_or_create_account
from toolyard.accounts.random_secrets import hash_secret, new_secret
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.errors import ToolyardError
from toolyard.net import OutboundHttp
from toolyard.types.account import Right, Role, TokenScope

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter

ROOT = Path(__file__).parent.parent.parent
MODULES = ROOT / ".envs/node/node_modules"
REDIRECT = "http://127.0.0.1:3999/ui/oidc/callback"
HERE = "192.0.2.1"


@pytest.fixture
def database_url() -> None:
    """SQLite only: the storage is tested on both databases elsewhere."""


@pytest.fixture
async def net() -> AsyncIterator[OutboundHttp]:
    net = OutboundHttp()
    yield net
    await net.close()


@pytest.fixture
def make_oidc(database: Any, net: OutboundHttp) -> Callable[..., OidcSignIn]:
    """``make_oidc(issuer, admins=…)``: one process."""

    def make(
        issuer: str,
        *,
        clock: Callable[[], float] = time.time,
        timeout_seconds: float = PROVIDER_TIMEOUT_SECONDS,
        **more: Any,
    ) -> OidcSignIn:
        changes: dict[str, Any] = {
            "oidc_client_id": hostile_oidc_provider.CLIENT,
            "oidc_client_secret": hostile_oidc_provider.SECRET,
            **more,
        }
        settings = Settings(people_mode=PeopleMode.OIDC, oidc_issuer=issuer, **changes)
        return OidcSignIn(settings, database.accounts, net, clock=clock, timeout_seconds=timeout_seconds)

    return make


async def person(url: str, name: str) -> dict[str, str]:
    """Complete the forms of the provider with consent; return the parameters of the redirect."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        method, at, data = "GET", URL(url, encoded=True), dict[str, str]()
        for _ in range(20):
            async with session.request(method, at, data=data or None, allow_redirects=False) as response:
                page = await response.text()
                if response.status in (302, 303):
                    method, at, data = "GET", at.join(URL(response.headers["Location"], encoded=True)), {}
                    if at.path == "/ui/oidc/callback":
                        return dict(at.query)
                    continue
            form = re.search(r'<form[^>]*action="([^"]+)"', page)
            assert form is not None, page
            data = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page))
            data.update({"login": name, "password": "x"} if 'name="login"' in page else {})
            method, at = "POST", at.join(URL(html.unescape(form[1])))
    raise AssertionError("the pages never end")


# A real provider.


OURS = {"oidc_client_id": "toolyard: team", "oidc_client_secret": "a secret/with + odd: characters%"}


@pytest.fixture(params=["client_secret_basic", "client_secret_post"])
def provider(start_program: ProgramStarter, request: pytest.FixtureRequest) -> str:
    """A provider that accepts our secret by one method only."""
    if not (MODULES / "oidc-provider").exists():
        pytest.skip("oidc-provider is not installed; make unit installs it")
    words = ("node", Path(__file__).with_name("oidc.mjs"), "{port}", MODULES, REDIRECT, request.param)
    return start_program(*words).url


@pytest.mark.slow
async def test_people_sign_in_at_a_real_provider(
    provider: str, make_oidc: Callable[..., OidcSignIn], database: Any
) -> None:
    oidc = make_oidc(provider, admins=("ann@example.org", "admin"), **OURS)

    async def sign_in(name: str) -> Any:
        browser = new_secret()
        url = await oidc.begin("/ui/mcp?a=1&b=2", browser=browser, redirect_uri=REDIRECT, address=HERE)
        return await oidc.finish(await person(url, name), browser=browser)

    ann, to = await sign_in("ann")
    assert to == "/ui/mcp?a=1&b=2"
    assert (ann.name, ann.role, ann.subject) == ("ann", Role.ADMIN, f"{provider}|ann")
    again, _ = await sign_in("ann")
    assert again.id == ann.id
    eve, _ = await sign_in("eve")
    assert (eve.name, eve.role) == ("admin", Role.USER), "a name of one's choice makes nobody an admin"
    admin, _ = await sign_in("admin")
    assert (admin.name, admin.role) == ("admin-2", Role.ADMIN), "the sub does"
    await database.accounts.set_disabled(ann.id, True)
    with pytest.raises(NotAllowed, match="disabled"):
        await sign_in("ann")


@pytest.mark.slow
async def test_a_wrong_secret_is_the_operators_business(
    provider: str, make_oidc: Callable[..., OidcSignIn]
) -> None:
    oidc = make_oidc(provider, **{**OURS, "oidc_client_secret": "wrong"})
    browser = new_secret()
    url = await oidc.begin("/ui/", browser=browser, redirect_uri=REDIRECT, address=HERE)
    with pytest.raises(ProviderFailed, match="oidc_client_secret"):
        await oidc.finish(await person(url, "ann"), browser=browser)


# A provider that sends wrong values.


@pytest.fixture
async def forger() -> AsyncIterator[Any]:
    provider = hostile_oidc_provider.HostileOidcProvider()
    runner = web.ServerRunner(web.Server(provider.answer), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield provider
    await runner.cleanup()


async def _sign_in(oidc: OidcSignIn, forger: Any, **answer: str | None) -> Any:
    browser = new_secret()
    url = await oidc.begin("/ui/", browser=browser, redirect_uri=REDIRECT, address=HERE)
    params = {k: v for k, v in (forger.redirected(url) | answer).items() if v is not None}
    return await oidc.finish(params, browser=browser)


async def test_valid_id_tokens_are_accepted(forger: Any, make_oidc: Callable[..., OidcSignIn]) -> None:
    forger.claims = {"preferred_username": "ann"}
    user, _ = await _sign_in(make_oidc(forger.issuer), forger, iss=forger.issuer)
    assert user.name == "ann"


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another"},
        {"aud": ["another", "third"]},
        {"aud": None},
        {"aud": []},
        {"aud": [hostile_oidc_provider.CLIENT, "another"]},
        {"aud": [hostile_oidc_provider.CLIENT, "another"], "azp": "another"},
        {"azp": "another"},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"exp": -120},
        {"exp": None},
        {"exp": "never"},
        {"iat": 3600},
        {"iat": None},
        {"nbf": 3600},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
        {"at_hash": "bm90IHRoaXMgb25l"},
    ],
    ids=str,
)
async def test_an_id_token_with_a_wrong_claim_is_refused(
    forger: Any, make_oidc: Callable[..., OidcSignIn], database: Any, claims: dict[str, Any]
) -> None:
    # Numbers are seconds from now: names of tests must be the same in every process that collects them.
    now = int(time.time())
    times = {name: now + value for name, value in claims.items() if name != "sub" and isinstance(value, int)}
    forger.claims = {**claims, **times}
    with pytest.raises(SignInRefused):
        await _sign_in(make_oidc(forger.issuer), forger)
    assert await database.accounts.list_users() == []


def _stolen(forger: Any) -> None:
    """Return a token signed with the attacker's own key under the provider's key id."""
    forger.sign_with = RSAKey.generate_key(2048, {"kid": "one"})


def _nothing(forger: Any) -> None:
    forger.header = {"alg": "none"}


def _nothing_with_kid(forger: Any) -> None:
    forger.header = {"alg": "none", "kid": "one"}


def _build_confused_token(forger: Any) -> None:
    """Return a token signed symmetrically, with the provider's public key as the secret."""
    forger.header = {"alg": "HS256", "kid": "one"}
    forger.sign_with = forger.key.as_pem(private=False)


def _our_secret(forger: Any) -> None:
    forger.header = {"alg": "HS256"}
    forger.sign_with = hostile_oidc_provider.SECRET.encode()


def _own_key(forger: Any) -> None:
    """Return a token with the attacker's own public key in its header."""
    forger.sign_with = RSAKey.generate_key(2048, {"kid": "one"})
    forger.header["jwk"] = forger.sign_with.as_dict(private=False)


def _critical(forger: Any) -> None:
    forger.header |= {"crit": ["exp"], "exp": 1}


@pytest.mark.parametrize(
    "forge", [_stolen, _nothing, _nothing_with_kid, _build_confused_token, _our_secret, _own_key, _critical]
)
async def test_an_id_token_with_a_foreign_signature_is_refused(
    forger: Any, make_oidc: Callable[..., OidcSignIn], database: Any, forge: Callable[[Any], None]
) -> None:
    forge(forger)
    with pytest.raises((SignInRefused, ProviderFailed)):
        await _sign_in(make_oidc(forger.issuer), forger)
    assert await database.accounts.list_users() == []


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "..", "e30.e30.", {"not": "text"}, None, "x" * 300_000])
async def test_malformed_tokens_are_refused(
    forger: Any, make_oidc: Callable[..., OidcSignIn], token: Any
) -> None:
    forger.token = {"id_token": token, "access_token": "x"}
    with pytest.raises((SignInRefused, ProviderFailed)):
        await _sign_in(make_oidc(forger.issuer), forger)


async def test_an_unknown_key_is_looked_up_once_more(
    forger: Any, make_oidc: Callable[..., OidcSignIn]
) -> None:
    clock = ManualClock(time.time())
    oidc = make_oidc(forger.issuer, clock=clock)
    await _sign_in(oidc, forger)
    await _sign_in(oidc, forger)
    assert forger.asked.count("/jwks") == 1
    assert forger.asked.count("/.well-known/openid-configuration") == 1
    # The provider changed its key.
    fresh = RSAKey.generate_key(2048, {"kid": "two", "use": "sig"})
    old, forger.key = forger.key, fresh
    forger.header["kid"], forger.published = "two", [old, fresh]
    clock.forward(11)
    await _sign_in(oidc, forger)
    assert forger.asked.count("/jwks") == 2
    # A key that the provider does not have is not fetched repeatedly.
    forger.header["kid"] = "three"
    for _ in range(3):
        with pytest.raises(ProviderFailed, match="not in its key set"):
            await _sign_in(oidc, forger)
    assert forger.asked.count("/jwks") == 2


async def test_userinfo_adds_claims_and_the_id_token_wins(
    forger: Any, make_oidc: Callable[..., OidcSignIn]
) -> None:
    forger.userinfo = {"preferred_username": "other", "email": "ann@example.org", "email_verified": True}
    forger.claims = {"preferred_username": "ann"}
    user, _ = await _sign_in(make_oidc(forger.issuer, admins=("ann@example.org",)), forger)
    assert (user.name, user.role) == ("ann", Role.ADMIN)
    forger.userinfo["sub"] = "2"
    with pytest.raises(SignInRefused, match="different users"):
        await _sign_in(make_oidc(forger.issuer), forger)


async def test_a_user_removed_from_the_admins_loses_the_role(
    forger: Any, make_oidc: Callable[..., OidcSignIn]
) -> None:
    user, _ = await _sign_in(make_oidc(forger.issuer, admins=("1",)), forger)
    assert user.role is Role.ADMIN
    user, _ = await _sign_in(make_oidc(forger.issuer, admins=("2",)), forger)
    assert user.role is Role.USER


EMAIL = {"preferred_username": "ann", "email": "Ann@Example.org", "email_verified": True}


async def _roles(people: AccountService, cookie: str, token: str) -> set[Role]:
    """Return the current roles of a browser session and an API token of one person."""
    by_cookie, by_token = await people.authenticate_cookie(cookie), await people.authenticate_token(token)
    assert by_cookie is not None
    assert by_token is not None
    return {by_cookie[1].role, by_token[1].role}


async def test_an_address_removed_from_admins_counts_for_no_session_and_no_token(
    forger: Any, make_oidc: Callable[..., OidcSignIn], make_people: Callable[..., AccountService]
) -> None:
    def process(*admins: str) -> AccountService:
        return make_people(
            "oidc", oidc_issuer=forger.issuer, oidc_client_id=hostile_oidc_provider.CLIENT, admins=admins
        )

    forger.claims = EMAIL
    before = process("ann@example.org", "bob@example.org")
    user, _ = await _sign_in(make_oidc(forger.issuer, admins=("ann@example.org",)), forger)
    cookie = await before.begin_session(user)
    _, token = await before.create_token(user, "x", TokenScope(frozenset({Right.ADMIN})), None)
    assert await _roles(before, cookie, token) == {Role.ADMIN}
    assert await _roles(process("bob@example.org"), cookie, token) == {Role.USER}
    assert await _roles(process("ANN@example.org"), cookie, token) == {Role.ADMIN}, "named again"


async def test_an_address_that_another_account_has_now_is_not_the_first_accounts_any_more(
    forger: Any, make_oidc: Callable[..., OidcSignIn], make_people: Callable[..., AccountService]
) -> None:
    oidc = make_oidc(forger.issuer, admins=("ann@example.org",))
    people = make_people(
        "oidc",
        oidc_issuer=forger.issuer,
        oidc_client_id=hostile_oidc_provider.CLIENT,
        admins=("ann@example.org",),
    )
    forger.claims = EMAIL
    first, _ = await _sign_in(oidc, forger)
    cookie = await people.begin_session(first)
    forger.claims = {**EMAIL, "sub": "2"}
    second, _ = await _sign_in(oidc, forger)
    assert (second.id != first.id, second.role) == (True, Role.ADMIN)
    principal = await people.authenticate_cookie(cookie)
    assert principal is not None
    assert principal[1].role is Role.USER


# The two steps of a sign-in.


async def test_a_state_works_once_in_its_own_browser_and_for_a_while(
    forger: Any, make_oidc: Callable[..., OidcSignIn]
) -> None:
    clock, browser = ManualClock(time.time()), new_secret()
    oidc = make_oidc(forger.issuer, clock=clock)

    async def begin() -> dict[str, str]:
        return forger.redirected(
            await oidc.begin("/ui/", browser=browser, redirect_uri=REDIRECT, address=HERE)
        )

    answer = await begin()
    for other in ("", new_secret(), hash_secret(browser)):
        with pytest.raises(SignInRefused, match="another browser"):
            await oidc.finish(answer, browser=other)
        with pytest.raises(SignInRefused, match="unknown"):
            await oidc.finish(answer, browser=browser)
        answer = await begin()
    await oidc.finish(answer, browser=browser)
    with pytest.raises(SignInRefused, match="has already been completed"):
        await oidc.finish(answer, browser=browser)
    answer = await begin()
    clock.forward(901)
    with pytest.raises(SignInRefused, match="has expired"):
        await oidc.finish(answer, browser=browser)


async def test_two_tabs_at_once_both_get_in(forger: Any, make_oidc: Callable[..., OidcSignIn]) -> None:
    oidc, browser = make_oidc(forger.issuer), new_secret()
    urls = [await oidc.begin("/ui/", browser=browser, redirect_uri=REDIRECT, address=HERE) for _ in range(2)]
    outcomes = [await oidc.finish(forger.redirected(url), browser=browser) for url in urls]
    assert len({user.id for user, _ in outcomes}) == 1


async def test_two_first_sign_ins_at_once_are_one_account(database: Any) -> None:
    identity = Identity("https://id.example", "1", "ann", "ann@example.org")
    adding = (find_or_create_account(database.accounts, identity, complete=True) for _ in range(10))
    users = await asyncio.gather(*adding)
    assert len({user.id for user in users}) == 1


@pytest.mark.parametrize("state", ["", "x", "A" * 43, "' OR 1=1"])
async def test_a_state_that_was_never_given(
    forger: Any, make_oidc: Callable[..., OidcSignIn], state: str
) -> None:
    oidc = make_oidc(forger.issuer)
    with pytest.raises(SignInRefused, match="unknown"):
        await oidc.finish({"code": "x", "state": state}, browser=new_secret())
    assert forger.asked == []


async def test_an_answer_of_another_issuer_is_refused(
    forger: Any, make_oidc: Callable[..., OidcSignIn]
) -> None:
    with pytest.raises(SignInRefused, match="configured identity provider"):
        await _sign_in(make_oidc(forger.issuer), forger, iss="https://evil.example")
    forger.metadata = {"authorization_response_iss_parameter_supported": True}
    with pytest.raises(SignInRefused, match="configured identity provider"):
        await _sign_in(make_oidc(forger.issuer), forger)
    assert "/token" not in forger.asked


async def test_a_refusal_is_told_in_words_that_cannot_hurt(
    forger: Any, make_oidc: Callable[..., OidcSignIn]
) -> None:
    with pytest.raises(SignInRefused) as exc_info:
        await _sign_in(
            make_oidc(forger.issuer), forger, error="access_denied", error_description="no\x1b[31m\n<b>"
        )
    assert "access_denied (no <b>)" in exc_info.value.cause


async def test_too_many_begun_from_one_address(forger: Any, make_oidc: Callable[..., OidcSignIn]) -> None:
    oidc = make_oidc(forger.issuer)

    async def begin(address: str) -> None:
        await oidc.begin("/ui/", browser=new_secret(), redirect_uri=REDIRECT, address=address)

    for _ in range(60):
        await begin(HERE)
    with pytest.raises(TooManySignIns):
        await begin(HERE)
    await begin("198.51.100.7")


# A provider that fails.


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example"},
        {"issuer": None},
        {"token_endpoint": None},
        {"token_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": "/relative"},
        {"jwks_uri": 5},
    ],
    ids=str,
)
async def test_metadata_that_cannot_be_used(
    forger: Any, make_oidc: Callable[..., OidcSignIn], metadata: dict[str, Any]
) -> None:
    forger.metadata = metadata
    with pytest.raises(ProviderFailed):
        await _sign_in(make_oidc(forger.issuer), forger)


async def test_a_provider_that_fails_is_tried_again(
    forger: Any, make_oidc: Callable[..., OidcSignIn]
) -> None:
    oidc = make_oidc(forger.issuer)
    forger.metadata = {"token_endpoint": None}
    with pytest.raises(ProviderFailed):
        await _sign_in(oidc, forger)
    forger.metadata = {}
    for token, status in (
        ({"error": "server_error"}, 500),
        ({"error": "invalid_grant"}, 400),
        ([], 200),
        ({}, 200),
    ):
        forger.token, forger.token_status = token, status
        with pytest.raises(ToolyardError):
            await _sign_in(oidc, forger)
    forger.token, forger.published = None, []
    with pytest.raises(ProviderFailed, match="key set"):
        await _sign_in(oidc, forger)
    forger.published = None
    await _sign_in(oidc, forger)


async def test_a_provider_that_is_not_there(make_oidc: Callable[..., OidcSignIn]) -> None:
    with pytest.raises(ProviderFailed, match="cannot be reached"):
        await make_oidc("http://127.0.0.1:9").begin(
            "/ui/", browser=new_secret(), redirect_uri=REDIRECT, address=HERE
        )


async def test_a_provider_that_does_not_answer_is_waited_for_once(
    forger: Any, make_oidc: Callable[..., OidcSignIn]
) -> None:
    """Concurrent sign-ins share one wait. One after the other, the last would wait many times as long."""
    oidc, forger.silent = make_oidc(forger.issuer, timeout_seconds=1.0), asyncio.Event()
    begins = [
        oidc.begin("/ui/", browser=new_secret(), redirect_uri=REDIRECT, address=HERE) for _ in range(10)
    ]
    results = await asyncio.gather(*begins, return_exceptions=True)
    forger.silent.set()
    assert {type(each) for each in results} == {ProviderFailed}
    assert len(forger.asked) == 1
    forger.silent = None
    await _sign_in(oidc, forger)


def test_an_encrypted_provider_names_no_open_address() -> None:
    issuer = "https://id.example"
    names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    about: dict[str, Any] = {"issuer": f"{issuer}/", **{name: f"{issuer}/{name}" for name in names}}
    metadata = ProviderMetadata.from_document(about, issuer)
    assert metadata.issuer == f"{issuer}/", "the name is as the provider writes it"
    with pytest.raises(ProviderFailed, match="token_endpoint"):
        ProviderMetadata.from_document({**about, "token_endpoint": "http://id.example/token"}, issuer)


async def test_the_state_for_the_second_step_is_encrypted(
    forger: Any, make_oidc: Callable[..., OidcSignIn], tmp_path: Path
) -> None:
    browser = new_secret()
    url = await make_oidc(forger.issuer).begin("/ui/x", browser=browser, redirect_uri=REDIRECT, address=HERE)
    state, nonce = (URL(url, encoded=True).query[name] for name in ("state", "nonce"))
    database_bytes = b"".join(path.read_bytes() for path in (tmp_path / "data").glob("toolyard.db*"))
    assert hash_secret(state).encode() in database_bytes
    for secret in (state, nonce, browser, "/ui/x", REDIRECT):
        assert secret.encode() not in database_bytes


async def test_the_keys_of_an_identity_provider_are_read_again_after_the_clock_was_set_back(
    forger: Any, clock: ManualClock
) -> None:
    from toolyard.accounts.oidc.provider import OidcProvider

    net = OutboundHttp()
    try:
        provider = OidcProvider(Settings(oidc_issuer=forger.issuer, oidc_client_id="toolyard"), net, clock)
        first = await provider.get_keys()
        assert await provider.get_keys() is first
        clock.now -= 366 * 86_400.0
        assert await provider.get_keys() is not first
    finally:
        await net.close()
