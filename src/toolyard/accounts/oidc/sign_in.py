"""Sign-in at an identity provider: authorization code flow with PKCE, state and nonce, in two requests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import orjson

from toolyard.accounts.account_status import resolve_effective_user
from toolyard.accounts.attempt_limits import SignInLimiter
from toolyard.accounts.errors import NeverBegun, NotAllowed, ProviderFailed, SignInRefused
from toolyard.accounts.oidc.claims import find_or_create_account, parse_identity
from toolyard.accounts.oidc.id_token import ExpectedClaims, UnknownSigningKey, verify_id_token
from toolyard.accounts.oidc.provider import OidcProvider, ProviderTokens
from toolyard.accounts.random_secrets import hash_secret, is_secret, new_secret
from toolyard.auth.oauth_http import sanitize_error_text
from toolyard.config.settings.table import Settings
from toolyard.net import OutboundHttp
from toolyard.types.account import User

if TYPE_CHECKING:
    from toolyard.store.repositories.accounts import SqlAccountStorage

__all__ = ["OidcSignIn"]

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
    ) -> None:
        if settings.oidc_issuer is None or settings.oidc_client_id is None:
            raise NotAllowed("no identity provider is configured", hint="set oidc_issuer and oidc_client_id")
        self._settings = settings
        self._storage = storage
        self._clock = clock
        self._sign_in_limiter = SignInLimiter(storage, clock)
        self._provider = OidcProvider(
            settings.oidc_issuer, settings.oidc_client_id, settings.oidc_client_secret, net, clock
        )

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
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
        query = {
            "response_type": "code",
            "client_id": self._provider.client_id,
            "redirect_uri": redirect_uri,
            "scope": _REQUESTED_SCOPE,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
        }
        base = metadata.authorization_endpoint.partition("#")[0]
        return f"{base}{'&' if '?' in base else '?'}{urlencode(query, quote_via=quote)}"

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
            raise SignInRefused("the identity provider returned neither code nor error", hint="sign in again")
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
        # An unknown key may be new: fetch the key set again once.
        for refresh in (False, True):
            keys = await self._provider.get_keys(refresh=refresh)
            try:
                return verify_id_token(tokens.id_token, keys, expected, self._clock())
            except UnknownSigningKey:
                continue
        raise ProviderFailed(
            "the identity provider signed with a key that is not in its key set", hint="try again later"
        )


def _build_denial_error(callback_params: Mapping[str, str]) -> SignInRefused:
    code = sanitize_error_text(callback_params.get("error"), max_characters=60)
    description = sanitize_error_text(callback_params.get("error_description"))
    detail = f"{code} ({description})" if description else code
    return SignInRefused(f"the identity provider refused: {detail}", hint="sign in again")
