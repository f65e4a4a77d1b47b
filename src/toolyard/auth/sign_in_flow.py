"""Signing in, in two steps that may happen in two processes; and in one, where no person is needed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import quote, urlencode

from toolyard.auth.address_policy import AddressPolicy
from toolyard.auth.authorization_response import AuthorizationResponse
from toolyard.auth.client_registration import get_or_register_client
from toolyard.auth.discovery import DiscoveryResult, discover_authorization_server, probe_for_challenge
from toolyard.auth.errors import (
    AnswerRejected,
    ClientForgotten,
    DiscoveryFailed,
    PkceMissing,
)
from toolyard.auth.oauth_http import OAuthHttpClient
from toolyard.auth.provider import Challenge
from toolyard.auth.records import OAuthClient, OAuthGrant, PendingSignIn
from toolyard.auth.scopes import choose_scopes
from toolyard.auth.sign_in_target import ClientIdentity, SignInTarget
from toolyard.auth.storage import AuthStorage
from toolyard.auth.token_endpoint import build_grant, request_tokens
from toolyard.net import OutboundHttp
from toolyard.types.clock import is_recent

__all__ = ["AuthorizationRequest", "SignInFlow"]

_MAX_SIGN_IN_SECONDS = 3600.0
"""Seconds between the two steps."""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """A sign-in that was begun: send the person to ``url``."""

    url: str = field(repr=False)
    state: str = field(repr=False)
    issuer: str = ""
    requires_iss_parameter: bool = False
    """Whether the answer must name the issuer: a bare code is then not enough to finish."""
    redirect_uri: str = ""
    """The only address at which the answer may arrive."""


class SignInFlow:
    """Signs in to servers and keeps what comes of it. Nothing is kept of a sign-in that fails."""

    def __init__(
        self,
        net: OutboundHttp,
        storage: AuthStorage,
        client_identity: ClientIdentity,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._net = net
        self._storage = storage
        self._client_identity = client_identity
        self._clock = clock

    async def begin(
        self,
        key: str,
        target: SignInTarget,
        *,
        challenge: Challenge | None = None,
        more_scopes: tuple[str, ...] = (),
        owner: str = "",
        client_identity: ClientIdentity | None = None,
    ) -> AuthorizationRequest:
        """The first step: where to send the person. What the second step needs is stored under the state.

        ``challenge`` is how the server refused, if it was asked already; ``owner`` names who begins, and must
        be the same at the end; ``ourselves`` is who we are this time, where that depends on the address by
        which the person reached us. Raises AuthError or AuthUnavailable.
        """
        who = client_identity or self._client_identity
        asker = OAuthHttpClient(self._net, target.address_policy)
        challenge = challenge or await probe_for_challenge(asker, target)
        found = await self._discover_server(asker, key, target, challenge)
        endpoint = _require_authorization_endpoint(found, legacy=target.oauth.legacy_discovery)
        scopes = choose_scopes(target.oauth.scopes, challenge, found, more_scopes)
        client = await get_or_register_client(asker, self._storage, target, who, found, scopes, self._clock())
        pending = PendingSignIn(
            state=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            key=key,
            owner=owner,
            client=client,
            token_endpoint=found.server.token_endpoint,
            iss_promised=found.server.sends_iss_parameter,
            resource=found.resource,
            scopes=scopes,
            server_url=target.url,
            private_addresses=target.private_addresses,
            began_at=self._clock(),
        )
        await self._storage.put_pending(pending)
        url = _build_authorization_url(endpoint, pending)
        return AuthorizationRequest(
            url, pending.state, client.issuer, pending.iss_promised, client.redirect_uri
        )

    async def finish(self, response: AuthorizationResponse, *, owner: str = "") -> OAuthGrant:
        """Redeem an authorization response: the second step. Each state works once.

        Raises AnswerRejected, AuthorizationDenied, TokenRefused, ClientForgotten or AuthUnavailable.
        """
        return await self.complete(await self.take_pending(response.params, owner=owner), response)

    async def take_pending(self, params: Mapping[str, str], *, owner: str = "") -> PendingSignIn:
        """What was begun, handed out once, if this answer belongs to it and comes from its owner.

        Raises AnswerRejected.
        """
        if not (state := params.get("state")):
            raise AnswerRejected("the answer does not say which sign-in it belongs to", hint="begin it again")
        pending = await self._storage.take_pending(state)
        if pending is None:
            raise AnswerRejected("this sign-in is unknown or was finished before", hint="begin it again")
        if not hmac.compare_digest(pending.owner.encode(), owner.encode()):
            raise AnswerRejected("this sign-in was begun by somebody else", hint="begin it again")
        if not is_recent(pending.began_at, self._clock(), _MAX_SIGN_IN_SECONDS):
            raise AnswerRejected("this sign-in was begun too long ago", hint="begin it again")
        return pending

    async def complete(self, pending: PendingSignIn, response: AuthorizationResponse) -> OAuthGrant:
        """Redeem the code of a response and keep the tokens. Raises what ``finish`` raises."""
        grant = await self._exchange_code(pending, response.extract_code(pending))
        await self._storage.put_grant(pending.key, grant)
        await self._bind_entered_client(pending.server_url, grant.client)
        return grant

    async def sign_in_as_client(
        self, key: str, target: SignInTarget, *, challenge: Challenge | None = None
    ) -> OAuthGrant:
        """Sign in by ourselves, with the grant client_credentials. Raises AuthError or AuthUnavailable."""
        asker = OAuthHttpClient(self._net, target.address_policy)
        challenge = challenge or await probe_for_challenge(asker, target)
        found = await self._discover_server(asker, key, target, challenge)
        now = self._clock()
        listed = replace(found, server=replace(found.server, scopes_supported=None))
        scopes = choose_scopes(target.oauth.scopes, challenge, listed)
        client = await get_or_register_client(
            asker, self._storage, target, self._client_identity, found, scopes, now
        )
        form = {"grant_type": "client_credentials"}
        if scopes:
            form["scope"] = " ".join(scopes)
        if found.resource is not None:
            form["resource"] = found.resource
        endpoint = found.server.token_endpoint
        tokens = await request_tokens(asker, endpoint, client, form, now, private_key=target.private_key)
        grant = build_grant(
            tokens, target.url, _without_entered_secret(client), endpoint, found.resource, scopes
        )
        await self._storage.put_grant(key, grant)
        await self._bind_entered_client(target.url, client)
        return grant

    async def find_issuer(self, key: str, target: SignInTarget) -> str:
        """Return the issuer that the server names. Raises AuthError or AuthUnavailable."""
        asker = OAuthHttpClient(self._net, target.address_policy)
        found = await self._discover_server(asker, key, target, await probe_for_challenge(asker, target))
        return found.server.issuer

    async def _discover_server(
        self, http_client: OAuthHttpClient, key: str, target: SignInTarget, challenge: Challenge | None
    ) -> DiscoveryResult:
        # What is there and cannot be read is replaced by what comes of this.
        kept = (await self._storage.get_grants((key,))).get(key)
        prefer = target.oauth.issuer or (kept.issuer if kept is not None else None)
        return await discover_authorization_server(http_client, target, challenge, preferred_issuer=prefer)

    async def _exchange_code(self, pending: PendingSignIn, code: str) -> OAuthGrant:
        asker = OAuthHttpClient(self._net, AddressPolicy(pending.server_url, pending.private_addresses))
        client = pending.client
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": client.redirect_uri,
            "code_verifier": pending.verifier,
        }
        if pending.resource is not None:
            form["resource"] = pending.resource
        try:
            tokens = await request_tokens(asker, pending.token_endpoint, client, form, self._clock())
        except ClientForgotten:
            await self._storage.drop_client(client)
            raise
        stored = _without_entered_secret(client)
        return build_grant(
            tokens, pending.server_url, stored, pending.token_endpoint, pending.resource, pending.scopes
        )

    async def _bind_entered_client(self, server_url: str, client: OAuthClient) -> None:
        if client.origin == "entered":
            await self._storage.bind_issuer(server_url, client.client_id, client.issuer)


def _without_entered_secret(client: OAuthClient) -> OAuthClient:
    """What the operator entered stays where it was entered, and is read there again for a refresh."""
    return replace(client, secret=None) if client.origin == "entered" else client


def _require_authorization_endpoint(discovery: DiscoveryResult, *, legacy: bool) -> str:
    server = discovery.server
    if server.authorization_endpoint is None:
        raise DiscoveryFailed(
            f"the authorization server {server.issuer} has no page where a person could sign in",
            hint="it may be meant for programs: use the grant client_credentials",
        )
    unsaid = server.code_challenge_methods is None
    if (unsaid and not legacy) or (not unsaid and "S256" not in (server.code_challenge_methods or ())):
        raise PkceMissing(
            f"the authorization server {server.issuer} does not offer PKCE with S256, which MCP requires",
            hint="ask those who run it to turn it on and list it in code_challenge_methods_supported",
        )
    return server.authorization_endpoint


def _build_authorization_url(endpoint: str, pending: PendingSignIn) -> str:
    digest = hashlib.sha256(pending.verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": pending.client.client_id,
        "redirect_uri": pending.client.redirect_uri,
        "state": pending.state,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    if pending.resource is not None:
        query["resource"] = pending.resource
    if pending.scopes:
        query["scope"] = " ".join(pending.scopes)
    if "offline_access" in pending.scopes:
        # OpenID providers give no refresh token otherwise.
        query["prompt"] = "consent"
    base = endpoint.partition("#")[0]
    return f"{base}{'&' if '?' in base else '?'}{urlencode(query, quote_via=quote)}"
