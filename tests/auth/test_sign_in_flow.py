from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.auth.conftest import REDIRECT

from toolyard.auth.errors import (
    AnswerRejected,
    AuthError,
    AuthorizationDenied,
    AuthUnavailable,
    TokenRefused,
)
from toolyard.auth.provider import parse_challenge
from toolyard.auth.sign_in_flow import AuthorizationResponse, SignInFlow
from toolyard.auth.storage import issuer_digest
from toolyard.errors import SignInNeeded

if TYPE_CHECKING:
    from tests.auth.conftest import OAuthFixture

Query = Callable[[str], dict[str, str]]


async def test_the_two_steps_may_happen_in_two_processes(world: OAuthFixture) -> None:
    started = await world.flow().begin("k", world.target(), owner="ann session-1")
    answer = await world.browse(started.url)
    grant = await world.flow().finish(answer, owner="ann session-1")
    assert await world.storage.get_grant("k") == grant
    assert grant.expires_at == world.clock.now + 3600


async def test_the_url_carries_what_oauth_2_1_and_mcp_ask_for(world: OAuthFixture, query: Query) -> None:
    await world.set(metadata={"authorization_endpoint": world.origins["as1"] + "/authorize?tenant=a%20b"})
    started = await world.flow().begin("k", world.target())
    sent = query(started.url)
    assert sent["tenant"] == "a b"
    assert sent["response_type"] == "code"
    assert sent["state"] == started.state
    assert sent["resource"] == world.mcp
    assert sent["code_challenge_method"] == "S256"
    assert len(sent["code_challenge"]) == 43
    assert "scope" not in sent


async def test_every_sign_in_has_its_own_state_and_verifier(world: OAuthFixture, query: Query) -> None:
    sent = [query((await world.flow().begin("k", world.target())).url) for _ in range(3)]
    assert len({each["state"] for each in sent}) == 3
    assert len({each["code_challenge"] for each in sent}) == 3


# The answer.


async def test_an_answer_works_once(world: OAuthFixture) -> None:
    started = await world.flow().begin("k", world.target())
    answer = await world.browse(started.url)
    await world.flow().finish(answer)
    with pytest.raises(AnswerRejected, match="unknown or has already been completed"):
        await world.flow().finish(answer)
    assert len(await world.log("token")) == 1


@pytest.mark.parametrize("answer", [{}, {"state": ""}, {"state": "made-up", "code": "x"}])
async def test_an_answer_to_nothing_is_rejected(world: OAuthFixture, answer: dict[str, str]) -> None:
    with pytest.raises(AnswerRejected):
        await world.flow().finish(AuthorizationResponse(REDIRECT, answer))


async def test_only_who_began_a_sign_in_can_finish_it(world: OAuthFixture) -> None:
    started = await world.flow().begin("k", world.target(), owner="ann")
    answer = await world.browse(started.url)
    for owner in ("eve", "ann"):
        with pytest.raises(AnswerRejected):
            await world.flow().finish(answer, owner=owner)
    assert await world.storage.get_grant("k") is None
    assert not await world.log("token")


async def test_a_sign_in_must_end_within_an_hour(world: OAuthFixture) -> None:
    started = await world.flow().begin("k", world.target())
    answer = await world.browse(started.url)
    world.clock.now += 3700
    with pytest.raises(AnswerRejected, match="too long ago"):
        await world.flow().finish(answer)


@pytest.mark.parametrize("error", ["access_denied", "server_error"])
async def test_a_refusal_is_told_with_its_name(world: OAuthFixture, error: str) -> None:
    await world.set(authorize_error=error)
    started = await world.flow().begin("k", world.target())
    with pytest.raises(AuthorizationDenied, match="said no") as caught:
        await world.flow().finish(await world.browse(started.url))
    assert caught.value.code == error
    assert caught.value.hint
    assert await world.storage.get_grant("k") is None


async def test_an_answer_without_code_and_error_is_rejected(world: OAuthFixture) -> None:
    started = await world.flow().begin("k", world.target())
    with pytest.raises(AnswerRejected, match="neither code nor error"):
        await world.flow().finish(
            AuthorizationResponse(started.redirect_uri, {"state": started.state, "iss": world.origins["as1"]})
        )


# The redirect address.


