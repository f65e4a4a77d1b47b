"""Sign-in flows: authorization code with PKCE, in two steps that may run in two processes, and client
credentials, in one step."""

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
"""Maximum time between the two steps."""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """A started sign-in: send the user's browser to ``url``."""

    url: str = field(repr=False)
    state: str = field(repr=False)
    issuer: str = ""
    requires_iss_parameter: bool = False
    """Whether the response must contain ``iss`` (RFC 9207); a code alone is not sufficient then."""
    redirect_uri: str = ""
    """The only address at which the response may arrive."""


class SignInFlow:
    """Signs in to servers and stores the grants. A failed sign-in stores nothing."""

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
        """Start a sign-in: return the authorization request, and store the data for the second step.

        ``challenge`` is the server's challenge, if it was received already. ``owner`` identifies the user and
        must be the same in ``finish``. ``client_identity`` replaces ours if it depends on the address that
        the user's browser used. Raises AuthError or AuthUnavailable.
        """
        identity = client_identity or self._client_identity
        http_client = OAuthHttpClient(self._net, target.address_policy)
        challenge = challenge or await probe_for_challenge(http_client, target)
        discovery = await self._discover_server(http_client, key, target, challenge)
        endpoint = _require_authorization_endpoint(discovery, legacy=target.oauth.legacy_discovery)
        scopes = choose_scopes(target.oauth.scopes, challenge, discovery, more_scopes)
        client = await get_or_register_client(
            http_client, self._storage, target, identity, discovery, scopes, self._clock()
        )
        pending = PendingSignIn(
            state=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            key=key,
            owner=owner,
            client=client,
            token_endpoint=discovery.server.token_endpoint,
            iss_promised=discovery.server.sends_iss_parameter,
            resource=discovery.resource,
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
        """Complete a sign-in with its authorization response. Each state can be used once.

        Raises AnswerRejected, AuthorizationDenied, TokenRefused, ClientForgotten or AuthUnavailable.
        """
        return await self.complete(await self.take_pending(response.params, owner=owner), response)

    async def take_pending(self, params: Mapping[str, str], *, owner: str = "") -> PendingSignIn:
        """Remove and return the pending sign-in of a response, which must come from its owner.

        Raises AnswerRejected.
        """
        if not (state := params.get("state")):
            raise AnswerRejected("the response does not contain a state", hint="start again")
        # Removed before it is checked: each state can be tried once, whether or not the response is valid.
        pending = await self._storage.take_pending(state)
        if pending is None:
            raise AnswerRejected(
                "this sign-in is unknown or has already been completed",
                hint="start again; unfinished sign-ins are deleted after a day",
            )
        # Otherwise an attacker could send the victim a response of a sign-in that the attacker has begun, and
        # connect the victim to the attacker's account (login CSRF).
        if not hmac.compare_digest(pending.owner.encode(), owner.encode()):
            raise AnswerRejected("this sign-in was started by another user", hint="start again")
        if not is_recent(pending.began_at, self._clock(), _MAX_SIGN_IN_SECONDS):
            raise AnswerRejected(
                "this sign-in was started too long ago", hint="start again, and finish within an hour"
            )
        return pending

    async def complete(self, pending: PendingSignIn, response: AuthorizationResponse) -> OAuthGrant:
        """Exchange the code of a response for tokens, and store them. Raises the errors of ``finish``."""
        grant = await self._exchange_code(pending, response.extract_code(pending))
        await self._storage.put_grant(pending.key, grant)
        # The exchange succeeded, so this issuer knows the entered client. From now on the client belongs to
        # it (docs/decisions/0081-secrets-go-to-confirmed-issuers.md).
        await self._bind_entered_client(pending.server_url, grant.client)
        return grant

    async def sign_in_as_client(
        self, key: str, target: SignInTarget, *, challenge: Challenge | None = None
    ) -> OAuthGrant:
        """Sign in with the client credentials grant, without a user. Raises AuthError or AuthUnavailable."""
        http_client = OAuthHttpClient(self._net, target.address_policy)
        challenge = challenge or await probe_for_challenge(http_client, target)
        discovery = await self._discover_server(http_client, key, target, challenge)
        now = self._clock()
        # This grant has no refresh tokens: without listed scopes, offline_access is not requested.
        without_offline_access = replace(discovery, server=replace(discovery.server, scopes_supported=None))
        scopes = choose_scopes(target.oauth.scopes, challenge, without_offline_access)
        client = await get_or_register_client(
            http_client, self._storage, target, self._client_identity, discovery, scopes, now
        )
        form = {"grant_type": "client_credentials"}
        if scopes:
            form["scope"] = " ".join(scopes)
        if discovery.resource is not None:
            form["resource"] = discovery.resource
        endpoint = discovery.server.token_endpoint
        tokens = await request_tokens(
            http_client, endpoint, client, form, now, private_key=target.private_key
        )
        grant = build_grant(
            tokens, target.url, _without_entered_secret(client), endpoint, discovery.resource, scopes
        )
        await self._storage.put_grant(key, grant)
        await self._bind_entered_client(target.url, client)
        return grant

    async def find_issuer(self, key: str, target: SignInTarget, challenge: Challenge | None = None) -> str:
        """Return the issuer of the server's authorization server. Raises AuthError or AuthUnavailable.

        ``challenge`` is the server's challenge, if it was received already.
        """
        http_client = OAuthHttpClient(self._net, target.address_policy)
        challenge = challenge or await probe_for_challenge(http_client, target)
        return (await self._discover_server(http_client, key, target, challenge)).server.issuer

    async def _discover_server(
        self, http_client: OAuthHttpClient, key: str, target: SignInTarget, challenge: Challenge | None
    ) -> DiscoveryResult:
        # get_grants omits an unreadable grant instead of raising: this sign-in will replace it.
        stored = (await self._storage.get_grants((key,))).get(key)
        preferred = target.oauth.issuer or (stored.issuer if stored is not None else None)
        return await discover_authorization_server(http_client, target, challenge, preferred_issuer=preferred)

    async def _exchange_code(self, pending: PendingSignIn, code: str) -> OAuthGrant:
        # From the stored sign-in and not from the current definition: the code goes only to the token
        # endpoint that was discovered when the browser left, even if the server was edited since.
        http_client = OAuthHttpClient(self._net, AddressPolicy(pending.server_url, pending.private_addresses))
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
            tokens = await request_tokens(http_client, pending.token_endpoint, client, form, self._clock())
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
    """Return the client without a configured secret, which is not stored but read from the configuration."""
    return replace(client, secret=None) if client.origin == "entered" else client


def _require_authorization_endpoint(discovery: DiscoveryResult, *, legacy: bool) -> str:
    server = discovery.server
    if server.authorization_endpoint is None:
        raise DiscoveryFailed(
            f"the authorization server {server.issuer} has no authorization endpoint for users",
            hint="it may be meant for programs: use the grant client_credentials",
        )
    is_unlisted = server.code_challenge_methods is None
    if (is_unlisted and not legacy) or (
        not is_unlisted and "S256" not in (server.code_challenge_methods or ())
    ):
        raise PkceMissing(
            f"the authorization server {server.issuer} does not offer PKCE with S256, which MCP requires",
            hint="ask its operator to turn it on and list it in code_challenge_methods_supported",
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
        # OpenID Connect Core, section 11: offline_access is ignored without prompt=consent.
        query["prompt"] = "consent"
    base = endpoint.partition("#")[0]
    return f"{base}{'&' if '?' in base else '?'}{urlencode(query, quote_via=quote)}"
