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


async def test_the_two_steps_may_happen_in_two_processes(oauth_fixture: OAuthFixture) -> None:
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target(), owner="ann session-1")
    answer = await oauth_fixture.browse(redirect.url)
    grant = await oauth_fixture.flow().finish(answer, owner="ann session-1")
    assert await oauth_fixture.storage.get_grant("k") == grant
    assert grant.expires_at == oauth_fixture.clock.now + 3600


async def test_the_url_has_the_parameters_of_oauth_2_1_and_mcp(
    oauth_fixture: OAuthFixture, query: Query
) -> None:
    await oauth_fixture.set(
        metadata={"authorization_endpoint": oauth_fixture.origins["as1"] + "/authorize?tenant=a%20b"}
    )
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target())
    query_params = query(redirect.url)
    assert query_params["tenant"] == "a b"
    assert query_params["response_type"] == "code"
    assert query_params["state"] == redirect.state
    assert query_params["resource"] == oauth_fixture.mcp
    assert query_params["code_challenge_method"] == "S256"
    assert len(query_params["code_challenge"]) == 43
    assert "scope" not in query_params


async def test_every_sign_in_has_its_own_state_and_verifier(
    oauth_fixture: OAuthFixture, query: Query
) -> None:
    query_params = [
        query((await oauth_fixture.flow().begin("k", oauth_fixture.target())).url) for _ in range(3)
    ]
    assert len({each["state"] for each in query_params}) == 3
    assert len({each["code_challenge"] for each in query_params}) == 3


# The answer.


async def test_an_answer_works_once(oauth_fixture: OAuthFixture) -> None:
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target())
    answer = await oauth_fixture.browse(redirect.url)
    await oauth_fixture.flow().finish(answer)
    with pytest.raises(AnswerRejected, match="unknown or has already been completed"):
        await oauth_fixture.flow().finish(answer)
    assert len(await oauth_fixture.log("token")) == 1


@pytest.mark.parametrize("answer", [{}, {"state": ""}, {"state": "made-up", "code": "x"}])
async def test_an_answer_to_nothing_is_rejected(oauth_fixture: OAuthFixture, answer: dict[str, str]) -> None:
    with pytest.raises(AnswerRejected):
        await oauth_fixture.flow().finish(AuthorizationResponse(REDIRECT, answer))


async def test_a_sign_in_can_be_finished_only_by_its_user(oauth_fixture: OAuthFixture) -> None:
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target(), owner="ann")
    answer = await oauth_fixture.browse(redirect.url)
    for owner in ("eve", "ann"):
        with pytest.raises(AnswerRejected):
            await oauth_fixture.flow().finish(answer, owner=owner)
    assert await oauth_fixture.storage.get_grant("k") is None
    assert not await oauth_fixture.log("token")


async def test_a_sign_in_must_end_within_an_hour(oauth_fixture: OAuthFixture) -> None:
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target())
    answer = await oauth_fixture.browse(redirect.url)
    oauth_fixture.clock.now += 3700
    with pytest.raises(AnswerRejected, match="too long ago"):
        await oauth_fixture.flow().finish(answer)


@pytest.mark.parametrize("error", ["access_denied", "server_error"])
async def test_a_refusal_is_told_with_its_name(oauth_fixture: OAuthFixture, error: str) -> None:
    await oauth_fixture.set(authorize_error=error)
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target())
    with pytest.raises(AuthorizationDenied, match="said no") as exc_info:
        await oauth_fixture.flow().finish(await oauth_fixture.browse(redirect.url))
    assert exc_info.value.code == error
    assert exc_info.value.hint
    assert await oauth_fixture.storage.get_grant("k") is None


async def test_an_answer_without_code_and_error_is_rejected(oauth_fixture: OAuthFixture) -> None:
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target())
    with pytest.raises(AnswerRejected, match="neither a code nor an error"):
        await oauth_fixture.flow().finish(
            AuthorizationResponse(
                redirect.redirect_uri, {"state": redirect.state, "iss": oauth_fixture.origins["as1"]}
            )
        )


