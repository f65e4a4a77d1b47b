from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.auth.errors import AnswerRejected, AuthUnavailable, NeverSignedIn, SignInEnded, TokenRefused
from toolyard.auth.storage import MemoryAuthStorage, OAuthClient, OAuthGrant

if TYPE_CHECKING:
    from tests.auth.conftest import OAuthFixture

AFTER_EXPIRY_SECONDS = 4000


async def refreshes(oauth_fixture: Any) -> list[dict[str, Any]]:
    return [entry for entry in await oauth_fixture.log("token") if entry["grant_type"] == "refresh_token"]


def grant(**changes: Any) -> OAuthGrant:
    client = OAuthClient("https://as.example", "c", "http://127.0.0.1/cb", "dynamic")
    oauth_grant = OAuthGrant(
        "https://rs.example/mcp",
        "https://as.example",
        client,
        "https://as.example/token",
        None,
        (),
        (),
        "a",
        "r",
        0.0,
        1000.0,
    )
    return replace(oauth_grant, **changes)


@pytest.mark.parametrize(
    ("life", "now", "fresh", "valid"),
    [
        (3600, 0, True, True),
        (3600, 3539, True, True),
        (3600, 3541, False, True),
        (3600, 3600, False, False),
        (10, 7, True, True),
        (10, 9, False, True),
        (0, 0, False, False),
        (None, 10**9, True, True),
    ],
)
def test_a_token_is_refreshed_shortly_before_it_runs_out(
    life: float | None, now: float, fresh: bool, valid: bool
) -> None:
    access_grant = grant(expires_at=life)
    assert (access_grant.is_fresh(now), access_grant.is_valid(now)) == (fresh, valid)


async def test_tokens_are_refreshed_before_they_run_out(oauth_fixture: OAuthFixture) -> None:
    provider = oauth_fixture.provider()
    await oauth_fixture.call(provider)
    oauth_fixture.clock.now += 3550
    await oauth_fixture.call(provider)
    [entry] = await refreshes(oauth_fixture)
    assert entry["resource"] == oauth_fixture.mcp
    assert entry["method"] == "none"
    # No request was refused meanwhile.
    assert len(await oauth_fixture.log("call")) == 3


