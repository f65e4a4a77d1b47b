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


async def signed_in(oauth_fixture: Any, **oauth: Any) -> OAuthGrant:
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target(**oauth))
    return await oauth_fixture.flow().finish(await oauth_fixture.browse(redirect.url))


async def works(oauth_fixture: Any) -> bool:
    """Return whether the resource still accepts the tokens of the sign-in."""
    provider = oauth_fixture.provider(person=False)
    await oauth_fixture.storage.put_grant(oauth_fixture.mcp, await oauth_fixture.storage.get_grant("k"))
    try:
        await oauth_fixture.call(provider)
    except SignInNeeded:
        return False
    return True


async def test_both_tokens_are_given_back(oauth_fixture: OAuthFixture) -> None:
    grant = await signed_in(oauth_fixture)
    assert (
        await revoke_grant(oauth_fixture.net, grant, oauth_fixture.target(), clock=oauth_fixture.clock)
        is True
    )
    revocations = await oauth_fixture.log("revoke")
    assert [each["kind"] for each in revocations] == ["refresh_token", "access_token"]
    assert {each["who"] for each in revocations} == {"as1"}
    assert not await works(oauth_fixture)


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_client_with_a_secret_authenticates(oauth_fixture: OAuthFixture, method: str) -> None:
    await oauth_fixture.set(
        entered={"toolyard": "hush"}, metadata={"token_endpoint_auth_methods_supported": [method]}
    )
    oauth = {"client_id": "toolyard", "client_secret": "hush"}
    grant = await signed_in(oauth_fixture, **oauth)
    assert grant.client.secret is None
    assert (
        await revoke_grant(oauth_fixture.net, grant, oauth_fixture.target(**oauth), clock=oauth_fixture.clock)
        is True
    )
    assert {each["method"] for each in await oauth_fixture.log("revoke")} == {method}


async def test_one_that_offers_nothing_of_the_kind_is_left_alone(oauth_fixture: OAuthFixture) -> None:
    grant = await signed_in(oauth_fixture)
    await oauth_fixture.change(metadata={"revocation_endpoint": None})
    assert await revoke_grant(oauth_fixture.net, grant, oauth_fixture.target()) is False
    assert not await oauth_fixture.log("revoke")
    assert await works(oauth_fixture)


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
async def test_no_trouble_comes_out(oauth_fixture: OAuthFixture, trouble: dict[str, Any]) -> None:
    grant = await signed_in(oauth_fixture)
    await oauth_fixture.change(**trouble)
    assert await revoke_grant(oauth_fixture.net, grant, oauth_fixture.target()) is False
    assert await works(oauth_fixture)


async def test_an_invalid_revocation_endpoint_does_not_prevent_sign_in(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(metadata={"revocation_endpoint": "javascript:alert(1)"})
    assert (await signed_in(oauth_fixture)).access_token


async def test_it_ends_where_the_other_side_does_not(oauth_fixture: OAuthFixture) -> None:
    grant = await signed_in(oauth_fixture)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        issuer = f"http://127.0.0.1:{silent.getsockname()[1]}"
        moved_grant = replace(grant, issuer=issuer)
        assert (
            await revoke_grant(oauth_fixture.net, moved_grant, oauth_fixture.target(), timeout_seconds=0.2)
            is False
        )
