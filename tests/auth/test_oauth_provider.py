from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from toolyard import Toolyard
from toolyard.auth.errors import (
    AnswerRejected,
    AuthorizationDenied,
    AuthUnavailable,
    DiscoveryFailed,
    NeverSignedIn,
    RegistrationFailed,
    ScopeNeeded,
    SignInEnded,
    TooManyAttempts,
)
from toolyard.auth.oauth_provider import OAuthProvider
from toolyard.auth.provider import parse_challenge
from toolyard.auth.sign_in_flow import AuthorizationResponse
from toolyard.errors import SignInNeeded
from toolyard.types.server import State

if TYPE_CHECKING:
    from tests.auth.conftest import OAuthFixture

Query = Callable[[str], dict[str, str]]


async def test_a_first_request_signs_in_and_later_ones_do_not(oauth_fixture: OAuthFixture) -> None:
    provider = oauth_fixture.provider()
    for _ in range(3):
        await oauth_fixture.call(provider)
    assert len(oauth_fixture.urls) == 1
    assert [bool(entry["token"]) for entry in await oauth_fixture.log("call")] == [False, True, True, True]


@pytest.mark.both_loops
async def test_fifty_first_requests_share_one_sign_in(leaks: None, oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(token_delay=0.05)
    provider = oauth_fixture.provider()
    await asyncio.gather(*(oauth_fixture.call(provider) for _ in range(50)))
    assert len(oauth_fixture.urls) == 1


async def test_a_slow_sign_in_is_not_requested_twice(
    oauth_fixture: OAuthFixture,
) -> None:
    arrived = asyncio.Event()

    async def slowly(url: str) -> AuthorizationResponse:
        await arrived.wait()
        return await oauth_fixture.browse(url)

    provider = oauth_fixture.provider(authorize=slowly)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await oauth_fixture.call(provider)
    second = asyncio.create_task(oauth_fixture.call(provider))
    await asyncio.sleep(0)
    arrived.set()
    await second
    assert len(oauth_fixture.urls) == 1


async def test_closing_ends_a_sign_in_that_waits_for_a_person(oauth_fixture: OAuthFixture) -> None:
    begun = asyncio.Event()

    async def never(url: str) -> AuthorizationResponse:
        begun.set()
        await asyncio.Event().wait()
        return AuthorizationResponse("", {})

    provider = oauth_fixture.provider(authorize=never)
    task = asyncio.create_task(oauth_fixture.call(provider))
    await begun.wait()
    await provider.close()
    with pytest.raises(AuthUnavailable):
        await task


async def test_a_declined_sign_in_is_reported(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(authorize_error="access_denied")
    assert isinstance(await oauth_fixture.failure(oauth_fixture.provider()), AuthorizationDenied)


async def test_an_answer_of_another_sign_in_is_not_taken(oauth_fixture: OAuthFixture) -> None:
    other = await oauth_fixture.flow().begin("somebody else", oauth_fixture.target())

    async def mix_up(url: str) -> AuthorizationResponse:
        response = await oauth_fixture.browse(url)
        return replace(response, params={**response.params, "state": other.state})

    provider = oauth_fixture.provider(authorize=mix_up)
    assert isinstance(await oauth_fixture.failure(provider), AnswerRejected)
    assert await oauth_fixture.storage.take_pending(other.state) is not None
    assert not await oauth_fixture.log("token")


async def test_a_sign_in_elsewhere_is_noticed(oauth_fixture: OAuthFixture) -> None:
    provider = oauth_fixture.provider(person=False)
    assert isinstance(await oauth_fixture.failure(provider), NeverSignedIn)
    redirect = await oauth_fixture.flow().begin(oauth_fixture.mcp, oauth_fixture.target())
    await oauth_fixture.flow().finish(await oauth_fixture.browse(redirect.url))
    await oauth_fixture.call(provider)


async def test_a_connection_learns_that_a_sign_in_is_needed(oauth_fixture: OAuthFixture) -> None:
    error = await oauth_fixture.failure(oauth_fixture.provider(person=False))
    assert isinstance(error, SignInNeeded)
    assert error.challenge is not None
    assert "resource_metadata" in error.challenge


async def test_a_server_that_refuses_everything_is_not_tried_for_ever(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(refuse=401)
    provider = oauth_fixture.provider()
    for _ in range(4):
        assert isinstance(await oauth_fixture.failure(provider), SignInNeeded)
    assert len(oauth_fixture.urls) <= 3
    assert isinstance(await oauth_fixture.failure(provider), TooManyAttempts)
    oauth_fixture.clock.now += 1000
    await oauth_fixture.change(refuse=None)
    await oauth_fixture.call(provider)


async def test_only_sign_ins_that_a_person_saw_are_counted(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(resource_places=[])
    provider = oauth_fixture.provider()
    for _ in range(5):
        assert isinstance(await oauth_fixture.failure(provider), DiscoveryFailed)
    await oauth_fixture.change(resource_places=["/.well-known/oauth-protected-resource/mcp"])
    await oauth_fixture.call(provider)


# Step-up.


async def test_more_scopes_are_asked_for_beside_those_that_were_granted(
    oauth_fixture: OAuthFixture, query: Query
) -> None:
    await oauth_fixture.set(challenge_scope="read")
    provider = oauth_fixture.provider()
    await oauth_fixture.call(provider)
    await oauth_fixture.change(needs=["write"])
    answer = await oauth_fixture.call(provider)
    assert [query(url)["scope"] for url in oauth_fixture.urls] == ["read", "read write"]
    assert answer["scope"] == "read write"


async def test_a_later_sign_in_keeps_the_scopes_that_were_added(
    oauth_fixture: OAuthFixture, query: Query
) -> None:
    await oauth_fixture.set(challenge_scope="read", refresh_tokens=False)
    provider = oauth_fixture.provider()
    await oauth_fixture.call(provider)
    await oauth_fixture.change(needs=["write"])
    await oauth_fixture.call(provider)
    oauth_fixture.clock.now += 4000
    await oauth_fixture.call(provider)
    assert query(oauth_fixture.urls[-1])["scope"] == "read write"


async def test_a_server_that_always_wants_more_is_given_up(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(challenge_scope="admin", needs=["admin"], refuse=403)
    provider = oauth_fixture.provider()
    for _ in range(3):
        assert isinstance(await oauth_fixture.failure(provider), TooManyAttempts)
    assert len(oauth_fixture.urls) <= 3


async def test_a_server_that_names_another_scope_each_time_is_given_up(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(challenge_scope="s0", refuse=403)
    provider = oauth_fixture.provider()
    for round_ in range(6):
        await oauth_fixture.change(needs=[f"s{round_}"])
        assert isinstance(await oauth_fixture.failure(provider), SignInNeeded)
    assert len(oauth_fixture.urls) == 3


async def test_without_a_person_the_scopes_are_named(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(challenge_scope="read")
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.change(needs=["write"])
    error = await oauth_fixture.failure(oauth_fixture.provider(person=False))
    assert isinstance(error, ScopeNeeded)
    assert error.scopes == ("read", "write")
    assert error.status == 403


async def test_requests_that_are_refused_at_once_for_other_reasons_hear_their_own(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    provider = oauth_fixture.provider(person=False)
    await oauth_fixture.call(provider)
    await oauth_fixture.forget("access")

    async def challenge_provider(status: int, words: str) -> bool | tuple[str, ...]:
        await provider.headers()
        try:
            return await provider.challenged(parse_challenge(status, f"Bearer {words}"))
        except ScopeNeeded as error:
            return error.scopes

    reasons = [(403, 'error="insufficient_scope", scope="a"'), (403, 'error="insufficient_scope", scope="b"')]
    reasons.append((401, 'error="invalid_token"'))
    results = await asyncio.gather(*(challenge_provider(*reason) for reason in reasons * 2))
    assert results == [("a",), ("b",), True] * 2
    assert len(await oauth_fixture.log("token")) == 2
    # The next sign-in requests all wanted scopes.
    assert (await oauth_fixture.storage.get_grant(oauth_fixture.mcp)).wanted == ("a", "b")


async def test_closing_ends_queued_sign_ins(oauth_fixture: OAuthFixture) -> None:
    request_received, never = asyncio.Event(), asyncio.Event()

    async def away(url: str) -> Any:
        request_received.set()
        await never.wait()

    provider = oauth_fixture.provider(authorize=away)
    first = asyncio.create_task(provider.challenged(parse_challenge(401, "Bearer")))
    await asyncio.wait_for(request_received.wait(), 30)
    second = asyncio.create_task(provider.challenged(parse_challenge(401, 'Bearer scope="more"')))
    await asyncio.sleep(0)
    await provider.close()
    results = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), 30)
    assert [type(each) for each in results] == [AuthUnavailable, AuthUnavailable]


async def test_a_refusal_for_another_reason_is_left_to_the_server(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    provider = oauth_fixture.provider()
    await provider.headers()
    assert await provider.challenged(parse_challenge(403, None)) is False
    assert await provider.challenged(parse_challenge(403, 'Bearer error="forbidden"')) is False


async def test_the_token_of_another_sign_in_is_tried_before_a_step_up(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(challenge_scope="read")
    await oauth_fixture.call(oauth_fixture.provider())
    provider = oauth_fixture.provider(person=False)
    await oauth_fixture.call(provider)
    await oauth_fixture.change(needs=["write"])
    redirect = await oauth_fixture.flow().begin(
        oauth_fixture.mcp, oauth_fixture.target(), more_scopes=("read", "write")
    )
    await oauth_fixture.flow().finish(await oauth_fixture.browse(redirect.url))
    assert (await oauth_fixture.call(provider))["scope"] == "read write"
    assert len(await oauth_fixture.log("authorize")) == 2


# Client credentials.


@pytest.fixture
def credentials() -> dict[str, str]:
    return {"client_id": "robot", "client_secret": "its-secret", "grant": "client_credentials"}


async def test_a_program_signs_in_by_itself(oauth_fixture: OAuthFixture, credentials: dict[str, str]) -> None:
    await oauth_fixture.set(entered={"robot": "its-secret"}, challenge_scope="run")
    provider: OAuthProvider = oauth_fixture.provider(oauth_fixture.target(**credentials), person=False)
    assert (await oauth_fixture.call(provider))["scope"] == "run"
    [entry] = await oauth_fixture.log("token")
    assert (entry["method"], entry["resource"], entry["scope"]) == (
        "client_secret_basic",
        oauth_fixture.mcp,
        "run",
    )


async def test_its_token_is_renewed_without_a_refresh_token(
    oauth_fixture: OAuthFixture, credentials: dict[str, str]
) -> None:
    await oauth_fixture.set(entered={"robot": "its-secret"}, challenge_scope="run", token_delay=0.02)
    provider = oauth_fixture.provider(oauth_fixture.target(**credentials), person=False)
    await oauth_fixture.call(provider)
    for _ in range(2):
        oauth_fixture.clock.now += 4000
        await asyncio.gather(*(oauth_fixture.call(provider) for _ in range(10)))
    entries = await oauth_fixture.log("token")
    assert [(entry["grant_type"], entry["scope"]) for entry in entries] == [("client_credentials", "run")] * 3
    await oauth_fixture.forget("access")
    oauth_fixture.clock.now += 100
    await oauth_fixture.call(provider)


async def test_a_program_that_is_refused_with_a_new_token_stops(
    oauth_fixture: OAuthFixture, credentials: dict[str, str]
) -> None:
    await oauth_fixture.set(entered={"robot": "its-secret"}, refuse=401)
    provider = oauth_fixture.provider(oauth_fixture.target(**credentials), person=False)
    assert isinstance(await oauth_fixture.failure(provider), SignInEnded)
    assert len(await oauth_fixture.log("token")) == 1


async def test_a_program_without_enough_scopes_says_which(
    oauth_fixture: OAuthFixture, credentials: dict[str, str]
) -> None:
    await oauth_fixture.set(entered={"robot": "its-secret"}, needs=["more"])
    error = await oauth_fixture.failure(
        oauth_fixture.provider(oauth_fixture.target(**credentials), person=False)
    )
    assert isinstance(error, ScopeNeeded)
    assert error.scopes == ("more",)


async def test_a_program_with_a_key_signs_its_request(oauth_fixture: OAuthFixture) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    await oauth_fixture.set(entered={"robot": ""})
    target = oauth_fixture.target(client_id="robot", grant="client_credentials", private_key=pem.decode())
    await oauth_fixture.call(oauth_fixture.provider(target, person=False))
    assert [entry["method"] for entry in await oauth_fixture.log("token")] == ["private_key_jwt"]


async def test_a_key_that_cannot_be_read_is_not_quoted(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(entered={"robot": ""})
    target = oauth_fixture.target(
        client_id="robot", grant="client_credentials", private_key="not a key at all"
    )
    error = await oauth_fixture.failure(oauth_fixture.provider(target, person=False))
    assert isinstance(error, RegistrationFailed)
    assert "not a key" not in str(error)


# In a yard.


async def test_a_server_that_wants_a_sign_in_is_shown_as_such(oauth_fixture: OAuthFixture) -> None:
    entry = {"type": "http", "url": oauth_fixture.mcp, "authProviderId": "oauth"}
    providers = {"oauth": oauth_fixture.provider(person=False)}
    async with Toolyard.open({"mcpServers": {"s": entry}}, auth_providers=providers) as yard:
        assert await yard.tools() == []
        [status] = yard.servers()
    assert status.state is State.NEEDS_AUTH
    assert status.cause is not None
    assert "requires a sign-in" in status.cause


async def test_an_authorization_server_in_trouble_is_not_shown_as_a_sign_in(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.run_out(4000)
    await oauth_fixture.change(token_trouble=[503] * 50)
    entry = {"type": "http", "url": oauth_fixture.mcp, "authProviderId": "oauth"}
    providers = {"oauth": oauth_fixture.provider(person=False)}
    async with Toolyard.open({"mcpServers": {"s": entry}}, auth_providers=providers) as yard:
        assert await yard.tools() == []
        [status] = yard.servers()
    assert status.state is State.FAILED
    assert status.cause is not None
    assert "HTTP 503" in status.cause