@pytest.mark.both_loops
async def test_fifty_tasks_share_one_refresh(leaks: None, oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(token_delay=0.05)
    provider = oauth_fixture.provider()
    await oauth_fixture.call(provider)
    await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
    results = await asyncio.gather(*(oauth_fixture.call(provider) for _ in range(50)))
    assert len(results) == 50
    assert len(await refreshes(oauth_fixture)) == 1


async def test_fifty_tasks_of_many_replicas_share_one_refresh(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(token_delay=0.05)
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
    replicas = [oauth_fixture.provider() for _ in range(50)]
    await asyncio.gather(*(oauth_fixture.call(provider) for provider in replicas))
    assert len(await refreshes(oauth_fixture)) == 1
    assert not await oauth_fixture.log("reuse")


async def test_fifty_refused_tasks_share_one_refresh(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(token_delay=0.05)
    provider = oauth_fixture.provider()
    await oauth_fixture.call(provider)
    await oauth_fixture.forget("access")
    await asyncio.gather(*(oauth_fixture.call(provider) for _ in range(50)))
    # A provider that has just signed in would not refresh: its token is brand new.
    assert len(await refreshes(oauth_fixture)) + len(oauth_fixture.urls) == 2


async def test_a_token_that_the_server_forgot_is_refreshed_once(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.forget("access")
    provider = oauth_fixture.provider(person=False)
    await asyncio.gather(*(oauth_fixture.call(provider) for _ in range(20)))
    assert len(await refreshes(oauth_fixture)) == 1


async def test_a_rotated_token_is_never_used_twice(oauth_fixture: OAuthFixture) -> None:
    providers = [oauth_fixture.provider() for _ in range(3)]
    for _ in range(6):
        await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
        for provider in providers:
            await oauth_fixture.call(provider)
    refresh_tokens = [entry["refresh_token"] for entry in await refreshes(oauth_fixture)]
    assert len(refresh_tokens) == len(set(refresh_tokens)) == 5
    assert not await oauth_fixture.log("reuse")
    assert len(oauth_fixture.urls) == 1


async def test_a_server_that_does_not_rotate_keeps_its_token(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(rotate=False)
    provider = oauth_fixture.provider()
    await oauth_fixture.call(provider)
    await oauth_fixture.change(token_answer={"refresh_token": None})
    for _ in range(2):
        await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
        await oauth_fixture.call(provider)
    refresh_tokens = [entry["refresh_token"] for entry in await refreshes(oauth_fixture)]
    assert len(refresh_tokens) == 2
    assert len(set(refresh_tokens)) == 1


@pytest.mark.parametrize("trouble", [500, 503, 429, 404, 400, "drop", "temporarily_unavailable"])
async def test_a_token_endpoint_in_trouble_loses_nothing(oauth_fixture: OAuthFixture, trouble: Any) -> None:
    provider = oauth_fixture.provider(person=False)
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
    before = await oauth_fixture.storage.get_grant(oauth_fixture.mcp)
    await oauth_fixture.change(token_trouble=[trouble] * 20)
    for _ in range(3):
        assert isinstance(await oauth_fixture.failure(provider), AuthUnavailable)
        after = await oauth_fixture.storage.get_grant(oauth_fixture.mcp)
        assert after is not None
        # Only the attempt is recorded: the endpoint may have replaced the token before it failed.
        assert after.refresh_began_at is not None
        assert replace(after, refresh_began_at=None) == before
    await oauth_fixture.change(token_trouble=[])
    await oauth_fixture.call(provider)
    assert not await oauth_fixture.log("reuse")
    after = await oauth_fixture.storage.get_grant(oauth_fixture.mcp)
    assert after is not None
    assert after.refresh_began_at is None


async def test_while_a_token_still_works_trouble_is_not_noticed(oauth_fixture: OAuthFixture) -> None:
    provider = oauth_fixture.provider(person=False)
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.change(token_trouble=[503] * 9)
    oauth_fixture.clock.now += 3550
    for _ in range(5):
        await oauth_fixture.call(provider)
    # It is not contacted at every request either.
    assert len(await refreshes(oauth_fixture)) == 1
    oauth_fixture.clock.now += 31
    await oauth_fixture.call(provider)
    assert len(await refreshes(oauth_fixture)) == 2


async def test_a_refresh_that_is_refused_needs_a_sign_in(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.forget("refresh")
    await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
    provider = oauth_fixture.provider(person=False)
    for _ in range(3):
        error = await oauth_fixture.failure(provider)
        assert isinstance(error, SignInEnded)
        assert error.hint
    assert len(await refreshes(oauth_fixture)) == 1
    grant = await oauth_fixture.storage.get_grant(oauth_fixture.mcp)
    assert grant is not None
    assert grant.refresh_token is None


@pytest.mark.parametrize("code", ["invalid_grant", "invalid_request"])
async def test_a_refused_refresh_is_told_without_the_token(oauth_fixture: OAuthFixture, code: str) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    grant = await oauth_fixture.storage.get_grant(oauth_fixture.mcp)
    await oauth_fixture.change(token_trouble=[code] * 2)
    await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
    error = await oauth_fixture.failure(oauth_fixture.provider(person=False))
    assert isinstance(error, SignInEnded)
    assert code in str(error)
    assert "no good" in str(error)
    assert grant.refresh_token not in str(error)


@pytest.mark.parametrize("trouble", [503, "invalid_grant"])
async def test_a_user_with_an_expired_sign_in_is_asked_to_sign_in_again(
    oauth_fixture: OAuthFixture, trouble: Any
) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.change(strangers=True, token_trouble=[trouble] * 9)
    await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
    provider = oauth_fixture.provider(person=False)
    for _ in range(2):
        expected = AuthUnavailable if trouble == 503 else SignInEnded
        assert isinstance(await oauth_fixture.failure(provider), expected)


async def test_an_access_token_outlives_a_refused_refresh(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.forget("refresh")
    oauth_fixture.clock.now += 3550
    provider = oauth_fixture.provider(person=False)
    for _ in range(3):
        await oauth_fixture.call(provider)
    assert len(await refreshes(oauth_fixture)) == 1


async def test_a_user_without_a_sign_in_is_asked_to_sign_in(oauth_fixture: OAuthFixture) -> None:
    assert isinstance(await oauth_fixture.failure(oauth_fixture.provider(person=False)), NeverSignedIn)


async def test_without_a_refresh_token_the_person_signs_in_again(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(refresh_tokens=False)
    provider = oauth_fixture.provider()
    await oauth_fixture.call(provider)
    await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
    await oauth_fixture.call(provider)
    assert len(oauth_fixture.urls) == 2


async def test_a_cancelled_caller_does_not_lose_the_rotated_token(oauth_fixture: OAuthFixture) -> None:
    provider = oauth_fixture.provider()
    await oauth_fixture.call(provider)
    await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
    await oauth_fixture.change(token_delay=0.3)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await oauth_fixture.call(provider)
    await oauth_fixture.call(provider)
    assert len(await refreshes(oauth_fixture)) == 1
    assert not await oauth_fixture.log("reuse")


async def test_closing_lets_a_refresh_finish(oauth_fixture: OAuthFixture) -> None:
    provider = oauth_fixture.provider()
    await oauth_fixture.call(provider)
    before = await oauth_fixture.storage.get_grant(oauth_fixture.mcp)
    await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
    await oauth_fixture.change(token_delay=0.3)
    task = asyncio.create_task(oauth_fixture.call(provider))
    while not await refreshes(oauth_fixture):
        await asyncio.sleep(0.01)
    task.cancel()
    await provider.close()
    after = await oauth_fixture.storage.get_grant(oauth_fixture.mcp)
    assert after.refresh_token != before.refresh_token


async def test_a_new_sign_in_during_a_refresh_is_kept(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
    await oauth_fixture.change(token_delay=0.2)
    provider = oauth_fixture.provider(person=False)
    task = asyncio.create_task(oauth_fixture.call(provider))
    while not await refreshes(oauth_fixture):
        await asyncio.sleep(0.01)
    await oauth_fixture.change(token_delay=0)
    redirect = await oauth_fixture.flow().begin(oauth_fixture.mcp, oauth_fixture.target())
    signed_in = await oauth_fixture.flow().finish(await oauth_fixture.browse(redirect.url))
    await task
    assert await oauth_fixture.storage.get_grant(oauth_fixture.mcp) == signed_in


async def test_tokens_refreshed_during_a_sign_out_are_revoked(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
    await oauth_fixture.change(token_delay=0.3)
    provider = oauth_fixture.provider(person=False)
    task = asyncio.create_task(oauth_fixture.failure(provider))
    while not await refreshes(oauth_fixture):
        await asyncio.sleep(0.01)
    await oauth_fixture.storage.drop_grant(oauth_fixture.mcp)
    await task
    assert await oauth_fixture.storage.get_grant(oauth_fixture.mcp) is None
    assert [each["kind"] for each in await oauth_fixture.log("revoke")] == ["refresh_token", "access_token"]


async def test_a_token_endpoint_that_cannot_be_reached_is_named(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    grant = await oauth_fixture.storage.get_grant(oauth_fixture.mcp)
    await oauth_fixture.storage.put_grant(
        oauth_fixture.mcp, replace(grant, token_endpoint="http://127.0.0.1:9/token")
    )
    await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
    error = await oauth_fixture.failure(oauth_fixture.provider(person=False))
    assert isinstance(error, AuthUnavailable)
    assert "127.0.0.1:9" in error.cause


# The storage in memory.


async def test_a_pending_sign_in_can_be_taken_once(oauth_fixture: OAuthFixture) -> None:
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target())
    results = await asyncio.gather(*(oauth_fixture.storage.take_pending(redirect.state) for _ in range(10)))
    assert len([pending for pending in results if pending is not None]) == 1


async def test_a_swap_needs_the_serial_that_is_there() -> None:
    storage, first, second = MemoryAuthStorage(), grant(serial="1"), grant(serial="2")
    assert not await storage.swap_grant("k", "1", second)
    await storage.put_grant("k", first)
    assert not await storage.swap_grant("k", "2", second)
    assert await storage.swap_grant("k", "1", second)
    assert await storage.get_grant("k") == second


async def test_a_client_is_dropped_only_if_it_is_the_one() -> None:
    storage, client = MemoryAuthStorage(), grant().client
    await storage.put_client(client)
    await storage.drop_client(replace(client, client_id="older"))
    assert await storage.get_client(client.issuer, client.redirect_uri) == client
    await storage.drop_client(client)
    assert await storage.get_client(client.issuer, client.redirect_uri) is None


# Recipients of tokens.


async def test_tokens_are_dropped_when_the_address_of_their_server_changes(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    grant = await oauth_fixture.storage.get_grant(oauth_fixture.mcp)
    await oauth_fixture.storage.put_grant(
        oauth_fixture.mcp, replace(grant, server_url="https://before.example/mcp")
    )
    provider = oauth_fixture.provider(person=False)
    assert await provider.headers() == {}
    assert await oauth_fixture.storage.get_grant(oauth_fixture.mcp) is None
    assert isinstance(await oauth_fixture.failure(provider), NeverSignedIn)


async def test_a_dead_authorization_server_does_not_keep_us_from_the_new_one(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    grant = await oauth_fixture.storage.get_grant(oauth_fixture.mcp)
    await oauth_fixture.storage.put_grant(
        oauth_fixture.mcp, replace(grant, token_endpoint="http://127.0.0.1:9/token")
    )
    await oauth_fixture.change(servers=["as2"])
    await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
    assert (await oauth_fixture.call(oauth_fixture.provider()))["client"].startswith("as2-")


async def test_a_wrong_secret_in_the_configuration_costs_no_sign_in(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(entered={"mine": "the-right-one"})
    await oauth_fixture.call(
        oauth_fixture.provider(oauth_fixture.target(client_id="mine", client_secret="the-right-one"))
    )
    await oauth_fixture.run_out(AFTER_EXPIRY_SECONDS)
    wrong = oauth_fixture.provider(oauth_fixture.target(client_id="mine", client_secret="a-wrong-one"))
    error = await oauth_fixture.failure(wrong)
    assert isinstance(error, TokenRefused)
    assert "clientSecret" in (error.hint or "")
    await oauth_fixture.call(
        oauth_fixture.provider(oauth_fixture.target(client_id="mine", client_secret="the-right-one"))
    )
    assert len(oauth_fixture.urls) == 1


YEAR_SECONDS = 366 * 86_400.0


async def test_a_token_stored_while_the_clock_was_a_year_ahead_is_refreshed(
    oauth_fixture: OAuthFixture,
) -> None:
    oauth_fixture.clock.now += YEAR_SECONDS
    await oauth_fixture.call(oauth_fixture.provider())
    oauth_fixture.clock.now -= YEAR_SECONDS
    await oauth_fixture.call(oauth_fixture.provider(person=False))
    assert len(await refreshes(oauth_fixture)) == 1


async def test_a_clock_set_back_does_not_postpone_refreshes(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.change(token_trouble=[503])
    provider = oauth_fixture.provider(person=False)
    oauth_fixture.clock.now += YEAR_SECONDS
    await oauth_fixture.call(provider)
    oauth_fixture.clock.now -= YEAR_SECONDS - 3550
    await oauth_fixture.call(provider)
    assert len(await refreshes(oauth_fixture)) == 2


async def test_a_clock_set_back_does_not_hide_a_sign_out_of_another_process(
    oauth_fixture: OAuthFixture,
) -> None:
    provider = oauth_fixture.provider()
    await oauth_fixture.call(provider)
    assert await provider.headers() != {}
    oauth_fixture.clock.now -= 100
    await oauth_fixture.storage.drop_grant(oauth_fixture.mcp)
    assert await provider.headers() == {}


async def test_a_sign_in_begun_while_the_clock_was_ahead_cannot_be_finished(
    oauth_fixture: OAuthFixture,
) -> None:
    flow = oauth_fixture.flow()
    oauth_fixture.clock.now += YEAR_SECONDS
    redirect = await flow.begin("key", oauth_fixture.target())
    oauth_fixture.clock.now -= YEAR_SECONDS
    with pytest.raises(AnswerRejected, match="too long ago"):
        await flow.take_pending({"state": redirect.state})
