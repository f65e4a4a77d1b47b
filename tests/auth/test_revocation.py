"""Tokens are revoked at their own issuer only, and a failed revocation does not prevent the sign-out."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from toolyard.auth.storage import OAuthGrant
from toolyard.auth.token_endpoint import revoke_grant
from toolyard.errors import SignInNeeded

if TYPE_CHECKING:
    from tests.auth.conftest import OAuthFixture


async def signed_in(world: Any, **oauth: Any) -> OAuthGrant:
    started = await world.flow().begin("k", world.target(**oauth))
    return await world.flow().finish(await world.browse(started.url))


async def works(world: Any) -> bool:
    """Return whether the resource still accepts the tokens of the sign-in."""
    provider = world.provider(person=False)
    await world.storage.put_grant(world.mcp, await world.storage.get_grant("k"))
    try:
        await world.call(provider)
    except SignInNeeded:
        return False
    return True


async def test_both_tokens_are_given_back(world: OAuthFixture) -> None:
    grant = await signed_in(world)
    assert await revoke_grant(world.net, grant, world.target(), clock=world.clock) is True
    told = await world.log("revoke")
    assert [each["kind"] for each in told] == ["refresh_token", "access_token"]
    assert {each["who"] for each in told} == {"as1"}
    assert not await works(world)


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_client_with_a_secret_says_who_it_is(world: OAuthFixture, method: str) -> None:
    await world.set(
        entered={"toolyard": "hush"}, metadata={"token_endpoint_auth_methods_supported": [method]}
    )
    oauth = {"client_id": "toolyard", "client_secret": "hush"}
    grant = await signed_in(world, **oauth)
    assert grant.client.secret is None
    assert await revoke_grant(world.net, grant, world.target(**oauth), clock=world.clock) is True
    assert {each["method"] for each in await world.log("revoke")} == {method}


async def test_one_that_offers_nothing_of_the_kind_is_left_alone(world: OAuthFixture) -> None:
    grant = await signed_in(world)
    await world.change(metadata={"revocation_endpoint": None})
    assert await revoke_grant(world.net, grant, world.target()) is False
    assert not await world.log("revoke")
    assert await works(world)


@pytest.mark.parametrize(
    "trouble",
    [
        {"revoke_status": 500},
        {"revoke_status": 403},
        {"metadata_status": 500},
        {"metadata": {"revocation_endpoint": "javascript:alert(1)"}},
        {"metadata": {"revocation_endpoint": "http://revoke.example/"}},
        {"metadata": {"issuer": "https://other.example"}},
    ],
    ids=str,
)
async def test_no_trouble_comes_out(world: OAuthFixture, trouble: dict[str, Any]) -> None:
    grant = await signed_in(world)
    await world.change(**trouble)
    assert await revoke_grant(world.net, grant, world.target()) is False
    assert await works(world)


async def test_a_bad_address_for_it_is_no_reason_not_to_sign_in(world: OAuthFixture) -> None:
    await world.set(metadata={"revocation_endpoint": "javascript:alert(1)"})
    assert (await signed_in(world)).access_token


async def test_it_ends_where_the_other_side_does_not(world: OAuthFixture) -> None:
    grant = await signed_in(world)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        issuer = f"http://127.0.0.1:{silent.getsockname()[1]}"
        moved = replace(grant, issuer=issuer)
        assert await revoke_grant(world.net, moved, world.target(), timeout_seconds=0.2) is False