# The redirect URI.


@pytest.mark.parametrize("path", ["", "/0123456789abcdef0123456789abcdef", "/{as2}", "/{as1}/", "/{as1}/x"])
async def test_a_response_at_another_redirect_address_is_refused_before_any_token_request(
    oauth_fixture: OAuthFixture, path: str
) -> None:
    await oauth_fixture.set(iss=None)
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target())
    digests = {name: issuer_digest(oauth_fixture.origins[name]) for name in ("as1", "as2")}
    response = await oauth_fixture.browse(redirect.url)
    assert response.address == f"{REDIRECT}/{digests['as1']}"
    with pytest.raises(AnswerRejected, match="redirect URI of another authorization server"):
        await oauth_fixture.flow().finish(replace(response, address=REDIRECT + path.format(**digests)))
    assert not await oauth_fixture.log("token")


async def test_a_document_of_an_earlier_version_needs_iss_even_where_it_was_not_promised(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.set(iss=None)
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target())
    pending = await oauth_fixture.storage.take_pending(redirect.state)
    await oauth_fixture.storage.put_pending(
        replace(pending, client=replace(pending.client, origin="document"))
    )
    with pytest.raises(AnswerRejected, match="lacks the required parameter 'iss'"):
        await oauth_fixture.flow().finish(await oauth_fixture.browse(redirect.url))
    assert not await oauth_fixture.log("token")


# RFC 9207.


@pytest.mark.parametrize("promised", [True, False])
async def test_the_right_issuer_is_accepted(oauth_fixture: OAuthFixture, promised: bool) -> None:
    await oauth_fixture.set(metadata={"authorization_response_iss_parameter_supported": promised})
    assert await oauth_fixture.call(oauth_fixture.provider())
    assert len(await oauth_fixture.log("token")) == 1


async def test_no_issuer_is_accepted_where_none_was_promised(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(iss=None)
    assert await oauth_fixture.call(oauth_fixture.provider())
    assert len(await oauth_fixture.log("token")) == 1


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
    oauth_fixture: OAuthFixture, promised: bool, iss: str | None, error: str | None
) -> None:
    as1 = oauth_fixture.origins["as1"]
    await oauth_fixture.set(
        iss=iss and iss.format(as1=as1, rest=as1.removeprefix("http")),
        metadata={"authorization_response_iss_parameter_supported": promised},
        authorize_error=error,
    )
    failure = await oauth_fixture.failure(oauth_fixture.provider())
    assert isinstance(failure, AnswerRejected)
    # Even its description of an error is not trusted.
    assert "said no" not in str(failure)
    assert not await oauth_fixture.log("token")
    assert await oauth_fixture.storage.get_grant(oauth_fixture.mcp) is None


# The exchange.


@pytest.mark.parametrize("trouble", [500, 502, 503, 429, 404, "drop"])
async def test_a_token_endpoint_in_trouble_leaves_nothing_half_stored(
    oauth_fixture: OAuthFixture, trouble: Any
) -> None:
    await oauth_fixture.set(token_trouble=[trouble])
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target())
    with pytest.raises(AuthUnavailable):
        await oauth_fixture.flow().finish(await oauth_fixture.browse(redirect.url))
    assert await oauth_fixture.storage.get_grant("k") is None
    assert await oauth_fixture.storage.take_pending(redirect.state) is None


async def test_a_code_that_is_refused_is_told_without_the_code(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(token_trouble=["invalid_grant"])
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target())
    answer = await oauth_fixture.browse(redirect.url)
    with pytest.raises(TokenRefused, match="invalid_grant") as exc_info:
        await oauth_fixture.flow().finish(answer)
    assert "no good" in exc_info.value.cause
    assert answer.params["code"] not in str(exc_info.value)


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
async def test_a_token_that_cannot_be_sent_is_refused(
    oauth_fixture: OAuthFixture, answer: dict[str, Any]
) -> None:
    await oauth_fixture.set(token_answer=answer)
    assert isinstance(await oauth_fixture.failure(oauth_fixture.provider()), TokenRefused)
    assert await oauth_fixture.storage.get_grant(oauth_fixture.mcp) is None