@pytest.mark.parametrize("path", ["", "/0123456789abcdef0123456789abcdef", "/{as2}", "/{as1}/", "/{as1}/x"])
async def test_a_response_at_another_redirect_address_is_refused_before_any_token_request(
    world: OAuthFixture, path: str
) -> None:
    await world.set(iss=None)
    started = await world.flow().begin("k", world.target())
    digests = {name: issuer_digest(world.origins[name]) for name in ("as1", "as2")}
    response = await world.browse(started.url)
    assert response.address == f"{REDIRECT}/{digests['as1']}"
    with pytest.raises(AnswerRejected, match="redirect address of another authorization server"):
        await world.flow().finish(replace(response, address=REDIRECT + path.format(**digests)))
    assert not await world.log("token")


async def test_a_document_of_an_earlier_version_needs_iss_even_where_it_was_not_promised(
    world: OAuthFixture,
) -> None:
    await world.set(iss=None)
    started = await world.flow().begin("k", world.target())
    pending = await world.storage.take_pending(started.state)
    await world.storage.put_pending(replace(pending, client=replace(pending.client, origin="document")))
    with pytest.raises(AnswerRejected, match="lacks the required parameter 'iss'"):
        await world.flow().finish(await world.browse(started.url))
    assert not await world.log("token")


# RFC 9207.


@pytest.mark.parametrize("promised", [True, False])
async def test_the_right_issuer_is_accepted(world: OAuthFixture, promised: bool) -> None:
    await world.set(metadata={"authorization_response_iss_parameter_supported": promised})
    await world.call(world.provider())


async def test_no_issuer_is_accepted_where_none_was_promised(world: OAuthFixture) -> None:
    await world.set(iss=None)
    await world.call(world.provider())


@pytest.mark.parametrize(
    ("promised", "iss"),
    [
        (True, None),
        (True, "https://evil.example"),
        (False, "https://evil.example"),
        (True, "{as1}/"),
        (True, "HTTP{rest}"),
        (True, ""),
    ],
)
@pytest.mark.parametrize("error", [None, "access_denied"])
async def test_another_issuer_is_refused_before_anything_else(
    world: OAuthFixture, promised: bool, iss: str | None, error: str | None
) -> None:
    as1 = world.origins["as1"]
    await world.set(
        iss=iss and iss.format(as1=as1, rest=as1.removeprefix("http")),
        metadata={"authorization_response_iss_parameter_supported": promised},
        authorize_error=error,
    )
    failed = await world.failure(world.provider())
    assert isinstance(failed, AnswerRejected)
    # Even its description of an error is not trusted.
    assert "said no" not in str(failed)
    assert not await world.log("token")
    assert await world.storage.get_grant(world.mcp) is None


# The exchange.


@pytest.mark.parametrize("trouble", [500, 502, 503, 429, 404, "drop"])
async def test_a_token_endpoint_in_trouble_leaves_nothing_half_stored(
    world: OAuthFixture, trouble: Any
) -> None:
    await world.set(token_trouble=[trouble])
    started = await world.flow().begin("k", world.target())
    with pytest.raises(AuthUnavailable):
        await world.flow().finish(await world.browse(started.url))
    assert await world.storage.get_grant("k") is None
    assert await world.storage.take_pending(started.state) is None


async def test_a_code_that_is_refused_is_told_without_the_code(world: OAuthFixture) -> None:
    await world.set(token_trouble=["invalid_grant"])
    started = await world.flow().begin("k", world.target())
    answer = await world.browse(started.url)
    with pytest.raises(TokenRefused, match="invalid_grant") as caught:
        await world.flow().finish(answer)
    assert "no good" in caught.value.cause
    assert answer.params["code"] not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        {"access_token": None},
        {"access_token": ""},
        {"access_token": 5},
        {"access_token": "with space"},
        {"access_token": "with\r\nX-Evil: 1"},
        {"token_type": "DPoP"},
    ],
)
async def test_a_token_that_cannot_be_sent_is_refused(world: OAuthFixture, answer: dict[str, Any]) -> None:
    await world.set(token_answer=answer)
    assert isinstance(await world.failure(world.provider()), TokenRefused)
    assert await world.storage.get_grant(world.mcp) is None


