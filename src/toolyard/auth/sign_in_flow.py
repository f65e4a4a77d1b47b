"""Sign-in flows: authorization code with PKCE, in two steps that may run in two processes, and client
credentials, in one step. Authorization responses are checked before their code is exchanged.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn
from urllib.parse import parse_qsl

from toolyard.auth.client_registration import get_or_register_client
from toolyard.auth.discovery import DiscoveryResult, discover_authorization_server, probe_for_challenge
from toolyard.auth.errors import (
    AnswerRejected,
    AuthorizationDenied,
    ClientForgotten,
    DiscoveryFailed,
    PkceMissing,
)
from toolyard.auth.oauth_http import (
    AddressPolicy,
    OAuthHttpClient,
    add_query,
    pkce_challenge,
    sanitize_error_text,
)
from toolyard.auth.provider import Challenge
from toolyard.auth.sign_in_target import ClientIdentity, SignInTarget
from toolyard.auth.storage import AuthStorage, OAuthClient, OAuthGrant, PendingSignIn
from toolyard.auth.token_endpoint import build_grant, request_tokens
from toolyard.net import OutboundHttp
from toolyard.types.timestamps import is_recent

__all__ = [
    "AuthorizationRequest",
    "AuthorizationResponse",
    "SignInFlow",
    "choose_scopes",
    "scopes_in_challenge",
]


_SUSPICIOUS_RESPONSE_HINT = "this may be an attack: find the cause before you sign in here again"


@dataclass(frozen=True, slots=True)
class AuthorizationResponse:
    """Query parameters, and the redirect URI at which they arrived."""

    address: str
    """Without query and fragment."""
    params: Mapping[str, str] = field(repr=False)

    @classmethod
    def from_query(cls, address: str, pairs: Iterable[tuple[str, str]]) -> AuthorizationResponse:
        """Read the query of a request. Raises AnswerRejected for a repeated parameter (RFC 6749, 3.1)."""
        pairs = list(pairs)
        params = dict(pairs)
        if len(params) < len(pairs):
            raise AnswerRejected("the response contains a parameter more than once", hint="start again")
        return cls(address, params)

    @classmethod
    def parse(cls, url: str) -> AuthorizationResponse:
        """Parse the URL that the browser was redirected to. Raises AnswerRejected."""
        address, _, query = url.partition("#")[0].partition("?")
        return cls.from_query(address, parse_qsl(query, keep_blank_values=True))

    def extract_code(self, pending: PendingSignIn) -> str:
        """Return the code if the response matches the pending sign-in.

        Raises AnswerRejected if it does not match, and AuthorizationDenied for an OAuth error response.
        """
        # Both checks are the defence against mix-up attacks (RFC 9700, section 4.4): a malicious server must
        # not get a code of another one sent to its own token endpoint. They come before ``error``, whose text
        # would otherwise be reported as that of the expected server.
        self._check_address(pending)
        self._check_issuer(pending)
        if "error" in self.params:
            self._raise_denied(pending)
        if not (code := self.params.get("code")):
            raise AnswerRejected("the authorization server returned neither a code nor an error")
        return code

    def _check_address(self, pending: PendingSignIn) -> None:
        if self.address != pending.client.redirect_uri:
            raise AnswerRejected(
                f"the response to a sign-in at {pending.client.issuer} arrived at the redirect URI of"
                " another authorization server",
                hint=_SUSPICIOUS_RESPONSE_HINT,
            )

    def _check_issuer(self, pending: PendingSignIn) -> None:
        """Compare ``iss`` exactly (RFC 9207), before any other parameter of the response is used."""
        issuer, stated_issuer = pending.client.issuer, self.params.get("iss")
        # Anyone can use our public metadata document at another authorization server, so with a document
        # the redirect URI does not identify the server.
        is_required = pending.iss_promised or pending.client.origin == "document"
        if stated_issuer is None and is_required:
            raise AnswerRejected(
                f"the response lacks the required parameter 'iss', which should be {issuer}",
                hint=_SUSPICIOUS_RESPONSE_HINT,
            )
        if stated_issuer is not None and stated_issuer != issuer:
            raise AnswerRejected(
                f"the response comes from another authorization server than {issuer}",
                hint=_SUSPICIOUS_RESPONSE_HINT,
            )

    def _raise_denied(self, pending: PendingSignIn) -> NoReturn:
        code = sanitize_error_text(self.params.get("error"), max_characters=60)
        description = sanitize_error_text(self.params.get("error_description"))
        detail = f"{code} ({description})" if description else code
        hint = "sign in again and allow access" if code == "access_denied" else "try again"
        raise AuthorizationDenied(
            f"the authorization server {pending.client.issuer} refused: {detail}", code=code, hint=hint
        )


_OFFLINE_ACCESS_SCOPE = "offline_access"


def scopes_in_challenge(challenge: Challenge | None) -> tuple[str, ...]:
    """Return the scopes in a challenge's ``scope`` parameter."""
    return () if challenge is None else tuple(challenge.params.get("scope", "").split())