async def test_a_refusal_that_comes_with_200_is_told_as_one(oauth_fixture: OAuthFixture) -> None:
    token_error = {
        "error": "bad_verification_code",
        "error_description": "it has run out",
        "access_token": None,
    }
    await oauth_fixture.set(token_answer=token_error)
    error = await oauth_fixture.failure(oauth_fixture.provider())
    assert isinstance(error, TokenRefused)
    assert error.code == "bad_verification_code"
    assert "it has run out" in error.cause


@pytest.mark.parametrize(
    ("expires_in", "life"),
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
    oauth_fixture: OAuthFixture, expires_in: Any, life: float | None
) -> None:
    await oauth_fixture.set(token_answer={"expires_in": expires_in})
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target())
    grant = await oauth_fixture.flow().finish(await oauth_fixture.browse(redirect.url))
    assert grant.expires_at == (None if life is None else oauth_fixture.clock.now + life)


# Scopes.


@pytest.mark.parametrize(
    ("settings", "configured_scopes", "expected_scope"),
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
    oauth_fixture: OAuthFixture,
    query: Query,
    settings: dict[str, Any],
    configured_scopes: tuple[str, ...],
    expected_scope: str | None,
) -> None:
    await oauth_fixture.set(**settings)
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target(scopes=configured_scopes))
    query_params = query(redirect.url)
    assert query_params.get("scope") == expected_scope
    assert query_params.get("prompt") == (
        "consent" if expected_scope and "offline" in expected_scope else None
    )


async def test_a_challenge_that_is_known_is_not_asked_for_again(
    oauth_fixture: OAuthFixture, query: Query
) -> None:
    challenge = parse_challenge(401, 'Bearer scope="known"')
    redirect = await oauth_fixture.flow().begin("k", oauth_fixture.target(), challenge=challenge)
    assert query(redirect.url)["scope"] == "known"
    assert not await oauth_fixture.log("call")


async def test_a_client_is_registered_again_for_additional_scopes(
    oauth_fixture: OAuthFixture,
) -> None:
    await oauth_fixture.set(resource_document={"scopes_supported": ["a", "b"]}, challenge_scope="a")
    await oauth_fixture.flow().begin("k", oauth_fixture.target())
    await oauth_fixture.flow().begin("k", oauth_fixture.target(), more_scopes=("b",))
    await oauth_fixture.flow().begin("k", oauth_fixture.target(), more_scopes=("c",))
    assert [entry["asked"]["scope"] for entry in await oauth_fixture.log("register")] == ["a b", "a b c"]


# Secrets.


async def test_no_secret_shows_in_a_repr(oauth_fixture: OAuthFixture) -> None:
    await oauth_fixture.set(entered={"mine": "the-secret"})
    target = oauth_fixture.target(client_id="mine", client_secret="the-secret", private_key="the-key")
    flow: SignInFlow = oauth_fixture.flow()
    redirect = await flow.begin("k", target)
    pending = await oauth_fixture.storage.take_pending(redirect.state)
    await oauth_fixture.storage.put_pending(pending)
    grant = await flow.finish(await oauth_fixture.browse(redirect.url))
    text = repr([target, redirect, pending, grant, replace(grant.client, secret="the-secret")])
    hidden = [
        redirect.state,
        pending.verifier,
        grant.access_token,
        grant.refresh_token,
        "the-secret",
        "the-key",
    ]
    assert not [secret for secret in hidden if secret in text]
    # The client that the operator entered is not copied into the stored data of a user.
    assert grant.client.secret is None


def test_every_failure_makes_a_connection_ask_for_a_sign_in() -> None:
    assert issubclass(AuthError, SignInNeeded)
    assert not issubclass(AuthUnavailable, SignInNeeded)
