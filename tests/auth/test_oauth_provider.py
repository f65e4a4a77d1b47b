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


async def test_a_first_request_signs_in_and_later_ones_do_not(world: OAuthFixture) -> None:
    provider = world.provider()
    for _ in range(3):
        await world.call(provider)
    assert len(world.urls) == 1
    assert [bool(entry["token"]) for entry in await world.log("call")] == [False, True, True, True]


@pytest.mark.both_loops
async def test_fifty_first_requests_share_one_sign_in(leaks: None, world: OAuthFixture) -> None:
    await world.set(token_delay=0.05)
    provider = world.provider()
    await asyncio.gather(*(world.call(provider) for _ in range(50)))
    assert len(world.urls) == 1


async def test_a_person_who_takes_longer_than_a_request_is_not_asked_twice(world: OAuthFixture) -> None:
    arrived = asyncio.Event()

    async def slowly(url: str) -> AuthorizationResponse:
        await arrived.wait()
        return await world.browse(url)

    provider = world.provider(authorize=slowly)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await world.call(provider)
    second = asyncio.create_task(world.call(provider))
    await asyncio.sleep(0)
    arrived.set()
    await second
    assert len(world.urls) == 1


async def test_closing_ends_a_sign_in_that_waits_for_a_person(world: OAuthFixture) -> None:
    begun = asyncio.Event()

    async def never(url: str) -> AuthorizationResponse:
        begun.set()
        await asyncio.Event().wait()
        return AuthorizationResponse("", {})

    provider = world.provider(authorize=never)
    task = asyncio.create_task(world.call(provider))
    await begun.wait()
    await provider.close()
    with pytest.raises(AuthUnavailable):
        await task


async def test_a_person_who_says_no_is_heard(world: OAuthFixture) -> None:
    await world.set(authorize_error="access_denied")
    assert isinstance(await world.failure(world.provider()), AuthorizationDenied)


async def test_an_answer_of_another_sign_in_is_not_taken(world: OAuthFixture) -> None:
    other = await world.flow().begin("somebody else", world.target())

    async def mixed_up(url: str) -> AuthorizationResponse:
        response = await world.browse(url)
        return replace(response, params={**response.params, "state": other.state})

    provider = world.provider(authorize=mixed_up)
    assert isinstance(await world.failure(provider), AnswerRejected)
    assert await world.storage.take_pending(other.state) is not None
    assert not await world.log("token")


async def test_a_sign_in_elsewhere_is_noticed(world: OAuthFixture) -> None:
    provider = world.provider(person=False)
    assert isinstance(await world.failure(provider), NeverSignedIn)
    started = await world.flow().begin(world.mcp, world.target())
    await world.flow().finish(await world.browse(started.url))
    await world.call(provider)


async def test_a_connection_learns_that_a_sign_in_is_needed(world: OAuthFixture) -> None:
    error = await world.failure(world.provider(person=False))
    assert isinstance(error, SignInNeeded)
    assert error.challenge is not None
    assert "resource_metadata" in error.challenge


async def test_a_server_that_refuses_everything_is_not_tried_for_ever(world: OAuthFixture) -> None:
    await world.set(refuse=401)
    provider = world.provider()
    for _ in range(4):
        assert isinstance(await world.failure(provider), SignInNeeded)
    assert len(world.urls) <= 3
    assert isinstance(await world.failure(provider), TooManyAttempts)
    world.clock.now += 1000
    await world.change(refuse=None)
    await world.call(provider)


async def test_only_sign_ins_that_a_person_saw_are_counted(world: OAuthFixture) -> None:
    await world.set(resource_places=[])
    provider = world.provider()
    for _ in range(5):
        assert isinstance(await world.failure(provider), DiscoveryFailed)
    await world.change(resource_places=["/.well-known/oauth-protected-resource/mcp"])
    await world.call(provider)


# Step-up.


async def test_more_scopes_are_asked_for_beside_those_that_were_granted(
    world: OAuthFixture, query: Query
) -> None:
    await world.set(challenge_scope="read")
    provider = world.provider()
    await world.call(provider)
    await world.change(needs=["write"])
    answer = await world.call(provider)
    assert [query(url)["scope"] for url in world.urls] == ["read", "read write"]
    assert answer["scope"] == "read write"


