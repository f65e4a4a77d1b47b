"""The gateway as a protected resource: access tokens of the identity provider, true ones and others."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web
from joserfc.jwk import RSAKey
from tests.accounts.hostile_oidc_provider import CLIENT, SECRET, HostileOidcProvider
from tests.web.conftest import HttpReply, InProcessApp, Opening

from toolyard.accounts.effective_role import effective_role
from toolyard.types.account import Role

REQUEST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@dataclass
class ProtectedSite:
    """A Toolyard whose people have accounts at a provider that can lie."""

    local: InProcessApp
    forger: HostileOidcProvider

    @property
    def url(self) -> str:
        return self.local.url

    def token(self, **claims: Any) -> str:
        """An access token; what is given goes over what is right, None leaves a claim out."""
        now = int(time.time())
        right = {
            "iss": self.forger.issuer,
            "sub": "ann",
            "aud": f"{self.url}/mcp",
            "client_id": "some-client",
            "iat": now,
            "exp": now + 300,
        }
        return self.forger._signed({key: one for key, one in (right | claims).items() if one is not None})

    async def come(self, token: str | None, path: str = "/mcp") -> HttpReply:
        headers = ACCEPT if token is None else {**ACCEPT, "Authorization": f"Bearer {token}"}
        return await self.local.client(**headers).post(path, REQUEST)


@pytest.fixture
async def resource(open_site: Opening, demo: dict[str, Any]) -> AsyncIterator[ProtectedSite]:
    forger = HostileOidcProvider(header={"alg": "RS256", "kid": "one", "typ": "at+jwt"})
    runner = web.ServerRunner(web.Server(forger.answer), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    forger.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
    local = await open_site(
        {"demo": demo},
        people_mode="oidc",
        oidc_issuer=forger.issuer,
        oidc_client_id=CLIENT,
        oidc_client_secret=SECRET,
        admins=["ann@example.org"],
    )
    yield ProtectedSite(local, forger)
    await runner.cleanup()


# Being found.


@pytest.mark.parametrize("path", ["/mcp", "/mcp/agents/a%20b", "/mcp/servers/demo?mode=meta"])
async def test_a_request_without_a_token_gets_the_address_of_the_issuer(
    resource: ProtectedSite, path: str
) -> None:
    answer = await resource.come(None, path)
    assert answer.status == 401
    plain = path.partition("?")[0]
    where = f"{resource.url}/.well-known/oauth-protected-resource{plain}"
    assert answer.headers["WWW-Authenticate"] == f'Bearer resource_metadata="{where}"'
    response = await resource.local.client().get(where.removeprefix(resource.url))
    assert response.status == 200
    assert response.headers["Cache-Control"] == "public, max-age=300"
    assert response.json == {
        "resource": f"{resource.url}{plain}",
        "authorization_servers": [resource.forger.issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": "Toolyard",
    }


async def test_the_root_has_a_document_too_and_nothing_else_has(resource: ProtectedSite) -> None:
    client = resource.local.client()
    response = await client.get("/.well-known/oauth-protected-resource")
    assert response.json["resource"] == resource.url
    for path in ("/api/v1", "/ui", "/mcpx", "/x/mcp"):
        assert (await client.get(f"/.well-known/oauth-protected-resource{path}")).status == 404, path


async def test_where_no_provider_is_nothing_is_promised(password_site: InProcessApp) -> None:
    client = password_site.client(**ACCEPT)
    assert (await client.get("/.well-known/oauth-protected-resource/mcp")).status == 404
    answer = await client.post("/mcp", REQUEST)
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    signed_client = password_site.client(**ACCEPT, Authorization="Bearer a.b.c")
    assert (await signed_client.post("/mcp", REQUEST)).status == 401


# Being let in.


@pytest.mark.parametrize("audience", ["{}/mcp", "{}", "{}/", ["https://other.example", "{}/mcp"]], ids=str)
async def test_a_person_of_the_provider_is_let_in(resource: ProtectedSite, audience: Any) -> None:
    audience_claim = (
        audience.format(resource.url)
        if isinstance(audience, str)
        else [one.format(resource.url) for one in audience]
    )
    assert (await resource.come(resource.token(aud=audience_claim))).status == 200
    (user,) = await resource.local.services.database.accounts.list_users()
    assert (user.name, user.role, user.subject) == ("ann", Role.USER, f"{resource.forger.issuer}|ann")
    assert (await resource.come(resource.token(preferred_username="other"))).status == 200
    assert len(await resource.local.services.database.accounts.list_users()) == 1


async def test_a_token_for_one_address_opens_no_other(resource: ProtectedSite) -> None:
    token = resource.token(aud=f"{resource.url}/mcp/servers/demo")
    assert (await resource.come(token, "/mcp/servers/demo")).status == 200
    for path in ("/mcp", "/mcp/servers/other", "/mcp/servers/demo/x"):
        assert (await resource.come(token, path)).status == 401, path


async def test_the_audience_is_checked_for_every_request(resource: ProtectedSite) -> None:
    """The audience depends on the Host header, so an earlier decision does not hold for the next."""
    token = resource.token()
    assert (await resource.come(token)).status == 200
    other = {
        **ACCEPT,
        "Authorization": f"Bearer {token}",
        "Host": resource.url.replace("http://127.0.0.1", "localhost"),
    }
    assert (await resource.local.client(**other).post("/mcp", REQUEST)).status == 401
    assert (await resource.come(token)).status == 200


async def test_it_is_good_for_the_gateway_alone(resource: ProtectedSite) -> None:
    token = resource.token()
    client = resource.local.client(Authorization=f"Bearer {token}")
    for path in ("/api/v1/me", "/api/v1/tools", "/metrics"):
        assert (await client.get(path)).status == 401, path
    assert (await client.get("/ui/")).status == 403
    assert (await resource.local.client(**ACCEPT).post(f"/mcp?access_token={token}", REQUEST)).status == 401


async def test_known_users_keep_role_and_status(resource: ProtectedSite) -> None:
    people = resource.local.services.database.accounts
    ann = await people.add_user("Ann", Role.USER, subject=f"{resource.forger.issuer}|ann")
    await people.set_verified_email(ann.id, "ann@example.org")
    assert (await resource.come(resource.token())).status == 200
    user = await people.get_user(ann.id)
    assert user is not None
    role = effective_role(user, resource.local.services.settings)
    assert (user.name, role) == ("Ann", Role.ADMIN), "a token without the email address demotes nobody"
    await people.set_disabled(ann.id, True)
    answer = await resource.come(resource.token(jti="2"))
    assert (answer.status, "disabled" in answer.text) == (403, True)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "https://other.example/mcp"},
        {"aud": CLIENT},
        {"aud": None},
        {"aud": []},
        {"aud": 5},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"exp": -120},
        {"exp": None},
        {"exp": "never"},
        {"nbf": 3600},
        {"nbf": "soon"},
        {"iat": 3600},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
        {"sub": "x" * 300},
        {"sub": "some-client"},
        {"azp": "ann"},
        {"cnf": {"jkt": "x"}},
    ],
    ids=lambda claims: str(claims)[:40],
)
async def test_a_token_with_a_wrong_claim_is_refused(resource: ProtectedSite, claims: dict[str, Any]) -> None:
    # Numbers are seconds from now: names of tests must be the same in every process that collects them.
    now = int(time.time())
    times = {
        name: now + one for name, one in claims.items() if name in ("exp", "nbf", "iat") and type(one) is int
    }
    answer = await resource.come(resource.token(**{**claims, **times}))
    assert answer.status == 401
    www_authenticate = answer.headers["WWW-Authenticate"]
    assert f'resource_metadata="{resource.url}/.well-known/oauth-protected-resource/mcp"' in www_authenticate
    assert 'error="invalid_token"' in www_authenticate
    assert await resource.local.services.database.accounts.list_users() == []


def _stolen(forger: HostileOidcProvider) -> None:
    forger.sign_with = RSAKey.generate_key(2048, {"kid": "one"})


def _nothing(forger: HostileOidcProvider) -> None:
    forger.header = {"alg": "none", "kid": "one"}


def _our_secret(forger: HostileOidcProvider) -> None:
    forger.header = {"alg": "HS256"}
    forger.sign_with = SECRET.encode()


def _own_key(forger: HostileOidcProvider) -> None:
    forger.sign_with = RSAKey.generate_key(2048, {"kid": "one"})
    forger.header["jwk"] = forger.sign_with.as_dict(private=False)


def _unknown(forger: HostileOidcProvider) -> None:
    forger.header["kid"] = "another"


def _other_kind(forger: HostileOidcProvider) -> None:
    forger.header["typ"] = "logout+jwt"


@pytest.mark.parametrize("forge", [_stolen, _nothing, _our_secret, _own_key, _unknown, _other_kind])
async def test_a_token_with_a_foreign_signature_is_refused(
    resource: ProtectedSite, forge: Callable[[HostileOidcProvider], None]
) -> None:
    forge(resource.forger)
    assert (await resource.come(resource.token())).status == 401
    assert await resource.local.services.database.accounts.list_users() == []


async def test_a_public_key_is_not_accepted_as_a_secret(resource: ProtectedSite) -> None:
    """Signed symmetrically, with the provider's public key as the secret."""
    _, claims, _ = resource.token().split(".")
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "one"}).encode()).rstrip(b"=").decode()
    for key in (resource.forger.key.as_pem(private=False), resource.forger.key.as_der(private=False)):
        proof = hmac.new(key, f"{head}.{claims}".encode(), "sha256").digest()
        signature = base64.urlsafe_b64encode(proof).rstrip(b"=").decode()
        assert (await resource.come(f"{head}.{claims}.{signature}")).status == 401


@pytest.mark.parametrize(
    "token", ["x", "a.b.c", "..", "e30.e30.", "x" * 20_000, "a.b." + "c" * 20_000, "é.b.c"]
)
async def test_malformed_tokens_are_refused(resource: ProtectedSite, token: str) -> None:
    assert (await resource.come(token.encode().decode("latin-1"))).status == 401


async def test_a_provider_that_cannot_be_asked_is_said(resource: ProtectedSite) -> None:
    token = resource.token()
    resource.forger.metadata = {"jwks_uri": "http://127.0.0.1:1/nothing"}
    answer = await resource.come(token)
    assert answer.status == 503
    assert "key set" in answer.text


async def test_our_own_tokens_count_as_ever(resource: ProtectedSite) -> None:
    from tests.web.conftest import EVERY_RIGHT

    people = resource.local.services.database.accounts
    ann = await people.add_user("Ann", Role.ADMIN, subject=f"{resource.forger.issuer}|ann")
    _, text = await resource.local.services.people.create_token(ann, "mine", EVERY_RIGHT, None)
    assert (await resource.come(text)).status == 200
    assert (await resource.come("ty_wrong")).status == 401
