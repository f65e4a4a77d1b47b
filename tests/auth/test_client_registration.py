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


async def test_a_client_is_registered_once_and_used_again(world: OAuthFixture) -> None:
    await world.call(world.provider())
    await world.storage.drop_grant(world.mcp)
    await world.call(world.provider())
    assert len(await world.log("register")) == 1
    assert len(world.urls) == 2


@pytest.mark.parametrize(
    ("redirect", "kind"),
    [
        ("http://127.0.0.1:4999/callback", "native"),
        ("http://localhost:4999/callback", "native"),
        ("https://toolyard.example/ui/auth/mcp/callback", "web"),
    ],
)
async def test_a_registration_says_what_we_are(world: OAuthFixture, redirect: str, kind: str) -> None:
    await world.set(metadata={"scopes_supported": ["offline_access"]}, challenge_scope="a b")
    await world.flow(redirect_uri=redirect).begin("k", world.target())
    [entry] = await world.log("register")
    assert entry["asked"] == {
        "client_name": "Toolyard",
        "redirect_uris": [f"{redirect}/{issuer_digest(world.origins['as1'])}"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "application_type": kind,
        "token_endpoint_auth_method": "none" if kind == "native" else "client_secret_basic",
        "scope": "a b offline_access",
    }


@pytest.mark.parametrize("method", ["none", "client_secret_basic", "client_secret_post"])
async def test_the_method_that_the_server_offers_is_used(world: OAuthFixture, method: str) -> None:
    await world.set(metadata={"token_endpoint_auth_methods_supported": [method]})
    await world.call(world.provider())
    assert [entry["method"] for entry in await world.log("token")] == [method]


async def test_without_a_list_the_method_is_basic(world: OAuthFixture) -> None:
    await world.set(metadata={"token_endpoint_auth_methods_supported": None})
    await world.call(world.provider())
    assert [entry["method"] for entry in await world.log("token")] == ["client_secret_basic"]


async def test_what_was_registered_counts_not_what_was_asked_for(world: OAuthFixture) -> None:
    changed = {"token_endpoint_auth_method": "client_secret_post", "client_secret": "a-secret"}
    await world.set(register_answer=changed)
    await world.call(world.provider())
    assert [entry["method"] for entry in await world.log("token")] == ["client_secret_post"]


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
    world: OAuthFixture, settings: dict[str, Any]
) -> None:
    await world.set(**settings)
    error = await world.failure(world.provider())
    assert isinstance(error, RegistrationFailed)
    assert error.hint
    assert not world.urls
    assert await world.storage.get_client(world.origins["as1"], "http://127.0.0.1:4999/callback") is None


async def test_a_server_that_registers_no_scopes_of_a_resource_is_asked_without(world: OAuthFixture) -> None:
    await world.set(challenge_scope="read", register_scopes=["openid"])
    provider = world.provider()
    await world.call(provider)
    await world.change(needs=["write"])
    assert (await world.call(provider))["scope"] == "read write"
    asked = [entry["asked"].get("scope") for entry in await world.log("register")]
    assert asked == ["read", None]


async def test_a_registration_endpoint_in_trouble_is_asked_again_later(world: OAuthFixture) -> None:
    await world.set(register_status=503)
    assert isinstance(await world.failure(world.provider()), AuthUnavailable)
    await world.change(register_status=201)
    await world.call(world.provider())


async def test_a_secret_that_ran_out_is_registered_anew(world: OAuthFixture) -> None:
    await world.set(register_answer={"client_secret_expires_at": world.clock.now + 100})
    await world.call(world.provider())
    world.clock.now += 200
    await world.flow().begin("other", world.target())
    assert len(await world.log("register")) == 2


# The redirect address.


async def test_each_issuer_has_a_redirect_address_of_its_own(
    world: OAuthFixture, query: Callable[[str], dict[str, str]]
) -> None:
    for server in ("as1", "as2"):
        await world.change(servers=[server])
        await world.flow().begin("k", world.target())
    registered = [entry["asked"]["redirect_uris"] for entry in await world.log("register")]
    assert registered == [
        [world.ourselves().redirect_uri_for(world.origins[name])] for name in ("as1", "as2")
    ]


async def test_an_old_registration_is_renewed_and_its_grant_refreshed_with_it(world: OAuthFixture) -> None:
    await world.call(world.provider())
    grant = await world.storage.get_grant(world.mcp)
    old = replace(grant.client, redirect_uri=REDIRECT)
    await world.storage.drop_client(grant.client)
    await world.storage.put_client(old)
    await world.storage.put_grant(world.mcp, replace(grant, client=old))
    await world.run_out(4000)
    assert (await world.call(world.provider(person=False)))["client"] == old.client_id
    await world.flow().begin("other", world.target())
    renewed = await world.storage.get_client(old.issuer, world.ourselves().redirect_uri_for(old.issuer))
    assert renewed.client_id != old.client_id


