"""Signing in to instances, against a real authorization server and real databases."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from yarl import URL

from toolyard.auth.errors import (
    AnswerRejected,
    AuthError,
    AuthorizationDenied,
    AuthUnavailable,
    ClientForgotten,
    DiscoveryFailed,
    IssuerMismatch,
    IssuerUnconfirmed,
    PkceMissing,
    RegistrationFailed,
    TokenRefused,
)
from toolyard.auth.sign_in_flow import AuthorizationResponse
from toolyard.auth.sign_in_target import ClientIdentity
from toolyard.auth.storage import issuer_digest
from toolyard.registry import ChoiceDraft, InstanceDraft, ServerDraft
from toolyard.registry.errors import Invalid, NotFound
from toolyard.types.registry import InstanceState

if TYPE_CHECKING:
    from tests.registry.conftest import RegistryFixture

PENDING, READY = InstanceState.PENDING, InstanceState.READY


async def begin_sign_in(registry_fixture: Any, instance: Any, browser: str = "b") -> AuthorizationResponse:
    """Begin, and agree; what the browser comes back with."""
    return await registry_fixture.program.agree(
        await registry_fixture.sign_ins.begin(registry_fixture.ann.id, instance.id, browser)
    )


async def failure(
    registry_fixture: Any, response: AuthorizationResponse, browser: str = "b", user: str | None = None
) -> Any:
    with pytest.raises((AuthError, AuthUnavailable, NotFound)) as exc_info:
        await registry_fixture.finish(response, user, browser)
    return exc_info.value


async def nothing_kept(registry_fixture: Any, instance: Any) -> bool:
    return await registry_fixture.database.auth.get_grant(instance.grant_key) is None


async def test_a_sign_in_makes_an_instance_ready(registry_fixture: RegistryFixture) -> None:
    instance = await registry_fixture.instance()
    assert await registry_fixture.state(instance) == (PENDING, "not signed in yet")
    sign_in = await registry_fixture.sign_in(instance)
    assert (sign_in.id, sign_in.state) == (instance.id, READY)
    assert await registry_fixture.state(instance) == (READY, None)
    grant = await registry_fixture.database.auth.get_grant(instance.grant_key)
    assert grant.server_url == registry_fixture.program.mcp


async def test_the_redirect_is_where_the_browser_reached_us(registry_fixture: RegistryFixture) -> None:
    instance = await registry_fixture.instance()
    local = ClientIdentity("http://localhost:8420/ui/auth/mcp/callback")
    url = await registry_fixture.sign_ins.begin(registry_fixture.ann.id, instance.id, "b", local)
    assert URL(url).query["redirect_uri"] == local.redirect_uri_for(registry_fixture.program.origins["as1"])
    response = await registry_fixture.program.agree(url)
    assert (await registry_fixture.finish(response)).state is READY


# Who may.


async def test_another_persons_instance_does_not_exist(registry_fixture: RegistryFixture) -> None:
    instance = await registry_fixture.instance()
    with pytest.raises(NotFound):
        await registry_fixture.sign_ins.begin(registry_fixture.bob.id, instance.id, "b")


async def test_only_the_same_user_in_the_same_browser_can_finish(registry_fixture: RegistryFixture) -> None:
    instance = await registry_fixture.instance()
    for user, browser in (
        (registry_fixture.bob.id, "b"),
        (registry_fixture.ann.id, "other"),
        (registry_fixture.ann.id, ""),
    ):
        response = await begin_sign_in(registry_fixture, instance)
        error = await failure(registry_fixture, response, browser, user)
        assert isinstance(error, AnswerRejected)
        # It was used up, also for whoever began it.
        assert isinstance(await failure(registry_fixture, response), AnswerRejected)
    assert not await registry_fixture.program.log("token")
    assert (await registry_fixture.state(instance))[0] is PENDING
    assert await nothing_kept(registry_fixture, instance)


async def test_a_state_works_once(registry_fixture: RegistryFixture) -> None:
    instance = await registry_fixture.instance()
    response = await begin_sign_in(registry_fixture, instance)
    await registry_fixture.finish(response)
    grant = await registry_fixture.database.auth.get_grant(instance.grant_key)
    assert isinstance(await failure(registry_fixture, response), AnswerRejected)
    assert await registry_fixture.database.auth.get_grant(instance.grant_key) == grant
    assert (await registry_fixture.state(instance))[0] is READY


@pytest.mark.parametrize("state", [None, "", "made-up", "\x00", "x" * 5000])
async def test_a_state_that_is_missing_or_unknown_is_refused(
    registry_fixture: RegistryFixture, state: str | None
) -> None:
    params = {"code": "c"} if state is None else {"code": "c", "state": state}
    assert isinstance(await failure(registry_fixture, AuthorizationResponse("", params)), AnswerRejected)
    assert not await registry_fixture.program.log("token")


async def test_a_sign_in_that_took_too_long_is_refused(registry_fixture: RegistryFixture) -> None:
    response = await begin_sign_in(registry_fixture, await registry_fixture.instance())
    registry_fixture.clock.now += 4000
    assert isinstance(await failure(registry_fixture, response), AnswerRejected)


async def test_instances_that_do_not_sign_in_are_refused(registry_fixture: RegistryFixture) -> None:
    public = await registry_fixture.instance(ChoiceDraft("public"))
    header = await registry_fixture.instance(ChoiceDraft("header", key="X-Key"), value="v")
    oauth = await registry_fixture.instance()
    await registry_fixture.registry.set_server_enabled(oauth.server_id, False)
    for instance in (public, header, oauth):
        with pytest.raises(Invalid):
            await registry_fixture.sign_ins.begin(registry_fixture.ann.id, instance.id, "b")


# Two at once.


async def test_two_tabs_at_once_both_work_and_the_last_counts(registry_fixture: RegistryFixture) -> None:
    instance = await registry_fixture.instance()
    await registry_fixture.program.change(person="first")
    one = await begin_sign_in(registry_fixture, instance)
    await registry_fixture.program.change(person="second")
    two = await begin_sign_in(registry_fixture, instance)
    for response in (two, one):
        assert (await registry_fixture.finish(response)).state is READY
    last = (await registry_fixture.database.auth.get_grant(instance.grant_key)).access_token
    results = await asyncio.gather(
        *(registry_fixture.finish(response) for response in (one, two)),
        return_exceptions=True,
    )
    assert all(isinstance(each, AnswerRejected) for each in results)
    assert (await registry_fixture.database.auth.get_grant(instance.grant_key)).access_token == last


async def test_an_answer_brought_twice_is_used_once(registry_fixture: RegistryFixture) -> None:
    instance = await registry_fixture.instance()
    response = await begin_sign_in(registry_fixture, instance)
    results = await asyncio.gather(
        *(registry_fixture.finish(response) for _ in range(5)),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in results) == ["AnswerRejected"] * 4 + ["Instance"]
    assert len(await registry_fixture.program.log("token")) == 1
    assert (await registry_fixture.state(instance))[0] is READY


# What changed meanwhile.


async def test_an_instance_that_was_deleted_meanwhile_keeps_nothing(
    registry_fixture: RegistryFixture,
) -> None:
    instance = await registry_fixture.instance()
    response = await begin_sign_in(registry_fixture, instance)
    # As if its sign-in had not been deleted with it: another process may be about to write it.
    pending = await registry_fixture.database.auth.take_pending(response.params["state"])
    await registry_fixture.registry.delete_instance(registry_fixture.ann.id, instance.id)
    await registry_fixture.database.auth.put_pending(pending)
    error = await failure(registry_fixture, response)
    assert isinstance(error, NotFound)
    assert "deleted while you were signing in" in error.cause
    assert not await registry_fixture.program.log("token")
    assert await nothing_kept(registry_fixture, instance)


async def test_an_instance_that_is_deleted_during_the_exchange_keeps_nothing(
    registry_fixture: RegistryFixture,
) -> None:
    instance = await registry_fixture.instance()
    response = await begin_sign_in(registry_fixture, instance)
    await registry_fixture.program.change(token_waits=True)
    finishing = asyncio.create_task(failure(registry_fixture, response))
    while not await registry_fixture.program.log("token"):
        await asyncio.sleep(0.01)
    await registry_fixture.registry.delete_instance(registry_fixture.ann.id, instance.id)
    await registry_fixture.program.change(token_waits=False)
    assert isinstance(await finishing, NotFound)
    assert await nothing_kept(registry_fixture, instance)


async def test_a_server_that_moved_during_the_exchange_gets_nothing(
    registry_fixture: RegistryFixture,
) -> None:
    instance = await registry_fixture.instance()
    server = await registry_fixture.registry.get_server(instance.server_id)
    response = await begin_sign_in(registry_fixture, instance)
    await registry_fixture.program.change(token_waits=True)
    finishing = asyncio.create_task(failure(registry_fixture, response))
    while not await registry_fixture.program.log("token"):
        await asyncio.sleep(0.01)
    [choice] = server.choices
    draft = ServerDraft(
        server.name, "https://evil.example/mcp", choices=(ChoiceDraft("oauth", id=choice.id),)
    )
    await registry_fixture.registry.edit_server(server.id, draft)
    await registry_fixture.program.change(token_waits=False)
    assert isinstance(await finishing, AnswerRejected)
    assert await nothing_kept(registry_fixture, instance)
    assert (await registry_fixture.state(instance))[0] is PENDING


async def test_a_deleted_instance_takes_its_pending_sign_in_along(registry_fixture: RegistryFixture) -> None:
    instance = await registry_fixture.instance()
    response = await begin_sign_in(registry_fixture, instance)
    await registry_fixture.registry.delete_instance(registry_fixture.ann.id, instance.id)
    assert isinstance(await failure(registry_fixture, response), AnswerRejected)


# Each step fails.


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"resource_places": []}, DiscoveryFailed, "not MCP-compliant"),
        ({"metadata_places": []}, DiscoveryFailed, "serves no metadata"),
        ({"metadata_status": 503}, AuthUnavailable, "HTTP 503"),
        ({"metadata": {"issuer": "https://other.example"}}, IssuerMismatch, "another issuer"),
        ({"metadata": {"code_challenge_methods_supported": ["plain"]}}, PkceMissing, "PKCE"),
        (
            {"metadata": {"registration_endpoint": None}},
            RegistrationFailed,
            "does not support dynamic client registration",
        ),
        ({"register_status": 400}, RegistrationFailed, "not this address"),
        ({"register_status": 500}, AuthUnavailable, "HTTP 500"),
    ],
)
async def test_a_sign_in_that_cannot_begin_says_why(
    registry_fixture: RegistryFixture, settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    await registry_fixture.program.set(**settings)
    instance = await registry_fixture.instance()
    with pytest.raises(error) as exc_info:
        await registry_fixture.sign_ins.begin(registry_fixture.ann.id, instance.id, "b")
    assert words in str(exc_info.value)
    state, reason = await registry_fixture.state(instance)
    assert state is PENDING
    assert words in (reason or "")
    await registry_fixture.program.set()
    assert (await registry_fixture.sign_in(instance)).state is READY
    assert await registry_fixture.state(instance) == (READY, None)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"authorize_error": "access_denied"}, AuthorizationDenied, "said no"),
        ({"authorize_error": "server_error"}, AuthorizationDenied, "server_error"),
        ({"iss": "https://other.example"}, AnswerRejected, "another authorization server"),
        ({"token_trouble": [503]}, AuthUnavailable, "HTTP 503"),
        ({"token_trouble": ["drop"]}, AuthUnavailable, "token endpoint"),
        ({"token_trouble": ["invalid_grant"]}, TokenRefused, "invalid_grant"),
        ({"token_answer": {"access_token": None}}, TokenRefused, "bearer token"),
        ({"token_answer": {"token_type": "mac"}}, TokenRefused, "bearer token"),
    ],
)
async def test_a_sign_in_that_cannot_be_finished_says_why_and_keeps_nothing(
    registry_fixture: RegistryFixture, settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    await registry_fixture.program.set(**settings)
    instance = await registry_fixture.instance()
    failure_text = await failure(registry_fixture, await begin_sign_in(registry_fixture, instance))
    assert isinstance(failure_text, error)
    assert words in str(failure_text)
    assert await nothing_kept(registry_fixture, instance)
    state, reason = await registry_fixture.state(instance)
    assert state is PENDING
    assert words in (reason or "")
    await registry_fixture.program.change(
        token_trouble=[], iss="right", authorize_error=None, token_answer={}
    )
    assert (await registry_fixture.sign_in(instance)).state is READY


async def test_an_answer_that_hides_where_it_comes_from_is_refused(registry_fixture: RegistryFixture) -> None:
    instance = await registry_fixture.instance()
    response = await begin_sign_in(registry_fixture, instance)
    without = {name: value for name, value in response.params.items() if name != "iss"}
    assert isinstance(await failure(registry_fixture, replace(response, params=without)), AnswerRejected)
    assert not await registry_fixture.program.log("token")


async def test_a_failed_reconnect_keeps_the_working_sign_in(registry_fixture: RegistryFixture) -> None:
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    before = await registry_fixture.database.auth.get_grant(instance.grant_key)
    await registry_fixture.program.change(authorize_error="access_denied")
    assert isinstance(
        await failure(registry_fixture, await begin_sign_in(registry_fixture, instance)), AuthorizationDenied
    )
    assert await registry_fixture.state(instance) == (READY, None)
    assert await registry_fixture.database.auth.get_grant(instance.grant_key) == before


async def test_a_forgotten_client_is_registered_again_once(registry_fixture: RegistryFixture) -> None:
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    response = await begin_sign_in(registry_fixture, instance)
    await registry_fixture.program.forget("clients")
    assert isinstance(await failure(registry_fixture, response), ClientForgotten)
    await registry_fixture.sign_in(instance)
    assert len(await registry_fixture.program.log("register")) == 2


# Registration.


async def test_one_registration_serves_all_instances(registry_fixture: RegistryFixture) -> None:
    for _ in range(3):
        await registry_fixture.sign_in(await registry_fixture.instance())
    assert len(await registry_fixture.program.log("register")) == 1


async def test_credentials_entered_by_the_admin_are_used(registry_fixture: RegistryFixture) -> None:
    await registry_fixture.program.set(entered={"mine": "its-secret"})
    issuer = registry_fixture.program.origins["as1"]
    choice = ChoiceDraft(
        "oauth", registration="entered", client_id="mine", client_secret="its-secret", issuer=issuer
    )
    instance = await registry_fixture.instance(choice)
    assert (await registry_fixture.sign_in(instance)).state is READY
    [token] = await registry_fixture.program.log("token")
    assert (token["client_id"], token["method"]) == ("mine", "client_secret_basic")
    assert not await registry_fixture.program.log("register")
    grant = await registry_fixture.database.auth.get_grant(instance.grant_key)
    assert grant.client.secret is None


@pytest.mark.parametrize("registration", ["auto", "document"])
async def test_a_document_is_used_where_the_server_takes_it(
    registry_fixture: RegistryFixture, registration: str
) -> None:
    await registry_fixture.program.set(metadata={"client_id_metadata_document_supported": True})
    await registry_fixture.sign_in(
        await registry_fixture.instance(ChoiceDraft("oauth", registration=registration))
    )
    [token] = await registry_fixture.program.log("token")
    digest = issuer_digest(registry_fixture.program.origins["as1"])
    assert token["client_id"] == f"https://yard.example/oauth/client/{digest}.json"
    assert (
        await registry_fixture.database.auth.get_document_issuer(digest)
        == registry_fixture.program.origins["as1"]
    )
    assert not await registry_fixture.program.log("register")


async def test_dynamic_registration_is_used_where_the_admin_wants_it(
    registry_fixture: RegistryFixture,
) -> None:
    await registry_fixture.program.set(metadata={"client_id_metadata_document_supported": True})
    await registry_fixture.sign_in(
        await registry_fixture.instance(ChoiceDraft("oauth", registration="dynamic"))
    )
    assert len(await registry_fixture.program.log("register")) == 1


async def test_a_document_or_nothing(registry_fixture: RegistryFixture) -> None:
    instance = await registry_fixture.instance(ChoiceDraft("oauth", registration="document"))
    with pytest.raises(RegistrationFailed, match="does not support client id metadata documents"):
        await registry_fixture.sign_ins.begin(registry_fixture.ann.id, instance.id, "b")
    await registry_fixture.program.set(metadata={"client_id_metadata_document_supported": True})
    local = ClientIdentity("http://localhost:8420/ui/auth/mcp/callback")
    with pytest.raises(RegistrationFailed, match="no public address"):
        await registry_fixture.sign_ins.begin(registry_fixture.ann.id, instance.id, "b", local)
    assert not await registry_fixture.program.log("register")


async def test_dynamic_or_nothing(registry_fixture: RegistryFixture) -> None:
    await registry_fixture.program.set(
        metadata={"client_id_metadata_document_supported": True, "registration_endpoint": None}
    )
    instance = await registry_fixture.instance(ChoiceDraft("oauth", registration="dynamic"))
    with pytest.raises(RegistrationFailed, match="does not support dynamic client registration"):
        await registry_fixture.sign_ins.begin(registry_fixture.ann.id, instance.id, "b")


async def test_an_entered_client_is_not_shown_to_another_authorization_server(
    registry_fixture: RegistryFixture,
) -> None:
    await registry_fixture.program.set(entered={"mine": "s"})
    issuer = registry_fixture.program.origins["as1"]
    choice = ChoiceDraft("oauth", registration="entered", client_id="mine", client_secret="s", issuer=issuer)
    instance = await registry_fixture.instance(choice)
    await registry_fixture.sign_in(instance)
    await registry_fixture.program.change(servers=["as2"])
    with pytest.raises(RegistrationFailed, match="belongs to"):
        await registry_fixture.sign_ins.begin(registry_fixture.ann.id, instance.id, "b")


async def test_a_client_secret_waits_until_the_admin_names_the_issuer(
    registry_fixture: RegistryFixture,
) -> None:
    await registry_fixture.program.set(entered={"mine": "s"})
    choice = ChoiceDraft("oauth", registration="entered", client_id="mine", client_secret="s")
    instance = await registry_fixture.instance(choice)
    with pytest.raises(IssuerUnconfirmed):
        await registry_fixture.sign_ins.begin(registry_fixture.ann.id, instance.id, "b")
    state, reason = await registry_fixture.state(instance)
    issuer = registry_fixture.program.origins["as1"]
    assert (state, issuer in reason) == (PENDING, True)
    assert not await registry_fixture.program.log("token")
    server = (await registry_fixture.registry.get_instance(registry_fixture.ann.id, instance.id))[1]
    named_choice = replace(choice, id=server.choices[0].id, client_secret=None, issuer=issuer)
    draft = ServerDraft(server.name, server.url, private_addresses=True, choices=(named_choice,))
    await registry_fixture.registry.edit_server(server.id, draft)
    assert (await registry_fixture.sign_in(instance)).state is READY


# Scopes.


async def test_a_reconnect_requests_the_same_scopes(registry_fixture: RegistryFixture) -> None:
    await registry_fixture.program.set(challenge_scope="read")
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    await registry_fixture.program.change(challenge_scope="list")
    url = await registry_fixture.sign_ins.begin(registry_fixture.ann.id, instance.id, "b")
    assert URL(url).query["scope"] == "read list"


async def test_scopes_that_are_gone_do_not_lock_anybody_out(registry_fixture: RegistryFixture) -> None:
    await registry_fixture.program.set(challenge_scope="read")
    instance = await registry_fixture.instance()
    await registry_fixture.sign_in(instance)
    await registry_fixture.program.change(authorize_error="invalid_scope", challenge_scope="list")
    assert isinstance(
        await failure(registry_fixture, await begin_sign_in(registry_fixture, instance)), AuthorizationDenied
    )
    url = await registry_fixture.sign_ins.begin(registry_fixture.ann.id, instance.id, "b")
    assert URL(url).query["scope"] == "list"
    assert await registry_fixture.state(instance) == (READY, None)


async def test_scopes_that_the_admin_entered_are_the_ones(registry_fixture: RegistryFixture) -> None:
    await registry_fixture.program.set(challenge_scope="read")
    instance = await registry_fixture.instance(ChoiceDraft("oauth", scopes=("one", "two")))
    await registry_fixture.sign_in(instance)
    [authorize] = await registry_fixture.program.log("authorize")
    assert authorize["query"]["scope"] == "one two"


async def test_two_accounts_are_two_instances(registry_fixture: RegistryFixture) -> None:
    one = await registry_fixture.instance(slug="one")
    two = await registry_fixture.registry.create_instance(
        registry_fixture.ann.id, InstanceDraft(one.server_id, slug="two")
    )
    for instance, person in ((one, "private"), (two, "work")):
        await registry_fixture.program.change(person=person)
        await registry_fixture.sign_in(instance)
    tokens = {
        (await registry_fixture.database.auth.get_grant(instance.grant_key)).access_token
        for instance in (one, two)
    }
    assert len(tokens) == 2