async def test_a_later_sign_in_keeps_the_scopes_that_were_added(world: OAuthFixture, query: Query) -> None:
    await world.set(challenge_scope="read", refresh_tokens=False)
    provider = world.provider()
    await world.call(provider)
    await world.change(needs=["write"])
    await world.call(provider)
    world.clock.now += 4000
    await world.call(provider)
    assert query(world.urls[-1])["scope"] == "read write"


async def test_a_server_that_always_wants_more_is_given_up(world: OAuthFixture) -> None:
    await world.set(challenge_scope="admin", needs=["admin"], refuse=403)
    provider = world.provider()
    for _ in range(3):
        assert isinstance(await world.failure(provider), TooManyAttempts)
    assert len(world.urls) <= 3


async def test_a_server_that_names_another_scope_each_time_is_given_up(world: OAuthFixture) -> None:
    await world.set(challenge_scope="s0", refuse=403)
    provider = world.provider()
    for round_ in range(6):
        await world.change(needs=[f"s{round_}"])
        assert isinstance(await world.failure(provider), SignInNeeded)
    assert len(world.urls) == 3


async def test_without_a_person_the_scopes_are_named(world: OAuthFixture) -> None:
    await world.set(challenge_scope="read")
    await world.call(world.provider())
    await world.change(needs=["write"])
    error = await world.failure(world.provider(person=False))
    assert isinstance(error, ScopeNeeded)
    assert error.scopes == ("read", "write")
    assert error.status == 403


async def test_requests_that_are_refused_at_once_for_other_reasons_hear_their_own(
    world: OAuthFixture,
) -> None:
    await world.call(world.provider())
    provider = world.provider(person=False)
    await world.call(provider)
    await world.forget("access")

    async def refused(status: int, words: str) -> bool | tuple[str, ...]:
        await provider.headers()
        try:
            return await provider.challenged(parse_challenge(status, f"Bearer {words}"))
        except ScopeNeeded as error:
            return error.scopes

    reasons = [(403, 'error="insufficient_scope", scope="a"'), (403, 'error="insufficient_scope", scope="b"')]
    reasons.append((401, 'error="invalid_token"'))
    heard = await asyncio.gather(*(refused(*reason) for reason in reasons * 2))
    assert heard == [("a",), ("b",), True] * 2
    assert len(await world.log("token")) == 2
    # The next sign-in requests all wanted scopes.
    assert (await world.storage.get_grant(world.mcp)).wanted == ("a", "b")


async def test_closing_ends_those_who_wait_for_their_turn(world: OAuthFixture) -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    async def away(url: str) -> Any:
        asked.set()
        await never.wait()

    provider = world.provider(authorize=away)
    first = asyncio.create_task(provider.challenged(parse_challenge(401, "Bearer")))
    await asyncio.wait_for(asked.wait(), 30)
    second = asyncio.create_task(provider.challenged(parse_challenge(401, 'Bearer scope="more"')))
    await asyncio.sleep(0)
    await provider.close()
    ended = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), 30)
    assert [type(each) for each in ended] == [AuthUnavailable, AuthUnavailable]


async def test_a_refusal_for_another_reason_is_left_to_the_server(world: OAuthFixture) -> None:
    await world.call(world.provider())
    provider = world.provider()
    await provider.headers()
    assert await provider.challenged(parse_challenge(403, None)) is False
    assert await provider.challenged(parse_challenge(403, 'Bearer error="forbidden"')) is False


async def test_the_token_of_another_sign_in_is_tried_before_a_step_up(world: OAuthFixture) -> None:
    await world.set(challenge_scope="read")
    await world.call(world.provider())
    held = world.provider(person=False)
    await world.call(held)
    await world.change(needs=["write"])
    started = await world.flow().begin(world.mcp, world.target(), more_scopes=("read", "write"))
    await world.flow().finish(await world.browse(started.url))
    assert (await world.call(held))["scope"] == "read write"
    assert len(await world.log("authorize")) == 2


