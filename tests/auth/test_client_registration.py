from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.auth.conftest import REDIRECT

from toolyard.auth.client_registration import build_client_metadata_document
from toolyard.auth.errors import (
    AuthUnavailable,
    ClientForgotten,
    RegistrationFailed,
    SignInEnded,
    TokenRefused,
    WrongAuthorizationServer,
)
from toolyard.auth.storage import issuer_digest
from toolyard.types.registry import RegistrationMethod

if TYPE_CHECKING:
    from tests.auth.conftest import OAuthFixture

DOCUMENT = "https://toolyard.example/client.json"


async def test_a_client_is_registered_once_and_used_again(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.storage.drop_grant(oauth_fixture.mcp)
    await oauth_fixture.call(oauth_fixture.provider())
    assert len(await oauth_fixture.log("register")) == 1
    assert len(oauth_fixture.urls) == 2


@pytest.mark.parametrize(
    ("redirect", "kind"),
    [
        ("http://127.0.0.1:4999/callback", "native"),
        ("http://localhost:4999/callback", "native"),
        ("https://toolyard.example/ui/auth/mcp/callback", "web"),
    ],
)
async def test_a_registration_has_our_client_metadata(
    oauth_fixture: OAuthFixture, redirect: str, kind: str
) -> None:
    await oauth_fixture.set(metadata={"scopes_supported": ["offline_access"]}, challenge_scope="a b")
    await oauth_fixture.flow(redirect_uri=redirect).begin("k", oauth_fixture.target())
    [entry] = await oauth_fixture.log("register")
    assert entry["asked"] == {
        "client_name": "Toolyard",
        "redirect_uris": [f"{redirect}/{issuer_digest(oauth_fixture.origins['as1'])}"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "application_type": kind,
        "token_endpoint_auth_method": "none" if kind == "native" else "client_secret_basic",
        "scope": "a b offline_access",
    }


@pytest.mark.parametrize("method", ["none", "client_secret_basic", "client_secret_post"])
async def test_the_method_that_the_server_offers_is_used(oauth_fixture: OAuthFixture, method: str) -> None:
    await oauth_fixture.set(metadata={"token_endpoint_auth_methods_supported": [method]})
    await oauth_fixture.call(oauth_fixture.provider())
    assert [entry["method"] for entry in await oauth_fixture.log("token")] == [method]


async def test_without_a_list_the_method_is_basic(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(metadata={"token_endpoint_auth_methods_supported": None})
    await oauth_fixture.call(oauth_fixture.provider())
    assert [entry["method"] for entry in await oauth_fixture.log("token")] == ["client_secret_basic"]


async def test_the_registration_response_overrides_the_request(oauth_fixture: OAuthFixture) -> None:
    response_changes = {"token_endpoint_auth_method": "client_secret_post", "client_secret": "a-secret"}
    await oauth_fixture.set(register_answer=response_changes)
    await oauth_fixture.call(oauth_fixture.provider())
    assert [entry["method"] for entry in await oauth_fixture.log("token")] == ["client_secret_post"]


@pytest.mark.parametrize(
    "settings",
    [
        {"register_status": 400},
        {"register_status": 403},
        {"metadata": {"registration_endpoint": None}},
        {"metadata": {"token_endpoint_auth_methods_supported": ["tls_client_auth"]}},
        {"register_answer": {"token_endpoint_auth_method": "private_key_jwt"}},
        {"register_answer": {"token_endpoint_auth_method": "client_secret_basic", "client_secret": ""}},
    ],
)
async def test_a_registration_that_fails_says_so_and_leaves_nothing(
    oauth_fixture: OAuthFixture, settings: dict[str, Any]
) -> None:
    await oauth_fixture.set(**settings)
    error = await oauth_fixture.failure(oauth_fixture.provider())
    assert isinstance(error, RegistrationFailed)
    assert error.hint
    assert not oauth_fixture.urls
    assert (
        await oauth_fixture.storage.get_client(oauth_fixture.origins["as1"], "http://127.0.0.1:4999/callback")
        is None
    )


async def test_a_server_that_registers_no_scopes_of_a_resource_is_asked_without(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.set(challenge_scope="read", register_scopes=["openid"])
    provider = oauth_fixture.provider()
    await oauth_fixture.call(provider)
    await oauth_fixture.change(needs=["write"])
    assert (await oauth_fixture.call(provider))["scope"] == "read write"
    requested_scopes = [entry["asked"].get("scope") for entry in await oauth_fixture.log("register")]
    assert requested_scopes == ["read", None]


async def test_a_registration_endpoint_in_trouble_is_asked_again_later(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(register_status=503)
    assert isinstance(await oauth_fixture.failure(oauth_fixture.provider()), AuthUnavailable)
    await oauth_fixture.change(register_status=201)
    await oauth_fixture.call(oauth_fixture.provider())


async def test_an_expired_secret_is_registered_again(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(register_answer={"client_secret_expires_at": oauth_fixture.clock.now + 100})
    await oauth_fixture.call(oauth_fixture.provider())
    oauth_fixture.clock.now += 200
    await oauth_fixture.flow().begin("other", oauth_fixture.target())
    assert len(await oauth_fixture.log("register")) == 2


# The redirect URI.


async def test_each_issuer_has_a_redirect_address_of_its_own(
    oauth_fixture: OAuthFixture, query: Callable[[str], dict[str, str]]
) -> None:
    for server in ("as1", "as2"):
        await oauth_fixture.change(servers=[server])
        await oauth_fixture.flow().begin("k", oauth_fixture.target())
    redirect_uris = [entry["asked"]["redirect_uris"] for entry in await oauth_fixture.log("register")]
    assert redirect_uris == [
        [oauth_fixture.ourselves().redirect_uri_for(oauth_fixture.origins[name])] for name in ("as1", "as2")
    ]


async def test_an_old_registration_is_renewed_and_its_grant_refreshed_with_it(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    grant = await oauth_fixture.storage.get_grant(oauth_fixture.mcp)
    old = replace(grant.client, redirect_uri=REDIRECT)
    await oauth_fixture.storage.drop_client(grant.client)
    await oauth_fixture.storage.put_client(old)
    await oauth_fixture.storage.put_grant(oauth_fixture.mcp, replace(grant, client=old))
    await oauth_fixture.run_out(4000)
    assert (await oauth_fixture.call(oauth_fixture.provider(person=False)))["client"] == old.client_id
    await oauth_fixture.flow().begin("other", oauth_fixture.target())
    client = await oauth_fixture.storage.get_client(
        old.issuer, oauth_fixture.ourselves().redirect_uri_for(old.issuer)
    )
    assert client.client_id != old.client_id


@pytest.mark.parametrize("registered", [False, True])
async def test_an_entered_client_keeps_the_shared_address_until_its_own_is_registered(
    oauth_fixture: OAuthFixture, query: Callable[[str], dict[str, str]], registered: bool
) -> None:
    redirect = await oauth_fixture.flow().begin(
        "k", oauth_fixture.target(client_id="mine", issuer_redirect=registered)
    )
    own = oauth_fixture.ourselves().redirect_uri_for(oauth_fixture.origins["as1"])
    assert query(redirect.url)["redirect_uri"] == (own if registered else REDIRECT)


# The client that the operator entered.


async def test_settings_of_the_operator_override_registration(
    oauth_fixture: OAuthFixture, query: Callable[[str], dict[str, str]]
) -> None:
    await oauth_fixture.set(
        entered={"mine:1": "s3cr=t &x"}, metadata={"client_id_metadata_document_supported": True}
    )
    target = oauth_fixture.target(client_id="mine:1", client_secret="s3cr=t &x")
    await oauth_fixture.call(
        oauth_fixture.provider(target, identity=oauth_fixture.ourselves(document_url=DOCUMENT))
    )
    assert query(oauth_fixture.urls[0])["client_id"] == "mine:1"
    assert not await oauth_fixture.log("register")
    assert [entry["method"] for entry in await oauth_fixture.log("token")] == ["client_secret_basic"]


async def test_an_entered_secret_goes_the_way_that_the_server_offers(oauth_fixture: OAuthFixture) -> None:
    methods = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    await oauth_fixture.set(entered={"mine": "secret"}, metadata=methods)
    await oauth_fixture.call(
        oauth_fixture.provider(oauth_fixture.target(client_id="mine", client_secret="secret"))
    )
    assert [entry["method"] for entry in await oauth_fixture.log("token")] == ["client_secret_post"]


async def test_an_entered_client_is_never_shown_to_another_authorization_server(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.set(entered={"mine": "secret"})
    provider = oauth_fixture.provider(oauth_fixture.target(client_id="mine", client_secret="secret"))
    await oauth_fixture.call(provider)
    await oauth_fixture.change(servers=["as2"])
    error = await oauth_fixture.failure(provider)
    assert isinstance(error, WrongAuthorizationServer)
    assert oauth_fixture.origins["as1"] in error.cause
    assert not await oauth_fixture.log("authorize", "as2")
    assert not await oauth_fixture.log("token", "as2")


async def test_an_entered_client_that_is_refused_is_the_operators_matter(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(entered={"mine": "other"})
    error = await oauth_fixture.failure(
        oauth_fixture.provider(oauth_fixture.target(client_id="mine", client_secret="wrong-one"))
    )
    assert isinstance(error, TokenRefused)
    assert error.code == "invalid_client"
    assert "clientSecret" in (error.hint or "")
    assert len(oauth_fixture.urls) == 1


async def test_a_new_secret_in_the_configuration_is_used_for_the_next_refresh(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.set(entered={"mine": "old-secret"})
    await oauth_fixture.call(
        oauth_fixture.provider(oauth_fixture.target(client_id="mine", client_secret="old-secret"))
    )
    await oauth_fixture.change(entered={"mine": "new-secret"})
    oauth_fixture.clock.now += 4000
    await oauth_fixture.call(
        oauth_fixture.provider(oauth_fixture.target(client_id="mine", client_secret="new-secret"))
    )
    assert len(oauth_fixture.urls) == 1


# The document.


async def test_a_document_is_our_client_id_where_the_server_takes_it(
    oauth_fixture: OAuthFixture, query: Callable[[str], dict[str, str]]
) -> None:
    await oauth_fixture.set(metadata={"client_id_metadata_document_supported": True})
    await oauth_fixture.call(oauth_fixture.provider(identity=oauth_fixture.ourselves(document_url=DOCUMENT)))
    own = oauth_fixture.ourselves(document_url=DOCUMENT)
    assert query(oauth_fixture.urls[0])["client_id"] == own.document_url_for(oauth_fixture.origins["as1"])
    assert query(oauth_fixture.urls[0])["redirect_uri"] == own.redirect_uri_for(oauth_fixture.origins["as1"])
    assert not await oauth_fixture.log("register")
    assert [entry["method"] for entry in await oauth_fixture.log("token")] == ["none"]


async def test_a_document_is_not_used_where_the_server_does_not_promise_iss(
    oauth_fixture: OAuthFixture,
) -> None:
    # The document of a hostile issuer can be presented to an honest one: only iss distinguishes them.
    await oauth_fixture.set(iss=None, metadata={"client_id_metadata_document_supported": True})
    identity = oauth_fixture.ourselves(document_url=DOCUMENT)
    await oauth_fixture.call(oauth_fixture.provider(identity=identity))
    assert len(await oauth_fixture.log("register")) == 1
    target = replace(oauth_fixture.target(), registration=RegistrationMethod.DOCUMENT)
    with pytest.raises(RegistrationFailed, match="does not promise to name itself"):
        await oauth_fixture.flow(document_url=DOCUMENT).begin("k", target)
    assert (
        await oauth_fixture.storage.get_document_issuer(issuer_digest(oauth_fixture.origins["as1"])) is None
    )


async def test_a_setting_puts_registration_before_the_document(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(metadata={"client_id_metadata_document_supported": True})
    await oauth_fixture.call(
        oauth_fixture.provider(identity=oauth_fixture.ourselves(document_url=DOCUMENT, dynamic_first=True))
    )
    assert len(await oauth_fixture.log("register")) == 1


async def test_the_document_is_still_used_where_registration_is_not_offered(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.set(
        metadata={"client_id_metadata_document_supported": True, "registration_endpoint": None}
    )
    provider = oauth_fixture.provider(
        identity=oauth_fixture.ourselves(document_url=DOCUMENT, dynamic_first=True)
    )
    assert (await oauth_fixture.call(provider))["client"].startswith("https://toolyard.example/client/")


async def test_without_a_public_address_the_client_metadata_document_is_missing(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.set(metadata={"client_id_metadata_document_supported": True})
    await oauth_fixture.call(oauth_fixture.provider())
    assert len(await oauth_fixture.log("register")) == 1


def test_the_metadata_document_matches_a_registration(oauth_fixture: OAuthFixture) -> None:
    document = build_client_metadata_document(
        oauth_fixture.ourselves(), DOCUMENT, "https://toolyard.example/cb"
    )
    assert document["client_id"] == DOCUMENT
    assert document["redirect_uris"] == ["https://toolyard.example/cb"]
    assert document["application_type"] == "web"
    assert document["token_endpoint_auth_method"] == "none"


# Forgotten.


async def test_a_forgotten_client_is_registered_again_once(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.storage.drop_grant(oauth_fixture.mcp)
    await oauth_fixture.forget("clients")
    await oauth_fixture.call(oauth_fixture.provider())
    assert len(await oauth_fixture.log("register")) == 2
    # No sign-in was started in vain.
    assert len(oauth_fixture.urls) == 2


async def test_a_client_forgotten_during_sign_in_is_registered_again_once(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.set(token_trouble=["invalid_client"])
    await oauth_fixture.call(oauth_fixture.provider())
    assert len(await oauth_fixture.log("register")) == 2
    assert len(oauth_fixture.urls) == 2


async def test_a_server_that_forgets_every_client_is_not_asked_for_ever(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(token_trouble=["invalid_client"] * 5)
    assert isinstance(await oauth_fixture.failure(oauth_fixture.provider()), ClientForgotten)
    assert len(await oauth_fixture.log("register")) == 2


async def test_a_client_that_is_forgotten_at_a_refresh_needs_a_sign_in(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.call(oauth_fixture.provider())
    await oauth_fixture.forget("clients")
    await oauth_fixture.run_out(4000)
    assert isinstance(await oauth_fixture.failure(oauth_fixture.provider(person=False)), SignInEnded)
    await oauth_fixture.call(oauth_fixture.provider())
    assert len(await oauth_fixture.log("register")) == 2


# Migration.


async def test_after_a_move_the_new_authorization_server_never_sees_the_old_client(
    oauth_fixture: OAuthFixture,
) -> None:
    provider = oauth_fixture.provider()
    first = await oauth_fixture.call(provider)
    oauth_fixture.clock.now += 1000
    await oauth_fixture.change(servers=["as2"])
    second = await oauth_fixture.call(provider)
    assert first["client"].startswith("as1-")
    assert second["client"].startswith("as2-")
    client_ids = [entry["client_id"] for entry in await oauth_fixture.log("token", "as2")]
    assert client_ids == [second["client"]]
    # The old refresh token was not sent.
    assert [entry["grant_type"] for entry in await oauth_fixture.log("token")] == ["authorization_code"] * 2


@pytest.mark.parametrize(
    "way", [RegistrationMethod.ENTERED, RegistrationMethod.DOCUMENT, RegistrationMethod.DYNAMIC]
)
async def test_a_registration_that_was_asked_for_is_used_or_none(
    oauth_fixture: OAuthFixture, way: RegistrationMethod
) -> None:
    await oauth_fixture.set(metadata={"registration_endpoint": None})
    target = replace(oauth_fixture.target(), registration=way)
    with pytest.raises(RegistrationFailed):
        await oauth_fixture.flow().begin("k", target)
    assert not await oauth_fixture.log("register")


async def test_a_lost_registration_is_repeated_before_the_redirect(
    oauth_fixture: OAuthFixture,
) -> None:
    first = await oauth_fixture.flow().begin("k", oauth_fixture.target())
    again = await oauth_fixture.flow().begin("k", oauth_fixture.target())
    assert len(await oauth_fixture.log("register")) == 1
    await oauth_fixture.forget("clients")
    last = await oauth_fixture.flow().begin("k", oauth_fixture.target())
    assert len(await oauth_fixture.log("register")) == 2
    assert (await oauth_fixture.flow().finish(await oauth_fixture.browse(last.url))).access_token
    assert first.state != again.state != last.state


async def test_an_authorization_endpoint_that_is_slow_or_away_is_not_held_against_the_registration(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.flow().begin("k", oauth_fixture.target())
    await oauth_fixture.change(metadata={"authorization_endpoint": "http://127.0.0.1:1/authorize"})
    await oauth_fixture.flow().begin("k", oauth_fixture.target())
    assert len(await oauth_fixture.log("register")) == 1
