"""Sign-in at an identity provider: authorization code flow with PKCE, state and nonce, in two requests, and
access tokens of MCP clients that signed in there themselves.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from toolyard.accounts.attempt_limits import SignInLimiter
from toolyard.accounts.effective_role import Identity, resolve_effective_user
from toolyard.accounts.errors import NeverBegun, NotSignedIn, ProviderFailed, SignInRefused
from toolyard.accounts.oidc.provider import PROVIDER_TIMEOUT_SECONDS, OidcProvider, ProviderTokens
from toolyard.accounts.oidc.tokens import ExpectedClaims, verify_access_token, verify_id_token
from toolyard.accounts.provisioning import find_or_create_account, parse_identity
from toolyard.accounts.random_secrets import hash_secret, is_secret, new_secret
from toolyard.auth.oauth_http import add_query, pkce_challenge, sanitize_error_text
from toolyard.config.settings.table import Settings
from toolyard.net import OutboundHttp
from toolyard.types.account import User

if TYPE_CHECKING:
    from toolyard.store.repositories.accounts import SqlAccountStorage

__all__ = ["BearerAuthenticator", "OidcSignIn"]

_SIGN_IN_TIMEOUT_SECONDS = 900.0
"""Time limit for the user at the provider's pages."""
_REQUESTED_SCOPE = "openid profile email"


class OidcSignIn:
    """Sign-in at the configured identity provider. A failed sign-in stores nothing."""

    def __init__(
        self,
        settings: Settings,
        storage: SqlAccountStorage,
        net: OutboundHttp,
        *,
        clock: Callable[[], float] = time.time,
        timeout_seconds: float = PROVIDER_TIMEOUT_SECONDS,
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._clock = clock
        self._sign_in_limiter = SignInLimiter(storage, clock)
        self._provider = OidcProvider(settings, net, clock, timeout_seconds=timeout_seconds)

    async def begin(self, next_path: str, *, browser: str, redirect_uri: str, address: str) -> str:
        """Return the authorization URL to send the browser to; ``finish`` needs the same ``browser``.

        Raises TooManySignIns or ProviderFailed.
        """
        await self._sign_in_limiter.count_provider_sign_in(address)
        metadata = await self._provider.get_metadata()
        state, nonce, verifier = new_secret(), new_secret(), new_secret()
        pending = {
            "nonce": nonce,
            "verifier": verifier,
            "next": next_path,
            "browser": hash_secret(browser),
            "redirect_uri": redirect_uri,
        }
        await self._storage.put_sign_in(hash_secret(state), orjson.dumps(pending), self._clock())
        query = {
            "response_type": "code",
            "client_id": self._provider.client_id,
            "redirect_uri": redirect_uri,
            "scope": _REQUESTED_SCOPE,
            "state": state,
            "nonce": nonce,
            "code_challenge": pkce_challenge(verifier),
            "code_challenge_method": "S256",
        }
        return add_query(metadata.authorization_endpoint, query)

    async def finish(self, callback_params: Mapping[str, str], *, browser: str) -> tuple[User, str]:
        """Complete a sign-in; return the user and the path to continue at.

        Each state can be used once, in the browser that started the sign-in. Raises SignInRefused, NotAllowed
        or ProviderFailed.
        """
        pending = await self._take_pending_sign_in(callback_params.get("state", ""), browser)
        metadata = await self._provider.get_metadata()
        # RFC 9207: a response without ``iss`` is accepted only from a provider that does not send it.
        stated_issuer = callback_params.get("iss")
        if stated_issuer != metadata.issuer and (stated_issuer is not None or metadata.sends_iss_parameter):
            raise SignInRefused(
                "the response does not come from the configured identity provider",
                hint="this may be an attack: find the cause before you sign in again",
            )
        if "error" in callback_params:
            raise _build_denial_error(callback_params)
        if not (code := callback_params.get("code")):
            raise SignInRefused(
                "the identity provider returned neither a code nor an error", hint="sign in again"
            )
        tokens = await self._provider.exchange_code(code, pending["verifier"], pending["redirect_uri"])
        claims = await self._verify_tokens(tokens, pending["nonce"])
        userinfo = await self._provider.fetch_userinfo(tokens, claims["sub"])
        # The claims of the ID token take precedence because they are signed.
        identity = parse_identity(metadata.issuer, {**userinfo, **claims})
        user = await find_or_create_account(self._storage, identity, complete=True)
        return resolve_effective_user(user, self._settings) or user, pending["next"]

    async def _take_pending_sign_in(self, state: str, browser: str) -> dict[str, str]:
        body = None
        if is_secret(state):
            body = await self._storage.take_sign_in(
                hash_secret(state), self._clock() - _SIGN_IN_TIMEOUT_SECONDS
            )
        if body is None:
            raise NeverBegun(
                "this sign-in is unknown, has already been completed, or has expired", hint="sign in again"
            )
        pending: dict[str, str] = orjson.loads(body)
        if not browser or not hmac.compare_digest(pending["browser"], hash_secret(browser)):
            raise NeverBegun("this sign-in was started in another browser", hint="sign in again")
        return pending

    async def _verify_tokens(self, tokens: ProviderTokens, nonce: str) -> dict[str, Any]:
        metadata = await self._provider.get_metadata()
        expected = ExpectedClaims(
            metadata.issuer, self._provider.client_id, nonce, tokens.access_token, metadata.algorithms
        )
        claims = await self._provider.verify_with_keys(
            lambda keys: verify_id_token(tokens.id_token, keys, expected, self._clock())
        )
        if claims is not None:
            return claims
        raise ProviderFailed(
            "the identity provider signed with a key that is not in its key set", hint="try again later"
        )


def _build_denial_error(callback_params: Mapping[str, str]) -> SignInRefused:
    code = sanitize_error_text(callback_params.get("error"), max_characters=60)
    description = sanitize_error_text(callback_params.get("error_description"))
    detail = f"{code} ({description})" if description else code
    return SignInRefused(f"the identity provider refused: {detail}", hint="sign in again")


class BearerAuthenticator:
    """Verifies tokens of the configured identity provider, the gateway's authorization server.

    Tokens are not stored.
    """

    def __init__(
        self, settings: Settings, net: OutboundHttp, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._provider = OidcProvider(settings, net, clock)

    async def get_issuer(self) -> str:
        """Return the issuer in the provider's metadata, or the configured one if it cannot be fetched."""
        try:
            return (await self._provider.get_metadata()).issuer
        except ProviderFailed:
            return self._provider.issuer

    async def authenticate(self, token: str, audiences: Collection[str]) -> Identity:
        """Return the identity of a token's user.

        Raises NotSignedIn if the token is not accepted, and ProviderFailed if it cannot be verified.
        """
        issuer = (await self._provider.get_metadata()).issuer
        claims = await self._provider.verify_with_keys(
            lambda keys: verify_access_token(
                token, keys, issuer=issuer, audiences=audiences, now=self._clock()
            )
        )
        if claims is not None:
            try:
                return parse_identity(issuer, claims)
            except SignInRefused as error:
                raise NotSignedIn(error.cause, hint=error.hint) from None
        # A forged token may name any key, so this is not reported as a fault of the provider.
        raise NotSignedIn(
            "this access token is not accepted: it was signed with an unknown key", hint="sign in again"
        )