async def test_a_refusal_that_comes_with_200_is_told_as_one(world: OAuthFixture) -> None:
    said = {"error": "bad_verification_code", "error_description": "it has run out", "access_token": None}
    await world.set(token_answer=said)
    error = await world.failure(world.provider())
    assert isinstance(error, TokenRefused)
    assert error.code == "bad_verification_code"
    assert "it has run out" in error.cause


@pytest.mark.parametrize(
    ("said", "life"),
    [
        (60, 60),
        ("60", 60),
        (60.5, 60.5),
        (0, 0),
        (None, None),
        (-1, None),
        ("soon", None),
        ([], None),
        (1e300, 315360000),
    ],
)
async def test_the_expiry_is_absolute_and_read_kindly(
    world: OAuthFixture, said: Any, life: float | None
) -> None:
    await world.set(token_answer={"expires_in": said})
    started = await world.flow().begin("k", world.target())
    grant = await world.flow().finish(await world.browse(started.url))
    assert grant.expires_at == (None if life is None else world.clock.now + life)


# Scopes.


@pytest.mark.parametrize(
    ("settings", "entered", "asked"),
    [
        ({"challenge_scope": "a b", "resource_document": {"scopes_supported": ["c"]}}, (), "a b"),
        ({"resource_document": {"scopes_supported": ["c", "d"]}}, (), "c d"),
        ({}, (), None),
        ({"resource_document": {"scopes_supported": []}}, (), None),
        ({"challenge_scope": "a"}, ("mine",), "mine"),
        (
            {"challenge_scope": "a", "metadata": {"scopes_supported": ["offline_access", "a"]}},
            (),
            "a offline_access",
        ),
        ({"challenge_scope": "a", "metadata": {"scopes_supported": ["a"]}}, (), "a"),
        ({"challenge_scope": "a offline_access", "metadata": {"scopes_supported": ["a"]}}, (), "a"),
        ({"metadata": {"scopes_supported": ["offline_access"]}}, (), None),
    ],
)
async def test_scopes_come_from_the_best_source(
    world: OAuthFixture, query: Query, settings: dict[str, Any], entered: tuple[str, ...], asked: str | None
) -> None:
    await world.set(**settings)
    started = await world.flow().begin("k", world.target(scopes=entered))
    sent = query(started.url)
    assert sent.get("scope") == asked
    assert sent.get("prompt") == ("consent" if asked and "offline" in asked else None)


async def test_a_challenge_that_is_known_is_not_asked_for_again(world: OAuthFixture, query: Query) -> None:
    challenge = parse_challenge(401, 'Bearer scope="known"')
    started = await world.flow().begin("k", world.target(), challenge=challenge)
    assert query(started.url)["scope"] == "known"
    assert not await world.log("call")


async def test_a_client_is_registered_anew_for_scopes_that_it_was_not_registered_for(
    world: OAuthFixture,
) -> None:
    await world.set(resource_document={"scopes_supported": ["a", "b"]}, challenge_scope="a")
    await world.flow().begin("k", world.target())
    await world.flow().begin("k", world.target(), more_scopes=("b",))
    await world.flow().begin("k", world.target(), more_scopes=("c",))
    assert [entry["asked"]["scope"] for entry in await world.log("register")] == ["a b", "a b c"]


# Secrets.


async def test_no_secret_shows_in_a_repr(world: OAuthFixture) -> None:
    await world.set(entered={"mine": "the-secret"})
    target = world.target(client_id="mine", client_secret="the-secret", private_key="the-key")
    flow: SignInFlow = world.flow()
    started = await flow.begin("k", target)
    pending = await world.storage.take_pending(started.state)
    await world.storage.put_pending(pending)
    grant = await flow.finish(await world.browse(started.url))
    shown = repr([target, started, pending, grant, replace(grant.client, secret="the-secret")])
    hidden = [
        started.state,
        pending.verifier,
        grant.access_token,
        grant.refresh_token,
        "the-secret",
        "the-key",
    ]
    assert not [secret for secret in hidden if secret in shown]
    # The client that the operator entered is not copied into the stored data of a user.
    assert grant.client.secret is None


def test_every_failure_makes_a_connection_ask_for_a_sign_in() -> None:
    assert issubclass(AuthError, SignInNeeded)
    assert not issubclass(AuthUnavailable, SignInNeeded)