def _scopes_to_request_again(grant: OAuthGrant | None, configured: tuple[str, ...]) -> tuple[str, ...]:
    """Return the scopes of a grant to request again, and those that the server has demanded since.

    If scopes are configured, the previously requested ones are not repeated: otherwise a scope that no
    longer exists at the authorization server could never be removed.
    """
    if grant is None:
        return ()
    return tuple(dict.fromkeys((*(() if configured else grant.requested), *grant.wanted)))


def choose_scopes(
    configured: tuple[str, ...],
    challenge: Challenge | None,
    discovery: DiscoveryResult,
    extra: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Return the configured scopes, else those of the challenge, else those of the metadata; and ``extra``.

    ``offline_access``, which requests a refresh token, is added only if the authorization server lists it.
    """
    base = configured or scopes_in_challenge(challenge) or discovery.scopes_supported or ()
    chosen = [scope for scope in dict.fromkeys((*extra, *base)) if scope != _OFFLINE_ACCESS_SCOPE]
    # Requested alone, it would replace the server's default scopes.
    if chosen and _OFFLINE_ACCESS_SCOPE in (discovery.server.scopes_supported or ()):
        chosen.append(_OFFLINE_ACCESS_SCOPE)
    return tuple(chosen)


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
        more_scopes: tuple[str, ...] | None = None,
        owner: str = "",
        client_identity: ClientIdentity | None = None,
    ) -> AuthorizationRequest:
        """Start a sign-in: return the authorization request, and store the data for the second step.

        ``challenge`` is the server's challenge, if it was received already. ``more_scopes`` are requested
        beside the usual ones; None: those of the earlier sign-in, and those demanded since. ``owner``
        identifies the user and must be the same in ``finish``. ``client_identity`` replaces ours if it
        depends on the address that the user's browser used. Raises AuthError or AuthUnavailable.
        """
        identity = client_identity or self._client_identity
        http_client = OAuthHttpClient(self._net, target.address_policy)
        challenge = challenge or await probe_for_challenge(http_client, target)
        discovery = await self._discover_server(http_client, key, target, challenge)
        endpoint = _require_authorization_endpoint(discovery, legacy=target.oauth.legacy_discovery)
        if more_scopes is None:
            more_scopes = _scopes_to_request_again(await self._find_grant(key), target.oauth.scopes)
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
            raise AnswerRejected("the response has no state parameter", hint="start again")
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
        stored = await self._find_grant(key)
        preferred = target.oauth.issuer or (stored.issuer if stored is not None else None)
        return await discover_authorization_server(http_client, target, challenge, preferred_issuer=preferred)

    async def _find_grant(self, key: str) -> OAuthGrant | None:
        # get_grants omits an unreadable grant instead of raising: this sign-in will replace it.
        return (await self._storage.get_grants((key,))).get(key)

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
            for_secret = client.auth_method != "none"
            await self._storage.bind_issuer(
                server_url, client.client_id, client.issuer, for_secret=for_secret
            )


def _without_entered_secret(client: OAuthClient) -> OAuthClient:
    """Return the client without a configured secret, which is not stored but read from the configuration."""
    return replace(client, secret=None) if client.origin == "entered" else client


def _require_authorization_endpoint(discovery: DiscoveryResult, *, legacy: bool) -> str:
    server = discovery.server
    if server.authorization_endpoint is None:
        raise DiscoveryFailed(
            f"the authorization server {server.issuer} has no authorization endpoint for users",
            hint="if it is meant for programs only, use the grant client_credentials",
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
    query = {
        "response_type": "code",
        "client_id": pending.client.client_id,
        "redirect_uri": pending.client.redirect_uri,
        "state": pending.state,
        "code_challenge": pkce_challenge(pending.verifier),
        "code_challenge_method": "S256",
    }
    if pending.resource is not None:
        query["resource"] = pending.resource
    if pending.scopes:
        query["scope"] = " ".join(pending.scopes)
    if "offline_access" in pending.scopes:
        # OpenID Connect Core, section 11: offline_access is ignored without prompt=consent.
        query["prompt"] = "consent"
    return add_query(endpoint, query)