# Client credentials.


@pytest.fixture
def credentials() -> dict[str, str]:
    return {"client_id": "robot", "client_secret": "its-secret", "grant": "client_credentials"}


async def test_a_program_signs_in_by_itself(world: OAuthFixture, credentials: dict[str, str]) -> None:
    await world.set(entered={"robot": "its-secret"}, challenge_scope="run")
    provider: OAuthProvider = world.provider(world.target(**credentials), person=False)
    assert (await world.call(provider))["scope"] == "run"
    [entry] = await world.log("token")
    assert (entry["method"], entry["resource"], entry["scope"]) == ("client_secret_basic", world.mcp, "run")


async def test_its_token_is_renewed_without_a_refresh_token(
    world: OAuthFixture, credentials: dict[str, str]
) -> None:
    await world.set(entered={"robot": "its-secret"}, challenge_scope="run", token_delay=0.02)
    provider = world.provider(world.target(**credentials), person=False)
    await world.call(provider)
    for _ in range(2):
        world.clock.now += 4000
        await asyncio.gather(*(world.call(provider) for _ in range(10)))
    entries = await world.log("token")
    assert [(entry["grant_type"], entry["scope"]) for entry in entries] == [("client_credentials", "run")] * 3
    await world.forget("access")
    world.clock.now += 100
    await world.call(provider)


async def test_a_program_that_is_refused_with_a_new_token_stops(
    world: OAuthFixture, credentials: dict[str, str]
) -> None:
    await world.set(entered={"robot": "its-secret"}, refuse=401)
    provider = world.provider(world.target(**credentials), person=False)
    assert isinstance(await world.failure(provider), SignInEnded)
    assert len(await world.log("token")) == 1


async def test_a_program_without_enough_scopes_says_which(
    world: OAuthFixture, credentials: dict[str, str]
) -> None:
    await world.set(entered={"robot": "its-secret"}, needs=["more"])
    error = await world.failure(world.provider(world.target(**credentials), person=False))
    assert isinstance(error, ScopeNeeded)
    assert error.scopes == ("more",)


async def test_a_program_with_a_key_signs_its_request(world: OAuthFixture) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    await world.set(entered={"robot": ""})
    target = world.target(client_id="robot", grant="client_credentials", private_key=pem.decode())
    await world.call(world.provider(target, person=False))
    assert [entry["method"] for entry in await world.log("token")] == ["private_key_jwt"]


async def test_a_key_that_cannot_be_read_is_not_quoted(world: OAuthFixture) -> None:
    await world.set(entered={"robot": ""})
    target = world.target(client_id="robot", grant="client_credentials", private_key="not a key at all")
    error = await world.failure(world.provider(target, person=False))
    assert isinstance(error, RegistrationFailed)
    assert "not a key" not in str(error)


# In a yard.


async def test_a_server_that_wants_a_sign_in_is_shown_as_such(world: OAuthFixture) -> None:
    entry = {"type": "http", "url": world.mcp, "authProviderId": "oauth"}
    providers = {"oauth": world.provider(person=False)}
    async with Toolyard.open({"mcpServers": {"s": entry}}, auth_providers=providers) as yard:
        assert await yard.tools() == []
        [status] = yard.servers()
    assert status.state is State.NEEDS_AUTH
    assert status.cause is not None
    assert "wants you to sign in" in status.cause


async def test_an_authorization_server_in_trouble_is_not_shown_as_a_sign_in(world: OAuthFixture) -> None:
    await world.call(world.provider())
    await world.run_out(4000)
    await world.change(token_trouble=[503] * 50)
    entry = {"type": "http", "url": world.mcp, "authProviderId": "oauth"}
    providers = {"oauth": world.provider(person=False)}
    async with Toolyard.open({"mcpServers": {"s": entry}}, auth_providers=providers) as yard:
        assert await yard.tools() == []
        [status] = yard.servers()
    assert status.state is State.FAILED
    assert status.cause is not None
    assert "HTTP 503" in status.cause