@pytest.mark.parametrize("registered", [False, True])
async def test_an_entered_client_keeps_the_shared_address_until_its_own_is_registered(
    world: OAuthFixture, query: Callable[[str], dict[str, str]], registered: bool
) -> None:
    started = await world.flow().begin("k", world.target(client_id="mine", issuer_redirect=registered))
    own = world.ourselves().redirect_uri_for(world.origins["as1"])
    assert query(started.url)["redirect_uri"] == (own if registered else REDIRECT)


# The client that the operator entered.


async def test_what_the_operator_entered_wins(
    world: OAuthFixture, query: Callable[[str], dict[str, str]]
) -> None:
    await world.set(entered={"mine:1": "s3cr=t &x"}, metadata={"client_id_metadata_document_supported": True})
    target = world.target(client_id="mine:1", client_secret="s3cr=t &x")
    await world.call(world.provider(target, who=world.ourselves(document_url=DOCUMENT)))
    assert query(world.urls[0])["client_id"] == "mine:1"
    assert not await world.log("register")
    assert [entry["method"] for entry in await world.log("token")] == ["client_secret_basic"]


async def test_an_entered_secret_goes_the_way_that_the_server_offers(world: OAuthFixture) -> None:
    methods = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    await world.set(entered={"mine": "secret"}, metadata=methods)
    await world.call(world.provider(world.target(client_id="mine", client_secret="secret")))
    assert [entry["method"] for entry in await world.log("token")] == ["client_secret_post"]


async def test_an_entered_client_is_never_shown_to_another_authorization_server(world: OAuthFixture) -> None:
    await world.set(entered={"mine": "secret"})
    provider = world.provider(world.target(client_id="mine", client_secret="secret"))
    await world.call(provider)
    await world.change(servers=["as2"])
    error = await world.failure(provider)
    assert isinstance(error, WrongAuthorizationServer)
    assert world.origins["as1"] in error.cause
    assert not await world.log("authorize", "as2")
    assert not await world.log("token", "as2")


async def test_an_entered_client_that_is_refused_is_the_operators_matter(world: OAuthFixture) -> None:
    await world.set(entered={"mine": "other"})
    error = await world.failure(world.provider(world.target(client_id="mine", client_secret="wrong-one")))
    assert isinstance(error, TokenRefused)
    assert error.code == "invalid_client"
    assert "clientSecret" in (error.hint or "")
    assert len(world.urls) == 1


async def test_a_new_secret_in_the_configuration_is_used_for_the_next_refresh(world: OAuthFixture) -> None:
    await world.set(entered={"mine": "old-secret"})
    await world.call(world.provider(world.target(client_id="mine", client_secret="old-secret")))
    await world.change(entered={"mine": "new-secret"})
    world.clock.now += 4000
    await world.call(world.provider(world.target(client_id="mine", client_secret="new-secret")))
    assert len(world.urls) == 1


# The document.


async def test_a_document_is_our_client_id_where_the_server_takes_it(
    world: OAuthFixture, query: Callable[[str], dict[str, str]]
) -> None:
    await world.set(metadata={"client_id_metadata_document_supported": True})
    await world.call(world.provider(who=world.ourselves(document_url=DOCUMENT)))
    own = world.ourselves(document_url=DOCUMENT)
    assert query(world.urls[0])["client_id"] == own.document_url_for(world.origins["as1"])
    assert query(world.urls[0])["redirect_uri"] == own.redirect_uri_for(world.origins["as1"])
    assert not await world.log("register")
    assert [entry["method"] for entry in await world.log("token")] == ["none"]


async def test_a_document_is_not_used_where_the_server_does_not_promise_iss(world: OAuthFixture) -> None:
    # The document of a hostile issuer can be presented to an honest one: only iss distinguishes them.
    await world.set(iss=None, metadata={"client_id_metadata_document_supported": True})
    who = world.ourselves(document_url=DOCUMENT)
    await world.call(world.provider(who=who))
    assert len(await world.log("register")) == 1
    target = replace(world.target(), registration=RegistrationMethod.DOCUMENT)
    with pytest.raises(RegistrationFailed, match="does not promise to name itself"):
        await world.flow(document_url=DOCUMENT).begin("k", target)
    assert await world.storage.get_document_issuer(issuer_digest(world.origins["as1"])) is None


async def test_a_setting_puts_registration_before_the_document(world: OAuthFixture) -> None:
    await world.set(metadata={"client_id_metadata_document_supported": True})
    await world.call(world.provider(who=world.ourselves(document_url=DOCUMENT, dynamic_first=True)))
    assert len(await world.log("register")) == 1


async def test_the_document_is_still_used_where_registration_is_not_offered(world: OAuthFixture) -> None:
    await world.set(metadata={"client_id_metadata_document_supported": True, "registration_endpoint": None})
    provider = world.provider(who=world.ourselves(document_url=DOCUMENT, dynamic_first=True))
    assert (await world.call(provider))["client"].startswith("https://toolyard.example/client/")


async def test_without_a_public_address_there_is_no_document(world: OAuthFixture) -> None:
    await world.set(metadata={"client_id_metadata_document_supported": True})
    await world.call(world.provider())
    assert len(await world.log("register")) == 1


def test_the_document_says_what_a_registration_says(world: OAuthFixture) -> None:
    document = build_client_metadata_document(world.ourselves(), DOCUMENT, "https://toolyard.example/cb")
    assert document["client_id"] == DOCUMENT
    assert document["redirect_uris"] == ["https://toolyard.example/cb"]
    assert document["application_type"] == "web"
    assert document["token_endpoint_auth_method"] == "none"


# Forgotten.


async def test_a_forgotten_client_is_registered_again_once(world: OAuthFixture) -> None:
    await world.call(world.provider())
    await world.storage.drop_grant(world.mcp)
    await world.forget("clients")
    await world.call(world.provider())
    assert len(await world.log("register")) == 2
    # No sign-in was started in vain.
    assert len(world.urls) == 2


async def test_a_client_that_is_forgotten_while_somebody_signs_in_is_registered_again_once(
    world: OAuthFixture,
) -> None:
    await world.set(token_trouble=["invalid_client"])
    await world.call(world.provider())
    assert len(await world.log("register")) == 2
    assert len(world.urls) == 2


async def test_a_server_that_forgets_every_client_is_not_asked_for_ever(world: OAuthFixture) -> None:
    await world.set(token_trouble=["invalid_client"] * 5)
    assert isinstance(await world.failure(world.provider()), ClientForgotten)
    assert len(await world.log("register")) == 2


async def test_a_client_that_is_forgotten_at_a_refresh_needs_a_sign_in(world: OAuthFixture) -> None:
    await world.call(world.provider())
    await world.forget("clients")
    await world.run_out(4000)
    assert isinstance(await world.failure(world.provider(person=False)), SignInEnded)
    await world.call(world.provider())
    assert len(await world.log("register")) == 2


# Migration.


async def test_after_a_move_the_new_authorization_server_never_sees_the_old_client(
    world: OAuthFixture,
) -> None:
    provider = world.provider()
    first = await world.call(provider)
    world.clock.now += 1000
    await world.change(servers=["as2"])
    second = await world.call(provider)
    assert first["client"].startswith("as1-")
    assert second["client"].startswith("as2-")
    seen = [entry["client_id"] for entry in await world.log("token", "as2")]
    assert seen == [second["client"]]
    # The old refresh token was not sent.
    assert [entry["grant_type"] for entry in await world.log("token")] == ["authorization_code"] * 2


@pytest.mark.parametrize(
    "way", [RegistrationMethod.ENTERED, RegistrationMethod.DOCUMENT, RegistrationMethod.DYNAMIC]
)
async def test_a_registration_that_was_asked_for_is_used_or_none(
    world: OAuthFixture, way: RegistrationMethod
) -> None:
    await world.set(metadata={"registration_endpoint": None})
    target = replace(world.target(), registration=way)
    with pytest.raises(RegistrationFailed):
        await world.flow().begin("k", target)
    assert not await world.log("register")


async def test_a_registration_that_was_lost_is_made_anew_before_anybody_is_sent_there(
    world: OAuthFixture,
) -> None:
    first = await world.flow().begin("k", world.target())
    again = await world.flow().begin("k", world.target())
    assert len(await world.log("register")) == 1
    await world.forget("clients")
    last = await world.flow().begin("k", world.target())
    assert len(await world.log("register")) == 2
    assert (await world.flow().finish(await world.browse(last.url))).access_token
    assert first.state != again.state != last.state


async def test_an_authorization_endpoint_that_is_slow_or_away_is_not_held_against_the_registration(
    world: OAuthFixture,
) -> None:
    await world.flow().begin("k", world.target())
    await world.change(metadata={"authorization_endpoint": "http://127.0.0.1:1/authorize"})
    await world.flow().begin("k", world.target())
    assert len(await world.log("register")) == 1
